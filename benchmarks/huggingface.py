"""How many tokens per second a Hugging Face Trainer keeps when it scores its samples.

    python benchmarks/huggingface.py [--rounds 5] [--steps 30] [--out FILE.json]

The model, the texts and the settings are those of examples/hf_gpt2.py. The plain Trainer, one that scores, and one that
scores, samples and monitors take turns, so that a change in the machine's speed meets all of them alike.
"""

from __future__ import annotations

import argparse
import json
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
from headway.bench.machine import describe
from headway.integrations.transformers import SourceTrainer
from headway.selection import Sources, SourceSampler, Tagged

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import hf_gpt2 as example


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
    tokens = options.steps * 32 * example.LENGTH
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(-1, options.rounds):
            for kind in KINDS:
                trainer = make(kind, folder, options.steps)
                start = time.process_time()
                trainer.train()
                if round_ >= 0:  # the first round warms up
                    rates[kind].append(tokens / (time.process_time() - start))
    kept = {
        kind: statistics.median(own / plain for own, plain in zip(rates[kind], rates["plain"], strict=True))
        for kind in KINDS
    }
    for kind in KINDS:
        print(f"{kind:26}{statistics.median(rates[kind]):10.0f} tokens per processor second{kept[kind]:8.0%}")
    if options.out:
        machine = describe(options.threads)
        versions = {**machine.versions, **{name: version(name) for name in ("transformers", "accelerate")}}
        content = {
            "date": machine.date, "cpu": machine.cpu, "threads": options.threads, "versions": versions,
            "tokens_per_second": {kind: statistics.median(own) for kind, own in rates.items()}, "kept": kept,
        }  # fmt: skip
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
