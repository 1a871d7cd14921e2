"""How fast the training loop of the controlled study is, and where the time goes.

    python benchmarks/controlled.py [--threads N] [--inputs 784] [--batches 300] [--out FILE.json]

Images are random, of MNIST's size by default (3072 inputs for CIFAR-10's): the time does not depend on what they show.
The signals take turns, a few batches each, so that a change in the machine's speed meets all of them alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import write_json
from headway.data import Dataset, Split
from headway.study.controlled_trial import Trial
from headway.study.protocols.classification import Protocol
from headway.study.signals import SIGNALS

TURN = 10
"""Batches of one signal before it is the next one's turn."""


def random_images(inputs: int, number: int = 20_000) -> Dataset:
    """A dataset of random images [number, 1, inputs, 1] in ten classes."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (number, 1, inputs, 1), dtype=np.uint8)
    labels = np.arange(number, dtype=np.int64) % 10
    split = Split(images, labels)
    return Dataset("random", split, split, tuple("0123456789"), "", "random")


def measure(trials: dict[str, Trial], batches: int) -> dict[str, dict[str, float]]:
    """Median seconds of each phase and of a whole batch, by signal."""
    times: dict[str, dict[str, list[float]]] = {name: {} for name in trials}
    for round_ in range(-1, batches // TURN):
        for name, trial in trials.items():
            for _ in range(TURN):
                start = last = time.perf_counter()
                phases: dict[str, float] = {}

                def mark(phase: str, phases: dict[str, float] = phases) -> None:
                    nonlocal last
                    now = time.perf_counter()
                    phases[phase], last = now - last, now

                trial.train_batch(mark)
                phases["batch"] = time.perf_counter() - start
                if round_ >= 0:  # the first round warms up
                    for phase, seconds in phases.items():
                        times[name].setdefault(phase, []).append(seconds)
            trial._seen.clear()
    return {name: {phase: statistics.median(values) for phase, values in own.items()} for name, own in times.items()}


def table(result: dict[str, dict[str, float]]) -> str:
    """The medians in milliseconds, batches per second, and the ratio to Curiosity."""
    phases = list(next(iter(result.values())))
    lines = [f"{'signal':12}" + "".join(f"{phase:>21}" for phase in phases) + f"{'batches/s':>11}{'/ curiosity':>13}"]
    for name, own in result.items():
        ratio = own["batch"] / result["curiosity"]["batch"]
        cells = "".join(f"{own[phase] * 1e3:18.2f} ms" for phase in phases)
        lines.append(f"{name:12}{cells}{1 / own['batch']:11.0f}{ratio:13.2f}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="speed of the controlled study's training loop")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (a run uses one)")
    parser.add_argument("--inputs", type=int, default=784, help="pixels of an image: 784 as MNIST, 3072 as CIFAR-10")
    parser.add_argument("--batches", type=int, default=300, help="batches per signal")
    parser.add_argument("--out", type=Path, help="write the medians as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dataset = random_images(options.inputs)
    trials = {name: Trial(dataset, "noise", name, Protocol.released(), 0) for name in SIGNALS.names()}
    result = measure(trials, options.batches)
    print(f"{options.inputs} inputs, batch {Protocol.released().batch_size}, {options.threads} threads, medians")
    print(table(result))
    content = {"inputs": options.inputs, "threads": options.threads, "torch": torch.__version__, "seconds": result}
    write_json(options.out, content)


if __name__ == "__main__":
    main()
