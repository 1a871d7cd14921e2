"""What the coupling says about sources.

    python benchmarks/coupling.py [--seeds 3] [--steps 3000] [--out FILE.json]

A perceptron learns from four sources in equal parts, each with inputs of its own: digits, which it learns; a rule that
takes longer than the run lasts; noise, with labels that are drawn anew each time; and a constant, learned at once.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway
from benchmarks.common import describe, write_json
from headway.data import load

NAMES = ("digits", "rule", "noise", "constant")
INPUTS, CLASSES, BATCH = 64, 10, 96


def make_batch(
    images: Tensor, labels: Tensor, rule: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [B, 68], labels [B] and sources [B], the sources in turn."""
    source = torch.arange(BATCH) % len(NAMES)
    chosen = torch.randint(len(images), (BATCH,), generator=generator)
    points = torch.randn(BATCH, INPUTS, generator=generator)
    chance = torch.randint(CLASSES, (BATCH,), generator=generator)
    ruled = (torch.tanh(points @ rule[:, :20]) @ rule[:20, 20:]).argmax(1)
    x = torch.where((source == 0).unsqueeze(1), images[chosen], points)
    y = torch.stack([labels[chosen], ruled, chance, torch.full_like(chance, 3)]).gather(0, source.unsqueeze(0))[0]
    marks = 4.0 * F.one_hot(source, len(NAMES))
    return torch.cat([x, marks], dim=1), y, source


def run(seed: int, steps: int) -> list[dict[str, Any]]:
    """The rows of a monitor."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    data = load("digits").train
    images, labels = torch.from_numpy(data.floats()).flatten(1) * 2 - 1, torch.from_numpy(data.labels)
    rule = torch.randn(INPUTS, 20 + CLASSES, generator=generator)
    model = nn.Sequential(
        nn.Linear(INPUTS + len(NAMES), 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    meter = headway.Meter(model, [headway.GMC(), headway.NormAll()])
    monitor = headway.SourceMonitor(NAMES)
    for _ in range(steps):
        x, y, source = make_batch(images, labels, rule, generator)
        losses = F.cross_entropy(model(x), y, reduction="none")
        monitor.update(source, meter.backward(losses), losses)
        optimizer.step()
        optimizer.zero_grad()
    return [dict(row) for row in monitor.rows]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what the coupling says about sources")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = [run(seed, options.steps) for seed in range(options.seeds)]
    results: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        last = [row for rows in runs for row in rows if row["source"] == name and row["step"] == options.steps]
        results[name] = {
            "loss": statistics.fmean(row["loss"] for row in last),
            "gradient_norm": statistics.fmean(row["gradient_norm"] for row in last),
            "coupling": [row["coupling"] for row in last],
        }
        own = results[name]
        couplings = ", ".join(f"{value:.4f}" for value in own["coupling"])
        print(f"{name:9} loss {own['loss']:.2f}, norm {own['gradient_norm']:.0f}, coupling {couplings}")
    machine = describe()
    settings = {"seeds": options.seeds, "steps": options.steps}
    content = {"date": machine.date, "versions": machine.versions, "settings": settings, "sources": results}
    write_json(options.out, content)


if __name__ == "__main__":
    main()
