"""What the check with random weights costs: a step that is checked against one that is not, in turn.

    python benchmarks/check.py [--rounds 60] [--threads 1] [--out FILE.json]

Over a run of 2,000 steps in one situation `check="auto"` checks 11 batches: 1, 2, 4, ..., 1024.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import describe, write_json
from benchmarks.cost.cases import CASES, Case, losses
from headway import GMC, Meter
from headway.grads.check_schedule import Schedule

STEPS = 2000


def checks(steps: int) -> int:
    """The batches that `check="auto"` looks at, of so many in one situation."""
    schedule = Schedule("auto")
    found = 0
    for _ in range(steps):
        if schedule.take("the same"):
            schedule.done("the same", compared=True)
            found += 1
    return found


def measure(case: Case, rounds: int) -> float:
    """The time of a checked step over that of an unchecked one: the median over rounds in which both take a turn."""
    generator = torch.Generator().manual_seed(0)
    steps = []
    for check in ("always", "never"):
        model = case.build()
        meter, optimizer = Meter(model, GMC(), check=check), torch.optim.Adam(model.parameters(), fused=True)

        def step(model: Any = model, meter: Any = meter, optimizer: Any = optimizer) -> float:
            data = case.data(case.batch, generator)
            start = time.perf_counter()
            meter.backward(losses(model(data.x), data.y))
            optimizer.step()
            optimizer.zero_grad()
            return time.perf_counter() - start

        steps.append(step)
    for step in steps:
        step()
    return statistics.median(steps[0]() / steps[1]() for _ in range(rounds))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what the check of scores costs")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for case in CASES.values():
        ratio = measure(case, options.rounds)
        share = checks(STEPS) * (ratio - 1) / STEPS
        rows.append({"case": case.key, "title": case.title, "ratio": ratio, "share": share})
        print(f"{case.key}  {case.title:40s} {ratio:.2f} of the unchecked step, {share:.2%} of {STEPS} steps")
    machine = dataclasses.asdict(describe(options.threads))
    write_json(options.out, {"machine": machine, "threads": options.threads, "steps": STEPS, "rows": rows})


if __name__ == "__main__":
    main()
