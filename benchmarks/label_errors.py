"""Which score finds wrong labels? Digits of which some labels were changed, and the area under the ROC curve.

    python benchmarks/label_errors.py [--seeds 5] [--epochs 20] [--flipped 0.4] [--out FILE.json]

A score that is higher for all samples with a changed label than for all others has an area of 1; one that knows nothing
has 0.5. The scores of a sample are averaged over the epochs. The margin is the highest logit among the other classes
minus that of the label.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway
from benchmarks.common import describe, write_json
from headway.data import load

CLASSES, BATCH = 10, 32


def area(scores: Tensor, positive: Tensor) -> float:
    """The area under the ROC curve: how often a positive sample scores above a negative one, ties counting half."""
    high, low = scores[positive].unsqueeze(1), scores[~positive].unsqueeze(0)
    return ((high > low).double() + 0.5 * (high == low).double()).mean().item()


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """The highest logit among the other classes minus that of the label: [B, classes], [B] -> [B]."""
    own = logits.gather(1, labels.unsqueeze(1))
    others = logits.scatter(1, labels.unsqueeze(1), -torch.inf)
    return others.amax(1) - own.squeeze(1)


def run(seed: int, epochs: int, flipped: float) -> tuple[dict[str, float], float]:
    """Train a perceptron on labels of which some are wrong.

    Returns:
        The area of every score, and how many times the mean GMC of clean labels that of wrong ones is.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    images = load("digits").train
    x = torch.from_numpy(images.floats()).flatten(1) * 2 - 1
    y = torch.from_numpy(images.labels).clone()
    wrong = torch.rand(len(y), generator=generator) < flipped
    y[wrong] = (y[wrong] + torch.randint(1, CLASSES, (int(wrong.sum()),), generator=generator)) % CLASSES
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    meter = headway.Meter(model, [headway.GMC(), headway.NormAll(), headway.Curiosity()])
    sums = {name: torch.zeros(len(y)) for name in ("margin", "loss", "gradient norm", "GMC")}
    for _ in range(epochs):
        for batch in torch.randperm(len(y), generator=generator).split(BATCH):
            logits = model(x[batch])
            scores = meter.backward(F.cross_entropy(logits, y[batch], reduction="none"))
            sums["margin"][batch] += margins(logits.detach(), y[batch])
            sums["loss"][batch] += scores["curiosity"]
            sums["gradient norm"][batch] += scores["norm_all"]
            sums["GMC"][batch] += scores["gmc"]
            optimizer.step()
            optimizer.zero_grad()
    ratio = sums["GMC"][wrong].mean() / sums["GMC"][~wrong].mean()
    return {name: area(own, wrong) for name, own in sums.items()}, ratio.item()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="which score finds wrong labels")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--flipped", type=float, default=0.4, help="the share of wrong labels")
    parser.add_argument("--out", type=Path, help="write the areas as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [run(seed, options.epochs, options.flipped) for seed in range(options.seeds)]
    areas = {name: [one[name] for one, _ in results] for name in results[0][0]}
    ratios = [ratio for _, ratio in results]
    for name, own in areas.items():
        print(f"{name:14} {statistics.fmean(own):.3f}   from {min(own):.3f} to {max(own):.3f}")
    print(f"the mean GMC of wrong labels is {statistics.fmean(ratios):.1f} times that of clean ones")
    machine = describe()
    settings = {"seeds": options.seeds, "epochs": options.epochs, "flipped": options.flipped}
    content = {"date": machine.date, "versions": machine.versions, "settings": settings, "areas": areas}
    write_json(options.out, {**content, "gmc_of_wrong_to_clean": ratios})


if __name__ == "__main__":
    main()
