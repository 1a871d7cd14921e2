"""How many tokens per second a Hugging Face Trainer keeps when it scores its samples.

    python benchmarks/huggingface.py [--rounds 5] [--steps 30] [--out FILE.json]

The model, the texts and the settings are those of examples/hf_gpt2.py. The plain Trainer, one that scores, and one that
scores, samples and monitors take turns, so that a change in the machine's speed meets all of them alike. What is kept
is that of the same round: the table has the median over the rounds, the least and the greatest. Time is that of the
process on its one core, which is what a clock shows where nothing else runs; what is kept by the clock is given too.
The file has the rates of every round, from which all else follows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer
from transformers.utils import logging

import headway
from benchmarks.common import Neighbours, describe, write_json
from headway.integrations.transformers import SourceTrainer
from headway.selection import Sources, SourceSampler, Tagged

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import hf_gpt2 as example  # type: ignore[import-not-found]


def make(kind: str, folder: str, steps: int) -> Trainer:
    """A trainer of one of the three kinds."""
    data = Tagged(example.Texts(200), Sources.joined(dict.fromkeys(example.SOURCES, 200)))
    arguments = example.make_arguments(folder, steps, logging_strategy="no")
    if kind == "plain":
        return Trainer(example.make_model(), arguments, train_dataset=data.dataset)
    extras: dict[str, Any] = {"signals": headway.GMC()}
    if kind == "GMC, sampler and monitor":
        monitor = headway.SourceMonitor(data.sources.names, every=20)
        extras = {"signals": [headway.GMC(), headway.NormAll()], "monitor": monitor}
        extras["sampler"] = SourceSampler(data.sources)
    return SourceTrainer(example.make_model(), arguments, train_dataset=data, **extras)


KINDS = ("plain", "GMC", "GMC, sampler and monitor")
CLOCKS = {"processor": time.process_time, "clock": time.perf_counter}

Rates = dict[str, dict[str, list[float]]]
"""Tokens per second: by clock, by kind, of every round."""


def turn(trainer: Trainer, tokens: int) -> dict[str, float]:
    """Train; the tokens per second by either clock."""
    start = {name: read() for name, read in CLOCKS.items()}
    trainer.train()
    return {name: tokens / (read() - start[name]) for name, read in CLOCKS.items()}


def measure(rounds: int, steps: int) -> Rates:
    """Let the kinds take turns; the first round warms up."""
    tokens = steps * example.BATCH * example.LENGTH
    rates: Rates = {clock: {kind: [] for kind in KINDS} for clock in CLOCKS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1, rounds):
            for kind in KINDS if number % 2 else reversed(KINDS):  # none is always the first
                found = turn(make(kind, folder, steps), tokens)
                for clock, rate in found.items():
                    if number >= 0:
                        rates[clock][kind].append(rate)
    return rates


def kept(rates: dict[str, list[float]], kind: str) -> dict[str, float]:
    """The part of the plain Trainer's rate that a kind keeps in the same round: median, least and greatest."""
    ratios = [own / plain for own, plain in zip(rates[kind], rates["plain"], strict=True)]
    return {"median": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="tokens per second with and without scores")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30, help="steps of each turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    neighbours = Neighbours()
    rates = measure(options.rounds, options.steps)
    parts = {clock: {kind: kept(own, kind) for kind in KINDS} for clock, own in rates.items()}
    print(f"{'':26}{'tokens/s':>10}{'kept':>8}{'least':>8}{'greatest':>10}{'by clock':>10}")
    for kind in KINDS:
        part, rate = parts["processor"][kind], statistics.median(rates["processor"][kind])
        by_clock = parts["clock"][kind]["median"]
        print(
            f"{kind:26}{rate:10,.0f}{part['median']:8.0%}{part['least']:8.0%}{part['greatest']:10.0%}{by_clock:10.0%}"
        )
    busy = neighbours.say()
    machine = describe(options.threads)
    versions = {**machine.versions, **{name: version(name) for name in ("transformers", "accelerate")}}
    content = {
        "date": machine.date, "cpu": machine.cpu, "threads": options.threads, "versions": versions,
        "busy_cores_of_others": busy, "steps": options.steps, "batch": example.BATCH,
        "tokens_per_second": rates, "kept": {kind: part["median"] for kind, part in parts["processor"].items()},
        "spread": parts,
    }  # fmt: skip
    write_json(options.out, content)


if __name__ == "__main__":
    main()
