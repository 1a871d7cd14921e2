"""Gradient-momentum coupling and its relatives.

All of them compare a sample's gradient g with the momentum of learning m, in the norm that the second
moment v suggests; they differ in where the absolute value stands.

    GMC         sum_i |g_i m_i / v_i| / sqrt(d)
    DotProduct  |sum_i g_i m_i / v_i| / sqrt(d)
    Cosine      |cos(g, m)|
    Projection  |g . m| / |m|
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal, get_args

import torch
from torch import Tensor

from headway.errors import SignalError, warn
from headway.grads import Reduction
from headway.moments import Decay, Moments
from headway.signals.base import BaseSignal, Batch, Plan, Scope, Values, check_choice, total

Over = Literal["all", "tensor"]
"""Sum over all parameters before the absolute value, or over each parameter tensor apart."""

Against = Literal["m", "m/v"]
"""The momentum itself, or divided by the second moment."""

Gate = Literal["none", "hard", "soft"]
"""How a parameter counts whose momentum may be noise, see `GMC`."""

FloorUnit = Literal["sample", "batch", "relative"]
"""What a floor under v is measured in, see `MomentSignal`."""

FLOOR_CHECKS = (100, 1000)
"""Updates of the moments after which a signal looks how many parameters are under its floor."""

_GATE_LEVELS = {"hard": 4.0, "soft": 1.0}


def gate_share(m: Tensor, v: Tensor, level: Tensor | float, gate: Gate) -> Tensor:
    """The share of each momentum that a gate lets through: 0 or 1 for the hard one, 0 to 1 for the soft one.

    Args:
        m: first moments.
        v: second moments, of the same shape.
        level: the noise level times k, a number.
        gate: "hard" or "soft".
    """
    square = m.square()
    noise = v * (level.to(v) if isinstance(level, Tensor) else level)
    if gate == "hard":
        return noise.lt_(square)
    # 1 - noise / m^2 where it is positive. Where both are zero, m has nothing to let through: tiny / tiny = 1.
    tiny = torch.finfo(m.dtype).tiny
    return noise.clamp_(min=tiny).div_(square.clamp_(min=tiny)).neg_().add_(1).clamp_(min=0)


def _rates(beta: float | Sequence[float]) -> tuple[float, float]:
    """The decay rates of m and v."""
    rates = tuple(beta) if isinstance(beta, (tuple, list)) else (beta, beta)
    if len(rates) != 2 or not all(isinstance(rate, Real) for rate in rates):
        raise SignalError(f"expected beta to be a decay rate, or a pair for m and v, got {beta!r}")
    return rates


@dataclass(frozen=True, kw_only=True)
class MomentSignal(BaseSignal):
    """What signals with moments have in common.

    Attributes:
        beta: decay rate of both moments, or a pair for m and v. 0.999 looks back about 1,000 batches.
        bias_correction: divide m and v by 1 - beta^t before use.
        floor: the least value of v. A parameter whose v is smaller counts with the floor instead.
        unit: the floor's unit. "sample": the square of a sample's own gradient. "batch": the square of its gradient
            divided by the batch size B, as a mean-reduced loss gives it, so that the floor in a sample's own unit is
            floor * B^2. "relative": the mean of v over the scored parameters, which leaves the scores as they are
            when all losses are multiplied by a constant.
    """

    beta: float | tuple[float, float] | list[float] = 0.999
    bias_correction: bool = True
    floor: float = 1e-8
    unit: FloorUnit = "sample"
    _decay: Decay = field(init=False, repr=False, compare=False, default=Decay())

    def __post_init__(self) -> None:
        check_choice("unit", self.unit, get_args(FloorUnit))
        if not self.floor > 0:
            raise SignalError(f"expected a floor above 0, got {self.floor}")
        m, v = _rates(self.beta)
        if isinstance(self.beta, list):  # as a TOML or JSON file gives a pair; a signal can be hashed
            object.__setattr__(self, "beta", (m, v))
        object.__setattr__(self, "_decay", Decay(m, v, self.bias_correction))

    @property
    def decay(self) -> Decay:
        """The moments that the signal compares with."""
        return self._decay

    def floor_for(
        self, samples: int, moments: Moments | None = None, names: Iterable[str] | None = None
    ) -> Tensor | float:
        """The floor in the unit of a sample's own gradient.

        Args:
            samples: B.
            moments: what a relative floor relates to.
            names: the scored parameters, if not all that there are moments of.
        """
        if self.unit == "relative":
            if moments is None:
                raise SignalError("expected the moments that a relative floor relates to, got none")
            return self.floor * moments.mean_v(names)
        return self.floor if self.unit == "sample" else self.floor * samples**2

    def refine(self, scope: Scope, ratios: dict[str, Tensor]) -> None:
        """Change freshly made ratios in place; a signal that does not leaves them as they are."""

    def ratios(self, scope: Scope, batch: Batch, absolute: bool) -> dict[str, Tensor]:
        """m / max(v, floor) of every parameter, kept until the moments change."""
        moments = scope.require_moments()
        version = (moments.version, batch.joined if self.unit == "batch" else 0)
        if scope.version != version or scope.ratios is None:
            floor = self.floor_for(batch.joined, moments, scope.parameters)
            scope.ratios = moments.ratios(scope.parameters, floor, scope.ratios, absolute)
            self.refine(scope, scope.ratios)
            scope.version = version
            if scope.warns and moments.version in FLOOR_CHECKS:
                self._warn_of_floor(scope, moments, floor)
        return scope.ratios

    def _warn_of_floor(self, scope: Scope, moments: Moments, floor: Tensor | float) -> None:
        """Say so, once, if the floor stands in for nearly every second moment."""
        share = float(moments.share_under(floor, scope.parameters))
        if share > 0.99:
            scope.warns = False
            warn(
                f"{self.name}: {share:.1%} of the parameters have a second moment under the floor ({self.floor:g}, in "
                f"the unit {self.unit!r}), so that scores are divided by a constant there; choose a smaller floor, or "
                f"one that follows the gradients, such as floor=0.1, unit='relative'"
            )


@dataclass(frozen=True, kw_only=True)
class GMC(MomentSignal):
    """Gradient-momentum coupling: sum_i |g_i m_i / max(v_i, floor)| / sqrt(d).

    High where a sample's gradient g acts on parameters whose gradient has a lasting direction, whichever way it points:
    m is the running mean of the batch gradient, v that of its square, d the number of scored parameters. The first
    batch scores zero, because there is no running mean yet.

    Noise has a running mean too: where gradients are pure noise, m^2 is v times `Moments.noise_level()` on average.
    A gate lets a parameter count only as far as its m exceeds that level n v:

        hard    m counts where m^2 > k n v, and not at all elsewhere
        soft    m (1 - k n v / m^2), or zero where that is negative: positive-part James-Stein shrinkage, applied to
                each parameter alone (also called the non-negative garrote)

    Attributes:
        gate: "none", "hard" or "soft".
        gate_level: k; 4 for the hard gate (two standard deviations) and 1 for the soft one unless given.
    """

    name: str = "gmc"
    gate: Gate = "none"
    gate_level: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gate not in get_args(Gate):
            raise SignalError(f"expected a gate out of {', '.join(get_args(Gate))}, got {self.gate!r}")
        if self.gate_level is not None and not 0 < self.gate_level < float("inf"):
            raise SignalError(f"expected a gate_level above 0, got {self.gate_level}")
        if self.gate_level is not None and self.gate == "none":
            raise SignalError(f"expected a gate, hard or soft, with a gate_level, got {self.gate_level} without one")

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """L1 norms weighted with |m| / v, as far as the gate lets them through."""
        return scope.reductions("coupling", "l1", self.ratios(scope, batch, absolute=True))

    def refine(self, scope: Scope, ratios: dict[str, Tensor]) -> None:
        """Apply the gate."""
        if self.gate == "none":
            return
        moments = scope.require_moments()
        level = moments.noise_level() * (self.gate_level or _GATE_LEVELS[self.gate])
        for name, ratio in ratios.items():
            ratio.mul_(gate_share(moments.m[name], moments.v[name], level, self.gate))

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """The sum over all parameters, divided by sqrt(d)."""
        return total(values["coupling"]) * (self.scale / scope.size**0.5)


@dataclass(frozen=True, kw_only=True)
class DotProduct(MomentSignal):
    """The coupling summed with its sign first: |sum_i g_i m_i / max(v_i, floor)| / sqrt(d).

    Attributes:
        over: "all" sums over all parameters before the absolute value; "tensor" takes the absolute value of
            each parameter tensor's sum, and adds them.
    """

    name: str = "dot"
    over: Over = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("over", self.over, get_args(Over))

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """Dot products with m / v."""
        return scope.reductions("dot", "dot", self.ratios(scope, batch, absolute=False))

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """The absolute value of the sum, or the sum of absolute values."""
        dots = values["dot"]
        if self.over == "tensor":
            summed = total({name: value.abs() for name, value in dots.items()})
        else:
            summed = total(dots).abs()
        return summed * (self.scale / scope.size**0.5)


@dataclass(frozen=True, kw_only=True)
class Cosine(MomentSignal):
    """The angle between gradient and momentum: |cos(g, m)|.

    Attributes:
        against: "m", or "m/v" for the momentum divided by max(v, floor).
        over: "all" for one angle in the space of all parameters; "tensor" for one angle per parameter
            tensor, added and divided by sqrt(d).
    """

    name: str = "cosine"
    against: Against = "m"
    over: Over = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("against", self.against, get_args(Against))
        check_choice("over", self.over, get_args(Over))

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """Dot products with the direction, and squared norms."""
        directions = self._directions(scope, batch)
        return {
            "dot": {name: Reduction("dot", direction) for name, direction in directions.items()},
            "sq": {name: Reduction("sq") for name in directions},
        }

    def _directions(self, scope: Scope, batch: Batch) -> dict[str, Tensor]:
        if self.against == "m":
            moments = scope.require_moments()
            return {name: moments.m[name] for name in scope.parameters}
        return self.ratios(scope, batch, absolute=False)

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """|g . m| / (|g| |m|), zero where either vanishes."""
        squares = scope.squares(self._directions(scope, batch))
        if self.over == "tensor":
            angles = {n: _angle(values["dot"][n], values["sq"][n], squares[n]) for n in squares}
            return total(angles) * (self.scale / scope.size**0.5)
        length = torch.stack([s.to(batch.losses.device) for s in squares.values()]).sum()
        return _angle(total(values["dot"]), total(values["sq"]), length) * self.scale


def _angle(dot: Tensor, square: Tensor, other: Tensor) -> Tensor:
    """|dot| / sqrt(square * other), zero for a zero vector, NaN for one that is not finite."""
    norm = square.sqrt() * other.to(square).sqrt()
    return torch.where(norm == 0, 0.0, dot.abs() / norm.clamp(min=torch.finfo(norm.dtype).tiny))


@dataclass(frozen=True, kw_only=True)
class Projection(MomentSignal):
    """The first-order change of the momentum's length: g . m / |m|, in absolute value.

    Attributes:
        absolute: False keeps the sign: positive where a sample speeds learning up.
        floor: unused; m alone counts.
        unit: unused.
    """

    name: str = "projection"
    absolute: bool = True

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """Dot products with m."""
        moments = scope.require_moments()
        return {"dot": {name: Reduction("dot", moments.m[name]) for name in scope.parameters}}

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """The projection on m; zero before the first update."""
        dot = total(values["dot"])
        moments = scope.require_moments()
        length = scope.length((moments.m[name] for name in scope.parameters), dot)
        projected = torch.where(length > 0, dot / length.clamp(min=torch.finfo(dot.dtype).tiny), 0.0) * self.scale
        return projected.abs() if self.absolute else projected
