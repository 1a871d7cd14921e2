"""How many indices per second a `SourceSampler` draws, and what an update costs.

    python benchmarks/sampler.py [--out FILE.json]

Times are of the processor, so that other processes on the machine hardly matter; wall times are printed beside them.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, WeightedRandomSampler

from benchmarks.common import describe, write_json
from headway.selection import PolicyGradient, SourceSampler

INDICES, UPDATED, ROUNDS = 1_000_000, 200_000, 3
CASES: dict[str, dict[str, Any]] = {
    "4 sources": {"sources": 4},
    "100 sources": {"sources": 100},
    "with replacement": {"sources": 4, "replacement": True},
    "first of 8 replicas": {"sources": 4, "rank": 0, "num_replicas": 8},
}


def clock(function: Any) -> dict[str, float]:
    """The least processor and wall seconds of some calls."""
    times = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    return {"cpu": min(cpu for cpu, _ in times), "wall": min(wall for _, wall in times)}


def exhaust(iterable: Any) -> None:
    """Go through all items, and keep none."""
    deque(iterable, maxlen=0)


def make(sources: int, **options: Any) -> SourceSampler:
    """A sampler over a million samples."""
    return SourceSampler(torch.arange(INDICES) % sources, **options)


def with_updates(sampler: SourceSampler, batch: int, limit: int) -> None:
    """Draw batch by batch, with an update after each."""
    ids, scores = torch.arange(batch) % len(sampler.sources), torch.rand(batch)
    indices = iter(sampler)
    for _ in range(limit // batch):
        exhaust(itertools.islice(indices, batch))
        sampler.update(ids, scores)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="speed of the source sampler")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rates: dict[str, dict[str, float]] = {}

    def note(name: str, indices: int, seconds: dict[str, float]) -> None:
        rates[name] = {kind: indices / value for kind, value in seconds.items()}
        print(f"{name:34}{rates[name]['cpu'] / 1e6:8.2f} million/s{rates[name]['wall'] / 1e6:10.2f} by wall time")

    for name, case in CASES.items():
        sampler = make(**case)
        note(name, len(sampler), clock(lambda sampler=sampler: exhaust(sampler)))
    for batch in (64, 1024):
        sampler = make(4)
        note(f"update after every {batch}", UPDATED, clock(lambda s=sampler, b=batch: with_updates(s, b, UPDATED)))
    sampler = make(4, rule=PolicyGradient())
    note("the same, by policy gradient", UPDATED, clock(lambda: with_updates(sampler, 1024, UPDATED)))
    uniform = WeightedRandomSampler([1.0] * INDICES, INDICES)
    note("torch's WeightedRandomSampler", INDICES, clock(lambda: exhaust(uniform)))
    data: Any = range(INDICES)
    batches = DataLoader(data, 1024, sampler=make(4)).batch_sampler
    note("4 sources, in batches of 1024", INDICES, clock(lambda: exhaust(batches)))
    machine = describe()
    content = {"date": machine.date, "cpu": machine.cpu, "versions": machine.versions, "indices_per_second": rates}
    write_json(options.out, content)


if __name__ == "__main__":
    main()
