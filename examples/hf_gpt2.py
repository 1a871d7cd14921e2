"""Hugging Face Trainer: a small GPT-2 on text sources of different learnability, chosen by GMC.

    pip install 'headway-torch[transformers]'
    python examples/hf_gpt2.py [--quick] [--signal gmc|loss|uniform] [--csv sources.csv] [--out FILE.json]

Nothing is downloaded: the model is built from a config, and the texts are made here, letter by letter. "sums" are
additions in words, "stories" come from a small grammar, "recital" is one line over and over, "noise" is random letters.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import headway
from headway.integrations.transformers import SourceTrainer
from headway.selection import Sources, SourceSampler, Tagged
from headway.telemetry import CsvWriter

LETTERS = " .," + string.ascii_lowercase
LENGTH, BATCH = 64, 32
NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
]
PEOPLE, VERBS = ("ada", "max", "the cat", "my aunt"), ("sees", "draws", "hides", "finds")
THINGS, PLACES = ("a key", "the moon", "nine stones", "a letter"), ("at noon", "by the door", "in spring")
QUICK = 60
SIGNALS = {"gmc": headway.GMC(), "loss": headway.Curiosity(), "uniform": headway.Uniform()}


def sums(rng: random.Random) -> str:
    """An addition in words."""
    one, two = rng.randrange(9), rng.randrange(8)
    return f"{NUMBERS[one]} and {NUMBERS[two]} is {NUMBERS[one + two]}. "


def stories(rng: random.Random) -> str:
    """A sentence of a small grammar."""
    return f"{rng.choice(PEOPLE)} {rng.choice(VERBS)} {rng.choice(THINGS)} {rng.choice(PLACES)}. "


def recital(rng: random.Random) -> str:
    """The same line each time."""
    return "round and round the garden, "


def noise(rng: random.Random) -> str:
    """Letters by chance."""
    return "".join(rng.choices(LETTERS, k=16))


SOURCES = {"sums": sums, "stories": stories, "recital": recital, "noise": noise}


class Texts(Dataset[dict[str, Tensor]]):
    """Pieces of text of one length, as numbers of letters.

    Args:
        per_source: pieces of every source.
        seed: where the randomness starts.
    """

    def __init__(self, per_source: int, seed: int = 0) -> None:
        """Write the texts."""
        number = {letter: place for place, letter in enumerate(LETTERS)}
        rng = random.Random(seed)
        pieces = []
        for make in SOURCES.values():
            for _ in range(per_source):
                text = ""
                while len(text) < 2 * LENGTH:
                    text += make(rng)
                start = rng.randrange(LENGTH)
                pieces.append([number[letter] for letter in text[start : start + LENGTH]])
        self.tokens = torch.tensor(pieces)

    def __len__(self) -> int:
        """The pieces of all sources."""
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """One piece; the labels are its letters."""
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def make_model(seed: int = 0) -> GPT2LMHeadModel:
    """A GPT-2 with two layers, built from a config."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(LETTERS), n_positions=LENGTH, n_embd=96, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config)


def make_arguments(folder: str, steps: int, **changes: Any) -> TrainingArguments:
    """Settings of the Trainer."""
    settings: dict[str, Any] = {
        "output_dir": folder, "max_steps": steps, "per_device_train_batch_size": BATCH, "learning_rate": 2e-3,
        "lr_scheduler_type": "constant", "save_strategy": "no", "logging_steps": max(1, steps // 5),
        "report_to": [], "use_cpu": True, "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 0,
    }  # fmt: skip
    return TrainingArguments(**{**settings, **changes})


def losses_by_source(model: GPT2LMHeadModel) -> dict[str, float]:
    """The mean loss per letter on fresh texts of every source."""
    per_source = 50
    tokens = Texts(per_source, seed=1).tokens.split(per_source)
    model.eval()
    with torch.no_grad():
        return {name: float(model(input_ids=own, labels=own).loss) for name, own in zip(SOURCES, tokens, strict=True)}


def main(arguments: list[str] | None = None) -> SourceSampler:
    """Train, and tell what was drawn and what was learned."""
    parser = argparse.ArgumentParser(description="a small GPT-2 on text sources that are chosen by a signal")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} steps")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--signal", choices=SIGNALS, default="gmc", help="what drives the sampler")
    parser.add_argument("--csv", type=Path, help="write telemetry here")
    parser.add_argument("--out", type=Path, help="write the figures of the table as JSON")
    options = parser.parse_args(arguments)
    steps = QUICK if options.quick else options.steps
    torch.set_num_threads(1)
    start = time.perf_counter()
    texts = Texts(per_source=2000)
    sources = Sources.joined(dict.fromkeys(SOURCES, 2000))
    sampler = SourceSampler(sources)
    monitor = headway.SourceMonitor(sources.names, every=20, writers=[CsvWriter(options.csv)] if options.csv else [])
    signals = {signal.name: signal for signal in (SIGNALS[options.signal], SIGNALS["gmc"], headway.NormAll())}
    model = make_model()
    with tempfile.TemporaryDirectory() as folder:
        SourceTrainer(
            model,
            make_arguments(folder, steps),
            train_dataset=Tagged(texts, sources),
            signals=list(signals.values()),
            drive=SIGNALS[options.signal].name,
            sampler=sampler,
            monitor=monitor,
        ).train()
    drawn = {name: count / sum(sampler.counts.values()) for name, count in sampler.counts.items()}
    losses = losses_by_source(model)
    print(f"{'source':10}{'drawn':>8}{'loss per letter':>17}  state")
    for name in SOURCES:
        print(f"{name:10}{drawn[name]:8.0%}{losses[name]:17.2f}  {monitor.states[name]}")
    print(f"{time.perf_counter() - start:.0f} s")
    if options.out:
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        content = {"signal": options.signal, "steps": steps, "batch": BATCH, **versions, "drawn": drawn, "loss": losses}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    return sampler


if __name__ == "__main__":
    main()
