"""Signals that look at the curve of each group over time: what is left to learn, and how fast a score changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import SignalError
from headway.moments import Decay
from headway.signals.base import Batch, Plan, Scope, Signal, Values
from headway.signals.losses import GroupSignal, groups_of

PER_OCTAVE, OCTAVES = 4, 40
"""A curve is kept as means over bins: so many for each doubling of the number of samples."""

EXPONENTS = tuple(step / 20 for step in range(2, 41))
"""The exponents that a power law may have. Not a tensor: torch must not compute before a run has chosen how."""

LEAST_BINS = 6
"""A power law is fitted to no fewer points."""


class PowerLaw(NamedTuple):
    """L(n) = irreducible + height * n^-exponent for each group, each field [groups]."""

    irreducible: Tensor
    height: Tensor
    exponent: Tensor

    def slope(self, n: Tensor) -> Tensor:
        """The fall of the loss with one more sample, -dL/dn, at n samples [groups]."""
        return self.exponent * self.height * n.clamp(min=1).pow(-self.exponent - 1)


def fit_power_law(n: Tensor, losses: Tensor, known: Tensor) -> PowerLaw:
    """Least squares over the points of each group, by a search over the exponent; height and offset stay above 0.

    Args:
        n: numbers of samples [groups, points].
        losses: mean losses there [groups, points].
        known: which of the points there are [groups, points]. A group with fewer than `LEAST_BINS` gets zeros.
    """
    exponents = torch.tensor(EXPONENTS, dtype=torch.float64, device=n.device)
    weight = known.double()
    count = weight.sum(1, keepdim=True).clamp(min=1)
    x = n.clamp(min=1).double().unsqueeze(0).pow(-exponents.view(-1, 1, 1))  # [exponents, groups, points]
    y = losses.double()
    x_mean, y_mean = (x * weight).sum(2, keepdim=True) / count, (y * weight).sum(1, keepdim=True) / count
    cross = ((x - x_mean) * (y - y_mean) * weight).sum(2)
    height = (cross / ((x - x_mean).square() * weight).sum(2).clamp(min=1e-300)).clamp(min=0)  # [exponents, groups]
    offset = y_mean.squeeze(1) - height * x_mean.squeeze(2)
    through_zero = (x * y * weight).sum(2) / (x.square() * weight).sum(2).clamp(min=1e-300)
    height, offset = torch.where(offset < 0, through_zero, height), offset.clamp(min=0)
    error = ((offset.unsqueeze(2) + height.unsqueeze(2) * x - y).square() * weight).sum(2)
    best = error.argmin(0, keepdim=True)
    enough = known.sum(1) >= LEAST_BINS
    chosen = (offset.gather(0, best)[0], height.gather(0, best)[0], exponents[best[0]])
    return PowerLaw(*(torch.where(enough, value, 0.0) for value in chosen))


class Curves:
    """The mean loss of each group over the number of its samples so far, in bins of equal width on a log scale.

    Args:
        memory: where the tensors are kept, `losses`, `places` and `counts` [groups, bins] and `seen` [groups].
        groups: how many there are.
        device: where they lie.
    """

    def __init__(self, memory: dict[str, Tensor], groups: int, device: torch.device | None = None) -> None:
        self.memory = memory
        for key in ("losses", "places", "counts"):
            memory.setdefault(key, torch.zeros(groups, PER_OCTAVE * OCTAVES, dtype=torch.float64, device=device))
        memory.setdefault("seen", torch.zeros(groups, dtype=torch.float64, device=device))

    def add(self, sums: Tensor, counts: Tensor) -> None:
        """Take in a batch: the sum of losses and the number of samples of each group, [groups] each."""
        memory, counts = self.memory, counts.double()
        place = memory["seen"] + (counts + 1) / 2  # the middle of the batch's samples
        bins = (PER_OCTAVE * place.clamp(min=1).log2()).long().clamp(max=PER_OCTAVE * OCTAVES - 1).unsqueeze(1)
        memory["losses"].scatter_add_(1, bins, sums.double().unsqueeze(1))
        memory["places"].scatter_add_(1, bins, (place * counts).unsqueeze(1))
        memory["counts"].scatter_add_(1, bins, counts.unsqueeze(1))
        memory["seen"] += counts

    def fit(self) -> PowerLaw:
        """The power law of each group."""
        counts = self.memory["counts"]
        divisor = counts.clamp(min=1)
        return fit_power_law(self.memory["places"] / divisor, self.memory["losses"] / divisor, counts > 0)


@dataclass(frozen=True, kw_only=True)
class Learnability(GroupSignal):
    """The loss above what will remain of it: L(x) minus the irreducible loss of the sample's group.

    The irreducible loss is the constant e of a power law L(n) = e + b n^-a that is fitted to the group's own curve, n
    the samples of the group so far, as in the scaling laws of ADO (Jiang et al., 2024). No reference model is needed.
    Before there are enough points, e is zero and the score is the loss.

    Attributes:
        refit: batches between two fits.
    """

    name: str = "learnability"
    refit: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.refit < 1:
            raise SignalError(f"expected refit of at least 1, got {self.refit}")

    def init(self, scope: Scope) -> None:
        """Empty curves."""
        Curves(scope.memory, self.groups, next(iter(scope.parameters.values())).device)
        scope.remember("irreducible", self.groups)
        scope.memory["batches"] = torch.zeros((), dtype=torch.int64)

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """Loss minus irreducible loss, not below zero."""
        least = scope.memory["irreducible"][groups_of(batch, self.groups)]
        return (batch.losses - least.to(batch.losses)).clamp(min=0) * self.scale

    def observe(self, scope: Scope, batch: Batch) -> None:
        """Add the batch to the curves, and fit them anew where it is time to."""
        sums, counts = group_sums(batch.losses, groups_of(batch, self.groups), self.groups)
        curves = Curves(scope.memory, self.groups)
        curves.add(sums, counts)
        scope.memory["batches"] += 1
        if int(scope.memory["batches"]) % self.refit == 0:
            scope.memory["irreducible"].copy_(curves.fit().irreducible)


@dataclass(frozen=True, kw_only=True)
class Rate(GroupSignal):
    """Any signal as a rate: how fast its mean over the sample's group changes.

    The rate is the slope of a straight line through the group's mean scores in its last batches: learning progress in
    the sense of Oudeyer et al. (2007), and of Matiisen et al. (2017) for the loss. It is zero until there are three.

    Attributes:
        of: the signal.
        window: batches with samples of the group.
        absolute: take the slope without its sign; otherwise a falling score has a positive rate.
        name: the key of the scores where a meter has several signals; "rate_of_" and that of the signal unless given.
        where: taken from the signal.
    """

    of: Signal = field(kw_only=False)
    window: int = 20
    absolute: bool = True
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.of, Signal):
            raise SignalError(f"expected a signal such as headway.Curiosity(), got {self.of!r}")
        super().__post_init__()
        if self.window < 3:
            raise SignalError(f"expected a window from 3, got {self.window}")
        object.__setattr__(self, "name", self.name or f"rate_of_{self.of.name}")
        object.__setattr__(self, "where", self.of.where)

    @property
    def decay(self) -> Decay | None:
        """The moments that the signal needs."""
        return self.of.decay

    def init(self, scope: Scope) -> None:
        """An empty window beside the signal's own memory."""
        self.of.init(scope)
        scope.remember("rate.window", self.groups, self.window)
        scope.remember("rate.seen", self.groups, dtype=torch.int64)

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """What the signal needs."""
        return self.of.reductions(scope, batch)

    def validate(self, batch: Batch) -> None:
        """Check the groups, and what the signal checks."""
        super().validate(batch)
        self.of.validate(batch)

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """Every sample has the rate of its group before this batch."""
        scope.pending["rate.latest"] = self.of.scores(scope, batch, values)
        fall = -slopes(scope.memory["rate.window"], scope.memory["rate.seen"]) * self.scale
        rate = fall.abs() if self.absolute else fall
        return rate[groups_of(batch, self.groups)].to(batch.losses)

    def observe(self, scope: Scope, batch: Batch) -> None:
        """Append the mean score of each group in the batch to its window."""
        self.of.observe(scope, batch)
        latest = scope.pending.get("rate.latest")
        if latest is None:
            return  # a batch that was not scored
        sums, counts = group_sums(latest, groups_of(batch, self.groups), self.groups)
        window, had = scope.memory["rate.window"], counts > 0
        shifted = torch.cat([window[:, 1:], (sums / counts.clamp(min=1)).unsqueeze(1)], dim=1)
        window.copy_(torch.where(had.unsqueeze(1), shifted, window))
        scope.memory["rate.seen"] += had

    def end_epoch(self, scope: Scope) -> None:
        """Tell the signal."""
        self.of.end_epoch(scope)


def group_sums(values: Tensor, groups: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The sum of the finite values [B] of each group and how many there are: [groups] each, in float64."""
    finite = values.isfinite()
    sums, counts = values.new_zeros(2, number, dtype=torch.float64)
    sums.index_add_(0, groups, torch.where(finite, values, 0.0).double())
    counts.index_add_(0, groups, finite.double())
    return sums, counts


def slopes(window: Tensor, seen: Tensor) -> Tensor:
    """The slope of the least-squares line through the latest entries of each row: [groups, w], [groups] -> [groups].

    Args:
        window: entries, the latest last.
        seen: how many of them there are; zero is the slope of fewer than three.
    """
    width = window.shape[1]
    time = torch.arange(width, dtype=torch.float64, device=window.device)
    known = (time >= width - seen.clamp(max=width).unsqueeze(1)).double()
    count = known.sum(1, keepdim=True).clamp(min=1)
    x = (time - (time * known).sum(1, keepdim=True) / count) * known
    y = (window - (window * known).sum(1, keepdim=True) / count) * known
    return torch.where(seen >= 3, (x * y).sum(1) / x.square().sum(1).clamp(min=math.ulp(1.0)), 0.0)
