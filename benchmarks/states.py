"""How often the states of sources are wrong, on mixtures whose truth is known.

    python benchmarks/states.py [--seeds 3] [--rows 200] [--out FILE.json]

Four mixtures, each with sources in equal parts: the study's groups of digits under its two conditions, curriculum and
noise; algorithmic tasks (a parity that waits on a plateau, a constant, random labels); characters (text, a phrase,
random bytes). The truth comes from what the monitor does not see: the loss on a fixed set, and the rows that follow.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway
from benchmarks.common import describe, write_json
from headway.data import load
from headway.study.protocols.names import groups_of
from headway.telemetry import chance_losses

Examples = tuple[Tensor, Tensor]
"""Inputs [B, ...] and labels [B]."""

BATCH, EVERY, CHECKED = 64, 20, 1000
FLAT, FALLING = 0.005, 0.02
"""A fall per 10 rows, as a share of the highest loss, over 10 or 30 rows: below the first a loss is flat, from the
second on it falls; between them both are right."""
NEAR, BELOW = 0.97, 0.8
"""A loss, as a share of chance: above the first it has not come below chance, from the second on it has."""


@dataclass(frozen=True)
class Task:
    """A mixture of sources.

    Attributes:
        draw: so many examples of each source in turn, by its number.
        model: what learns them.
        names: the sources.
        random: those with nothing to learn but the frequencies of their labels.
        rate: the learning rate.
    """

    draw: Callable[[int, int], Examples]
    model: nn.Module
    names: Sequence[str]
    random: frozenset[str]
    rate: float = 1e-3


def digits(condition: str, generator: torch.Generator) -> Task:
    """The study's groups: labels of a group, fixed for each image ("curriculum") or drawn anew ("noise")."""
    data = load("digits").train
    images, true = torch.from_numpy(data.floats()).flatten(1) * 2 - 1, torch.from_numpy(data.labels)
    groups = [torch.tensor(group) for group in groups_of(10)]
    members = [torch.nonzero(torch.isin(true, group)).squeeze(1) for group in groups]
    fixed = torch.empty_like(true)
    for group, own in zip(groups, members, strict=True):
        fixed[own] = group[torch.randint(len(group), (len(own),), generator=generator)]

    def draw(source: int, count: int) -> Examples:
        group, own = groups[source], members[source]
        picks = own[torch.randint(len(own), (count,), generator=generator)]
        anew = group[torch.randint(len(group), (count,), generator=generator)]
        return images[picks], fixed[picks] if condition == "curriculum" else anew

    names = [f"{len(group)} labels" if len(group) > 1 else "1 label" for group in groups]
    random = frozenset(names[1:]) if condition == "noise" else frozenset()
    return Task(draw, _perceptron(images.shape[1], 10), names, random)


def algorithms(generator: torch.Generator, bits: int = 24, parity: int = 3) -> Task:
    """A sum to learn, a parity that nothing is learned of for long, a constant, and random labels; on signs [B, 24]."""
    names = ["sum", "parity", "constant", "random"]

    def draw(source: int, count: int) -> Examples:
        signs = torch.randint(2, (count, bits), generator=generator)
        labels = [
            signs[:, :7].sum(1),
            signs[:, -parity:].sum(1) % 2,
            torch.full((count,), 3),
            torch.randint(8, (count,), generator=generator),
        ]
        marks = F.one_hot(torch.full((count,), source), len(names)).float()
        return torch.cat([2.0 * signs - 1, marks], 1), labels[source]

    return Task(draw, _perceptron(bits + len(names), 8), names, frozenset(["random"]))


def characters(generator: torch.Generator, context: int = 6) -> Task:
    """The character after six others: of a text, of a phrase that repeats, and of random bytes below 128."""
    text = (Path(__file__).parent.parent / "LICENSE").read_bytes()
    corpora = [
        torch.tensor(list(text)).clamp(max=127),
        torch.tensor(list(b"to be or not to be, " * 500)),
        torch.randint(128, (1_000_000,), generator=generator),
    ]

    def draw(source: int, count: int) -> Examples:
        corpus = corpora[source]
        start = torch.randint(len(corpus) - context, (count, 1), generator=generator)
        window = corpus[start + torch.arange(context + 1)]
        return window[:, :-1], window[:, -1]

    model = nn.Sequential(nn.Embedding(128, 16), nn.Flatten(), *_perceptron(16 * context, 128))
    return Task(draw, model, ["text", "phrase", "bytes"], frozenset(["bytes"]))


def _perceptron(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs))


TASKS: Mapping[str, Callable[[torch.Generator], Task]] = {
    "curriculum": lambda generator: digits("curriculum", generator),
    "noise": lambda generator: digits("noise", generator),
    "algorithms": algorithms,
    "characters": characters,
}


