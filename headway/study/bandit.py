"""A bandit whose scores can be worked out by hand: what each signal says of learnable, learned and noisy arms.

Every arm k predicts one number w_k. A sample of it is y = target - noise, its loss is (w_k - y)^2 / 2, so that its
gradient is g = distance + noise, with distance = w_k - target. A batch has one sample of each arm, and the arm takes a
step of its own rate: distance <- (1 - rate) distance - rate * noise. That is a linear recursion, and so are the
moments; `expect` follows its means and covariances exactly, `simulate` runs the real meter.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.errors import ProtocolError
from headway.meter import Meter
from headway.signals import GMC, Curiosity, NormAll


@dataclass(frozen=True)
class Arm:
    """Something to learn."""

    name: str  # what it is called
    distance: float  # how far the prediction is from the target at first
    rate: float  # the share of the distance that a step takes away
    noise: float  # the standard deviation of the samples


@dataclass(frozen=True)
class BanditConfig:
    """A bandit, and the signals that score it."""

    arms: tuple[Arm, ...] = (
        Arm("learned quickly", 1.0, 0.01, 0.0),
        Arm("learned slowly", 1.0, 0.0005, 0.0),
        Arm("learned already", 0.0, 0.01, 0.0),
        Arm("pure noise", 0.0, 0.01, 1.0),
    )
    steps: int = 4000  # batches
    copies: int = 100  # independent copies of every arm, to average over
    beta: float = 0.999  # decay rate of both moments
    learned: float = 0.01  # the distance at which an arm counts as learned: the floor under v is its square
    gate_level: float = 4.0  # k of the hard noise gate

    def to_dict(self) -> dict[str, object]:
        """All fields, for a JSON file."""
        return dataclasses.asdict(self)


def simulate(config: BanditConfig, generator: torch.Generator) -> dict[str, Tensor]:
    """Run the bandit through the meter: signal -> mean score of each arm at each step [steps, arms].

    Couplings are given in the unit in which a steady drift without noise scores 1.
    """
    arms, copies = config.arms, config.copies
    number = len(arms) * copies
    distance, rate, noise = (
        torch.tensor([getattr(arm, field) for arm in arms], dtype=torch.float64).repeat_interleave(copies)
        for field in ("distance", "rate", "noise")
    )
    table = nn.Embedding(number, 1, dtype=torch.float64)
    with torch.no_grad():
        table.weight.copy_(distance.unsqueeze(1))
    # A parameter's batch gradient is its own divided by the number of arms, and so is the unit of the floor.
    floor = (config.learned / number) ** 2
    meter = Meter(
        table,
        [
            Curiosity(),
            NormAll(name="norm"),
            GMC(beta=config.beta, floor=floor),
            GMC(beta=config.beta, floor=floor, gate="hard", gate_level=config.gate_level, name="gmc_hard"),
        ],
    )
    everyone = torch.randperm(number, generator=generator)  # not 0, 1, 2, ...: these would pass for positions
    rows: dict[str, list[Tensor]] = {}
    for _ in range(config.steps):
        samples = noise * torch.randn(number, generator=generator, dtype=torch.float64)
        losses = 0.5 * (table(everyone).squeeze(1) - samples[everyone]) ** 2
        scores = meter.backward(losses)
        for name, values in scores.items():
            unit = math.sqrt(number) / number if name.startswith("gmc") else 1.0
            by_arm = torch.empty_like(values).index_copy_(0, everyone, values).view(len(arms), copies).mean(1)
            rows.setdefault(name, []).append(by_arm * unit)
        with torch.no_grad():
            gradient = table.weight.grad
            assert gradient is not None
            table.weight -= (rate * number).unsqueeze(1) * gradient
        table.weight.grad = None
    meter.detach()
    return {name: torch.stack(values) for name, values in rows.items()}


def expect(config: BanditConfig) -> Mapping[str, Tensor]:
    """What the scores are on average, by calculation: "curiosity" and "gmc" [steps, arms].

    Distance x and momentum m are jointly normal; their means and covariances follow from x' = (1 - r) x - r e and
    m' = b m + (1 - b) (x + e), with e the noise. The coupling is E|g m| / v, with v replaced by its own mean,
    whose relative deviation is small: of the order of sqrt((1 - b) / (1 + b)).
    """
    for arm in config.arms:
        if arm.noise and arm.distance:
            raise ProtocolError(
                f"expected arms with noise or with a distance, got {arm.name!r} with both; simulate() takes them"
            )
    columns = [_expect_arm(arm, config) for arm in config.arms]
    return {name: torch.stack([column[name] for column in columns], dim=1) for name in ("curiosity", "gmc")}


def _expect_arm(arm: Arm, config: BanditConfig) -> dict[str, Tensor]:
    b, r, variance = config.beta, arm.rate, arm.noise**2
    x, m, v = arm.distance, 0.0, 0.0  # means
    xx, xm, mm = 0.0, 0.0, 0.0  # covariances
    curiosity, coupling = [], []
    for step in range(config.steps):
        square = x * x + xx + variance  # E[g^2]
        curiosity.append(0.5 * square)
        correction = 1 - b**step if step else 1.0
        second = max(v / correction, config.learned**2)
        coupling.append(mean_absolute_product(x, m, xx + variance, mm, xm) / correction / second)
        v = b * v + (1 - b) * square
        mm = b * b * mm + 2 * b * (1 - b) * xm + (1 - b) ** 2 * (xx + variance)
        xm = (1 - r) * (b * xm + (1 - b) * xx) - r * (1 - b) * variance
        xx = (1 - r) ** 2 * xx + r * r * variance
        x, m = (1 - r) * x, b * m + (1 - b) * x
    return {"curiosity": torch.tensor(curiosity), "gmc": torch.tensor(coupling)}


def mean_absolute_product(x: float, y: float, xx: float, yy: float, xy: float) -> float:
    """E|X Y| of jointly normal X and Y, if both have mean zero, or one of them is a constant zero, or neither varies.

    With mean zero: 2 / pi * sqrt(xx yy) * (sqrt(1 - c^2) + c arcsin c), with c their correlation.
    """
    deviation = math.sqrt(xx * yy)
    if deviation == 0:
        return abs(x * y)
    c = max(-1.0, min(1.0, xy / deviation))
    return 2 / math.pi * deviation * (math.sqrt(1 - c * c) + c * math.asin(c))
