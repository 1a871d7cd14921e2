"""How many tokens per second a Hugging Face Trainer keeps when it scores its samples.

    python -m benchmarks.huggingface [--steps 36] [--out FILE.json]

The plain Trainer, one that scores, and one that scores, samples and monitors take turns step by step, each in a thread
of its own of which one runs at a time, so that a change in the machine's speed meets all of them alike. What is kept is
that of the same step: the table has the median over the steps and the quartiles. The first six steps, which headway
prepares and checks, are left out of it. Time is that of the process on its one core, which is what a clock shows where
nothing else runs. The file has the rates of every step, from which all else follows. Models: that of
examples/hf_gpt2.py, and a GPT-2 of width 128 with 4 layers on 8 texts of 128 tokens.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback
from transformers.utils import logging

import headway
from benchmarks.common import Neighbours, describe, write_json
from headway.integrations.transformers import SourceTrainer
from headway.selection import Sources, SourceSampler, Tagged

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import hf_gpt2 as example  # type: ignore[import-not-found]


class Tokens(Dataset[dict[str, Tensor]]):
    """800 random texts of 128 tokens."""

    def __init__(self) -> None:
        self.tokens = torch.randint(128, (800, 128), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        """All texts."""
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """One text; the labels are its tokens."""
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def wide() -> GPT2LMHeadModel:
    """A GPT-2 of width 128."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_positions": 128, "n_embd": 128, "n_layer": 4, "n_head": 4, "vocab_size": 128}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


KINDS = ("plain", "GMC", "GMC, sampler and monitor")
MODELS = {"example": (example.make_model, lambda: example.Texts(200), 32), "width 128": (wide, Tokens, 8)}
WARM = 6

Rates = dict[str, list[float]]
"""Tokens per second by kind, of every step."""


def make(kind: str, which: str, folder: str, steps: int, callback: TrainerCallback) -> Trainer:
    """A trainer of one of the three kinds."""
    model, texts, batch = MODELS[which]
    data = Tagged(texts(), Sources.joined(dict.fromkeys(example.SOURCES, 200)))
    arguments = example.make_arguments(folder, steps, logging_strategy="no", per_device_train_batch_size=batch)
    if kind == "plain":
        return Trainer(model(), arguments, train_dataset=data.dataset, callbacks=[callback])
    extras: dict[str, Any] = {"signals": headway.GMC()}
    if kind == "GMC, sampler and monitor":
        monitor = headway.SourceMonitor(data.sources.names, every=20)
        extras = {"signals": [headway.GMC(), headway.NormAll()], "monitor": monitor}
        extras["sampler"] = SourceSampler(data.sources)
    return SourceTrainer(model(), arguments, train_dataset=data, callbacks=[callback], **extras)


class Turns(TrainerCallback):
    """Lets trainers in threads of their own make one step each, in turn.

    Attributes:
        times: the processor time of every step.
    """

    def __init__(self, mine: threading.Semaphore, following: threading.Semaphore) -> None:
        self.times: list[float] = []
        self._mine, self._following = mine, following
        self._start: float | None = None

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """A step lasts until the next one begins, with its batch, its optimizer and its callbacks."""
        if self._start is not None:
            self.times.append(time.process_time() - self._start)
        self._following.release()
        self._mine.acquire()
        self._start = time.process_time()


def measure(which: str, steps: int) -> Rates:
    """Let the kinds take turns."""
    gates = [threading.Semaphore(0) for _ in KINDS]
    turns = [Turns(gate, gates[(i + 1) % len(gates)]) for i, gate in enumerate(gates)]

    def run(place: int, folder: str) -> None:
        gates[place].acquire()
        try:
            make(KINDS[place], which, folder, steps, turns[place]).train()
        finally:
            gates[(place + 1) % len(gates)].release()

    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=run, args=(place, folder)) for place in range(len(KINDS))]
        for thread in threads:
            thread.start()
        gates[0].release()
        for thread in threads:
            thread.join()
    length = MODELS[which][1]()[0]["input_ids"].numel()
    return {
        kind: [MODELS[which][2] * length / one for one in turn.times[WARM:]]
        for kind, turn in zip(KINDS, turns, strict=True)
    }


def kept(rates: Rates, kind: str) -> dict[str, float]:
    """The part of the plain Trainer's rate that a kind keeps in the same step: median and quartiles."""
    ratios = [own / plain for own, plain in zip(rates[kind], rates["plain"], strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"median": median, "low": low, "high": high}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="tokens per second with and without scores")
    parser.add_argument("--steps", type=int, default=36)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    neighbours = Neighbours()
    rates = {which: measure(which, options.steps) for which in MODELS}
    parts = {which: {kind: kept(own, kind) for kind in KINDS[1:]} for which, own in rates.items()}
    for which, of in parts.items():
        for kind, part in of.items():
            print(f"{which:12}{kind:26}{part['median']:8.0%}{part['low']:8.0%} to {part['high']:.0%}")
    machine = describe(1)
    versions = {**machine.versions, **{name: version(name) for name in ("transformers", "accelerate")}}
    content = {
        "date": machine.date, "cpu": machine.cpu, "threads": 1, "versions": versions,
        "busy_cores_of_others": neighbours.say(), "steps": options.steps, "tokens_per_second": rates, "kept": parts,
    }  # fmt: skip
    write_json(options.out, content)


if __name__ == "__main__":
    main()
