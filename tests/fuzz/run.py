"""Lets atheris search for inputs that break a target: `python -m tests.fuzz.run [TARGET] [SECONDS] [CORPUS]`.

Without a target, all are searched, one after the other. An input that breaks one is kept in the folder for temporary
files, and named. Inputs that widen the coverage are kept in CORPUS, if there is such a folder, and tried first the next
time.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch  # noqa: F401 - which cannot be imported any more once the search goes on

WATCHED = ["headway.runs", "headway.data", "headway.integrations", "headway.study"]
KEPT = Path(tempfile.gettempdir()) / "headway-fuzz-"
_TRIED = re.compile(r"Done (\d+) runs")


def search(name: str, seconds: int = 10, corpus: str = "") -> None:
    """Search one target; ends the process, with a code that is not 0 if something broke."""
    import atheris

    with atheris.instrument_imports(include=WATCHED):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        seeds = target.seeds()
        for index, seed in enumerate(seeds):
            (Path(folder) / f"seed-{index}").write_bytes(seed)
        places = [corpus, folder] if corpus else [folder]
        limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=3000", f"-artifact_prefix={KEPT}"]
        atheris.Setup(["fuzz", *limits, f"-max_len={2 * max(map(len, seeds))}", *places], target.feed)
        atheris.Fuzz()


def search_all(seconds: int) -> int:
    """Search all targets; return the exit code."""
    from tests.fuzz.targets import TARGETS

    broken = []
    for name in TARGETS:
        command = [sys.executable, "-m", "tests.fuzz.run", name, str(seconds)]
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        tried = _TRIED.search(result.stderr)
        print(
            f"{name}: {tried[1] if tried else 'few'} inputs, {'ok' if result.returncode == 0 else 'BROKEN'}", flush=True
        )
        if result.returncode:
            broken.append(name)
            print(result.stderr[-4000:])
    return 1 if broken else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    if words and not words[0].isdigit():
        search(words[0], *(int(word) for word in words[1:2]), *words[2:3])
    sys.exit(search_all(int(words[0]) if words else 60))
