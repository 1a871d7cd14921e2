"""The factors by which the preset `paper` multiplies NormLast, NormAll and DeltaLoss.

    python benchmarks/calibrate.py [--data-dir DIR] [--epochs 10] [--out benchmarks/results/calibration.json]

The paper's text says that these signals have "normalizing constants that were manually tuned to maintain comparable
intrinsic-reward magnitudes", and does not give them. Here they follow from a rule. In each of the four conditions a
model is trained by the preset `paper` on uniform draws, which no signal changes, and all four signals score every batch
without factors. A signal's factor in one condition is the mean size of Curiosity's scores over that of its own; the
constant is the geometric mean over the four conditions, with two digits.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.common import write_json
from headway.data import load
from headway.meter import Meter
from headway.study.controlled_trial import Trial
from headway.study.image_environment import CONDITIONS
from headway.study.protocols.classification import Protocol
from headway.study.signals import SIGNALS

FACTORS = {"norm_last": "norm_last_scale", "norm_all": "norm_all_scale", "delta_loss": "delta_scale"}
"""The signals that have a factor, and its field in the protocol."""


def sizes(dataset: str, condition: str, epochs: int, data_dir: Path | None) -> dict[str, float]:
    """The mean absolute score of Curiosity and of each signal without its factor, over all batches."""
    plain = Protocol.paper().override(dict.fromkeys(FACTORS.values(), "1.0"))
    trial = Trial(load(dataset, data_dir), condition, "uniform", plain, seed=0)
    names = ("curiosity", *FACTORS)
    meter = Meter(trial.model, [SIGNALS.find(name)(plain, trial.environment.arms) for name in names])
    optimizer = torch.optim.Adam(trial.model.parameters(), plain.learning_rate)
    totals, batches = dict.fromkeys(names, 0.0), epochs * trial.batches
    for batch in range(1, batches + 1):
        arms = trial.actor.draw(plain.batch_size)
        pixels, labels = trial.environment.draw(arms)
        losses = F.cross_entropy(trial.model(pixels), labels, reduction="none")
        scores = meter.backward(losses, groups=arms)
        optimizer.step()
        optimizer.zero_grad()
        for name in names:
            totals[name] += float(scores[name].abs().mean())
        if batch % trial.batches == 0:
            meter.end_epoch()
    meter.detach()
    return {name: total / batches for name, total in totals.items()}


def two_digits(number: float) -> float:
    """A number with two significant digits."""
    return float(f"{number:.1e}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="the factors of the preset paper")
    parser.add_argument("--data-dir", type=Path, help="where datasets are looked for first")
    parser.add_argument("--epochs", type=int, default=10, help="length of each training")
    parser.add_argument("--out", type=Path, help="write all sizes and the constants as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        f"{condition} {dataset}": sizes(dataset, condition, options.epochs, options.data_dir)
        for dataset in ("mnist", "cifar10")
        for condition in CONDITIONS
    }
    ratios = {name: [each["curiosity"] / each[name] for each in found.values()] for name in FACTORS}
    constants = {
        FACTORS[name]: two_digits(math.exp(sum(map(math.log, values)) / len(values))) for name, values in ratios.items()
    }
    for place, (setting, each) in enumerate(found.items()):
        print(f"{setting:20}" + "".join(f"{name:>12} {each[name]:.3g}" for name in each))
        print(f"{'':20}" + "".join(f"{name:>12} x {values[place]:.3g}" for name, values in ratios.items()))
    print(constants)
    content = {"epochs": options.epochs, "torch": torch.__version__, "sizes": found, "constants": constants}
    write_json(options.out, content)


if __name__ == "__main__":
    main()
