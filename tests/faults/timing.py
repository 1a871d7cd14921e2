"""How long the fault suite takes: `python -m tests.faults.timing [--out FILE] [--docs PAGE]`, or `make faults`.

The project promises that it takes less than six minutes where changes are tested. The outcome is kept as JSON, and a
page of the docs quotes it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.common import quoted
from tests.faults.campaigns import ROOT

MOST_MINUTES = 6
SUITE = ("tests/faults", "--ignore=tests/faults/test_docs.py")  # which is about this measurement, not a fault


def measure() -> dict[str, Any]:
    """Run the suite as the tests do; return how it went."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", *SUITE]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    print(result.stdout, flush=True)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", result.stdout)}
    return {
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "seconds": round(seconds, 1),
        "passed": counts.get("passed", 0),
        "skipped": counts.get("skipped", 0),
        "is_good": result.returncode == 0,
    }


def sentence(result: dict[str, Any]) -> str:
    """What the docs quote."""
    skipped = f", {result['skipped']} skipped" if result["skipped"] else ""
    return (
        f"Last measured: {result['date']}, {result['machine']}; {result['passed']} tests{skipped} in "
        f"{result['seconds']:.0f} s. Promised: less than {MOST_MINUTES} minutes."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="how long the fault suite takes")
    parser.add_argument("--out", type=Path, help="where the outcome goes, as JSON")
    parser.add_argument("--docs", type=Path, help="the page that quotes it")
    options = parser.parse_args()
    result = measure()
    print(sentence(result))
    if not result["is_good"]:
        return 1  # what went wrong is not quoted
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    if options.docs:
        options.docs.write_text(quoted(options.docs.read_text("utf-8"), "faults", sentence(result)), "utf-8")
    return 0 if result["seconds"] < 60 * MOST_MINUTES else 1


if __name__ == "__main__":
    sys.exit(main())