@dataclass(frozen=True)
class Record:
    """A run.

    Attributes:
        rows: what the monitor has written.
        checked: the loss of each source on its fixed set after every row, by name.
        chance: the entropy of its labels.
        random: the sources with nothing to learn.
    """

    rows: Sequence[Mapping[str, Any]]
    checked: Mapping[str, Sequence[float]]
    chance: Mapping[str, float]
    random: frozenset[str]


def train(name: str, seed: int, rows: int) -> Record:
    """Learn a mixture, with a monitor that is given losses and chance."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    task = TASKS[name](generator)
    held = [task.draw(source, CHECKED) for source in range(len(task.names))]
    labels = torch.cat([y for _, y in held])
    chance = chance_losses(labels, torch.arange(len(task.names)).repeat_interleave(CHECKED), task.names)
    meter = headway.Meter(task.model, [headway.GMC(), headway.NormAll()])
    monitor = headway.SourceMonitor(task.names, every=EVERY, chance=chance)
    optimizer = torch.optim.Adam(task.model.parameters(), task.rate)
    each = BATCH // len(task.names)
    source = torch.arange(len(task.names)).repeat_interleave(each)
    checked: dict[str, list[float]] = {own: [] for own in task.names}
    for step in range(rows * EVERY):
        drawn = [task.draw(own, each) for own in range(len(task.names))]
        x, y = torch.cat([x for x, _ in drawn]), torch.cat([y for _, y in drawn])
        losses = F.cross_entropy(task.model(x), y, reduction="none")
        monitor.update(source, meter.backward(losses), losses)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % EVERY == 0:
            with torch.no_grad():
                for own, (inputs, targets) in zip(task.names, held, strict=True):
                    checked[own].append(float(F.cross_entropy(task.model(inputs), targets)))
    meter.detach()
    return Record([dict(row) for row in monitor.rows], checked, chance, task.random)


def truths(record: Record, name: str) -> list[frozenset[str]]:
    """The states that are right for a source in each row."""
    loss = record.checked[name]
    smooth = [statistics.fmean(loss[max(0, row - 3) : row + 4]) for row in range(len(loss))]
    highest, chance = max(smooth), record.chance[name]
    found = []
    for row, level in enumerate(smooth):
        short, long = (_fall(smooth, row, reach) / highest for reach in (5, 15))
        right = {"learning"} if short >= FLAT else set()
        if name in record.random:
            right |= {"hard", "incoherent"}
        else:
            right |= {"learning"} if long >= FLAT else set()
            if min(short, long) < FALLING:
                right |= {"saturated"} if level <= max(NEAR * chance, 0.1 * highest) else set()
                right |= {"hard"} if level > max(BELOW * chance, 0.1 * highest) else set()
        found.append(frozenset(right))
    return found


def _fall(losses: Sequence[float], row: int, reach: int) -> float:
    """The fall around a row, per 10 rows."""
    return (losses[max(0, row - reach)] - losses[min(len(losses) - 1, row + reach)]) * 5 / reach


def errors(states: Sequence[str], right: Sequence[frozenset[str]]) -> tuple[float, int]:
    """The share of wrong states after the first tenth, and the changes of state beyond those of the truth.

    The truth changes where the set that is right shares nothing with the last state that was right.
    """
    start = len(states) // 10
    pairs = list(zip(states, right, strict=True))[start:]
    wrong = statistics.fmean(state not in allowed for state, allowed in pairs)
    changes = sum(before != after for before, after in itertools.pairwise(states[start:]))
    needed, possible = 0, right[start]
    for allowed in right[start:]:
        possible &= allowed
        if not possible:
            needed, possible = needed + 1, allowed
    return wrong, max(0, changes - needed)


def score(record: Record) -> dict[str, tuple[float, int]]:
    """`errors` of every source."""
    found = {}
    for name in record.chance:
        states = [row["state"] for row in record.rows if row["source"] == name]
        found[name] = errors(states, truths(record, name))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="how often states of sources are wrong")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ProcessPoolExecutor(options.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        jobs = {(mixture, seed): pool.submit(train, mixture, seed, options.rows) for mixture in TASKS for seed in seeds}
    results: dict[str, dict[str, Any]] = {}
    for (mixture, _), job in jobs.items():
        for name, (wrong, extra) in score(job.result()).items():
            own = results.setdefault(mixture, {}).setdefault(name, {"wrong": [], "extra_changes": []})
            own["wrong"].append(wrong)
            own["extra_changes"].append(extra)
    for mixture, sources in results.items():
        for name, own in sources.items():
            print(f"{mixture:11} {name:9} wrong {max(own['wrong']):.3f}, extra {max(own['extra_changes'])}")
    machine = describe()
    settings = {"seeds": options.seeds, "first_seed": options.first_seed, "rows": options.rows}
    content = {"date": machine.date, "versions": machine.versions, "settings": settings, "mixtures": results}
    write_json(options.out, content)


if __name__ == "__main__":
    main()
