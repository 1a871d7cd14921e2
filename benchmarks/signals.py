"""What a sampler spends on noise, by signal and situation: the evidence for "Which signal when".

    python benchmarks/signals.py [--seeds 3] [--steps 2000] [--out FILE.json]

A perceptron learns from two sources, one that can be learned and one whose labels are drawn anew each time. They are
chosen by `SourceSampler` with its defaults. Three situations:

- apart: the noise has inputs of its own, and the rule takes longer to learn than the run lasts;
- mixed: the noise has inputs like the rule's, so that the model cannot tell which is which;
- learned: the noise has inputs of its own, and what can be learned, the digits, is learned early in the run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway
from benchmarks.common import describe, write_json
from headway.data import load
from headway.selection import Sources, SourceSampler

INPUTS, CLASSES, BATCH, PER_SOURCE = 64, 10, 64, 50_000
SITUATIONS = ("apart", "mixed", "learned")
SIGNALS: dict[str, headway.Signal] = {
    "uniform": headway.Uniform(),
    "loss": headway.Curiosity(),
    "gradient norm": headway.NormAll(),
    "GMC": headway.GMC(),
    "GMC, floor 1e-3": headway.GMC(floor=1e-3),
    "dot product": headway.DotProduct(),
    "loss change": headway.DeltaLoss(groups=2, window=640),
    "learnability": headway.Learnability(groups=2),
}


def make_data(situation: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs [2 N, 65] and the labels of the first half [N]; the second half is noise."""
    noise = torch.randn(PER_SOURCE, INPUTS, generator=generator)
    if situation == "learned":
        images = load("digits").train
        chosen = torch.randint(len(images), (PER_SOURCE,), generator=generator)
        x = (torch.from_numpy(images.floats()).flatten(1) * 2 - 1)[chosen]
        y = torch.from_numpy(images.labels)[chosen]
    else:
        x = torch.randn(PER_SOURCE, INPUTS, generator=generator)
        hidden = torch.tanh(x @ torch.randn(INPUTS, 20, generator=generator))
        y = (hidden @ torch.randn(20, CLASSES, generator=generator)).argmax(1)
    mark = 0.0 if situation == "mixed" else 4.0
    marks = torch.cat([torch.full((PER_SOURCE, 1), -mark), torch.full((PER_SOURCE, 1), mark)])
    return torch.cat([torch.cat([x, noise]), marks], dim=1), y


def run(situation: str, name: str, seed: int, steps: int) -> dict[str, float]:
    """One run: what was spent on the noise, in all and in the last fifth, and the loss of the rule at the end."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    x, y = make_data(situation, generator)
    sources = Sources.joined({"rule": PER_SOURCE, "noise": PER_SOURCE})
    sampler = SourceSampler(sources, seed=seed, num_samples=steps * BATCH)
    model = nn.Sequential(
        nn.Linear(INPUTS + 1, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    meter = headway.Meter(model, SIGNALS[name])
    indices, late = iter(sampler), 0
    for step in range(steps):
        batch = torch.tensor([next(indices) for _ in range(BATCH)])
        source = sources.of(batch)
        chance = torch.randint(CLASSES, (BATCH,), generator=generator)
        labels = torch.where(source == 1, chance, y[batch.clamp(max=PER_SOURCE - 1)])
        losses = F.cross_entropy(model(x[batch]), labels, reduction="none")
        scores = meter.backward(losses, groups=source)
        sampler.update(source, scores.clamp(min=0))  # a source that gets worse is not sought for it
        optimizer.step()
        optimizer.zero_grad()
        late += int(source.sum()) if step >= 0.8 * steps else 0
    with torch.no_grad():
        loss = F.cross_entropy(model(x[:5000]), y[:5000]).item()
    counts = sampler.counts
    return {
        "noise": counts["noise"] / sum(counts.values()),
        "late": late / (BATCH * (steps - round(0.8 * steps))),
        "loss": loss,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what a sampler spends on noise")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000, help="batches of a run")
    parser.add_argument("--out", type=Path, help="write the shares as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    results: dict[str, dict[str, Any]] = {}
    print(f"{'situation':10}{'signal':18}{'on the noise':>13}{'at the end':>12}{'loss of the rule':>18}")
    for situation in SITUATIONS:
        results[situation] = {}
        for name in SIGNALS:
            runs = [run(situation, name, seed, options.steps) for seed in range(options.seeds)]
            own: dict[str, Any] = {key: [one[key] for one in runs] for key in runs[0]}
            results[situation][name] = own
            noise, late, loss = (statistics.fmean(own[key]) for key in ("noise", "late", "loss"))
            print(f"{situation:10}{name:18}{noise:13.0%}{late:12.0%}{loss:18.3f}", flush=True)
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    machine = describe()
    settings = {"seeds": options.seeds, "steps": options.steps, "batch": BATCH}
    content = {"date": machine.date, "versions": machine.versions, "settings": settings, "results": results}
    write_json(options.out, content)


if __name__ == "__main__":
    main()
