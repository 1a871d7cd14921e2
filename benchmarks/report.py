"""What a report costs: a store of 480 runs x 400 epochs, as large as the paper's study, with made-up numbers.

    python benchmarks/report.py [--store DIR] [--out DIR] [--seeds 20] [--epochs 400] [--json FILE]

Prints the time and the peak memory of `headway report`, the size of its page, and the time until a browser shows it.
The store is made if it is not there; keep it with --store to measure again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # the made-up runs are those of the tests

from benchmarks.common import describe, write_json
from headway.runs import RunStore
from tests.analysis.stores import controlled_specs, finish
from tests.browser.chromium import find_chromium

LIMITS = {"report": 60.0, "memory": 1000.0, "page": 15.0, "open": 3.0}
"""Seconds, MB, MB, seconds."""


def make_store(root: Path, seeds: int, epochs: int) -> int:
    """Make up the runs that are not there yet; returns how many there are."""
    store = RunStore(root)
    specs = controlled_specs(("mnist", "cifar10"), seeds=seeds, epochs=epochs)
    store.add_all(specs)
    left = [spec for spec in specs if store.record(spec.run_id).state.value != "done"]
    for number, spec in enumerate(left, 1):
        finish(store, spec)
        if number % 40 == 0:
            print(f"  made {number} of {len(left)} runs", flush=True)
    return len(specs)


def measure_report(store: Path, out: Path) -> tuple[float, float, float]:
    """Seconds, seconds of processor time (which do not count what others do meanwhile), and peak memory in MB."""
    command = [sys.executable, "-m", "headway", "report", str(store), "--out", str(out)]
    began = time.perf_counter()
    process = subprocess.Popen(command)
    peak = 0.0
    while True:
        found, status, usage = os.wait4(process.pid, os.WNOHANG)
        if found:
            break
        peak = max(peak, resident(process.pid))
        time.sleep(0.1)
    seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"expected the report to be written, got exit status {status}")
    return seconds, usage.ru_utime + usage.ru_stime, peak


def resident(pid: int) -> float:
    """Memory of a process and of all that it has started, in MB; on Linux."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended
        return 0.0
    return pages * os.sysconf("SC_PAGESIZE") / 1e6 + sum(resident(int(child)) for child in children)


def measure_opening(page: Path) -> float | None:
    """Seconds from the call to the first figure on the screen; None without a browser."""
    chromium = find_chromium()
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto("about:blank")
        began = time.perf_counter()
        tab.goto(page.absolute().as_uri() + "#summary")
        tab.wait_for_selector("[data-figure] canvas")
        seconds = time.perf_counter() - began
        browser.close()
    return seconds


def main() -> None:
    """Measure, and print a line for each number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, help="where the runs are kept (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="where the report goes (default: a temporary folder)")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store, out = options.store or Path(folder, "runs"), options.out or Path(folder, "report")
        runs = make_store(store, options.seeds, options.epochs)
        seconds, work, memory = measure_report(store, out)
        size = (out / "index.html").stat().st_size / 1e6
        opening = measure_opening(out / "index.html")
    print(f"{runs} runs x {options.epochs} epochs; load average {os.getloadavg()[0]:.1f}")
    print(f"report   {seconds:8.1f} s    (limit {LIMITS['report']:g})")
    print(f"  of processor time {work:.1f} s")
    print(f"memory   {memory:8.0f} MB   (limit {LIMITS['memory']:g})")
    print(f"page     {size:8.2f} MB   (limit {LIMITS['page']:g})")
    result = {
        "date": describe().date,
        "runs": runs,
        "epochs": options.epochs,
        "seconds": seconds,
        "processor_seconds": work,
        "memory_mb": memory,
        "page_mb": size,
        "opening_seconds": opening,
        "load_average": os.getloadavg()[0],
    }
    write_json(options.json, result)
    shown = "no browser found" if opening is None else f"{opening:8.2f} s    (limit {LIMITS['open']:g})"
    print(f"opening  {shown}")


if __name__ == "__main__":
    main()
