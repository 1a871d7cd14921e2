"""Moving averages of the batch gradient and of its square.

    m <- b m + (1 - b) g        v <- b v + (1 - b) g^2

with g the gradient of the mean loss of a batch, in the units of one sample's own gradient: neither the
batch size nor a loss scale enters. With equal decay rates, m and v are averages with the same weights, so
Jensen's inequality gives m^2 <= v in every parameter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor

from headway.errors import SignalError, StateError, warn
from headway.moments.flat import WHOLE, Flat, Parts, side_by_side


@dataclass(frozen=True)
class Decay:
    """How fast the averages forget, and whether their start at zero is corrected.

    Attributes:
        m: decay rate of the first moment, in [0, 1).
        v: decay rate of the second moment, in [0, 1).
        bias_correction: divide both by 1 - rate^t before use, t the number of updates.
    """

    m: float = 0.999
    v: float = 0.999
    bias_correction: bool = True

    def __post_init__(self) -> None:
        for name, rate in (("m", self.m), ("v", self.v)):
            if not 0 <= rate < 1:
                raise SignalError(f"expected a decay rate in [0, 1) for {name}, got {rate}")
        if self.m != self.v:
            warn(
                f"decay rates {self.m} and {self.v} differ: m^2 <= v is no longer guaranteed, and scores of "
                f"parameters with a small v may be large"
            )


FEW = 2**16
"""So few numbers are copied to lie side by side: one operation over all costs more time than its work."""
_LITTLE = 1e-12
"""The share of a floor that stays while there are no updates, so that nothing is divided by zero."""


def _count_type(device: torch.device) -> torch.dtype:
    """How a device counts updates: as a number that can be an exponent."""
    return torch.float32 if device.type == "mps" else torch.float64


class Moments:
    """First and second moment of the gradients of some parameters.

    A gradient that is NaN or infinite (or whose square is) never enters: that update is skipped as a
    whole, counted in `skipped`, and its parameters are named in `skipped_names`.

    Args:
        parameters: the parameters by name.
        decay: rates and bias correction.
        parts: how the parameters are sharded across ranks. Then m and v are this rank's shards, and what is said of
            all numbers is said of those of all ranks, which have to ask together.
    """

    def __init__(self, parameters: Mapping[str, Tensor], decay: Decay, parts: Parts = WHOLE) -> None:
        """Start at zero, in the parameters' precision but never below float32."""
        self.decay = decay
        self._parts = parts
        self._shapes = {name: parameter.shape for name, parameter in parameters.items()}
        own = {name: parts.shard_of(parameter) for name, parameter in parameters.items()}
        self.m = Flat(own)
        self.v = Flat(own)
        devices = {tensor.device for tensor in self.m.values()}
        self._on_host = all(device.type == "cpu" for device in devices)
        place = next(iter(devices)) if len(devices) == 1 else torch.device("cpu")
        self._updates = torch.zeros((), dtype=_count_type(place), device=place)
        self._passed = 0  # updates, also the skipped ones
        self._good = torch.ones(len(self.m), dtype=torch.bool, device=place)
        self._known: int | None = 0  # what `_updates` holds, where the host knows it
        self._side_by_side: Flat | None = None  # where few gradients are copied to
        self._spare: Flat | None = None  # a buffer whose numbers nobody needs during an update
        self.version = 0

    @property
    def updates(self) -> int:
        """Updates so far, without the skipped ones."""
        return int(self._updates) if self._known is None else self._known

    @property
    def skipped(self) -> int:
        """Updates that a NaN or an infinity has kept out."""
        return self._passed - self.updates

    @property
    def skipped_names(self) -> list[str]:
        """Parameters whose gradient has been NaN or infinite at least once."""
        return [name for name, bad in zip(self.m, (~self._good).tolist(), strict=True) if bad]

    def update(self, gradients: Mapping[str, Tensor | None], scale: Tensor | float | None = None) -> None:
        """Take in the gradient of a batch.

        Args:
            gradients: by parameter name; None stands for zero (a parameter that took no part).
            scale: a loss scale to divide the gradients by.
        """
        self._follow(gradients)
        m, v, g = list(self.m.values()), list(self.v.values()), self._prepared(gradients, scale)
        if len(g) < len(m) and self.m.whole is not None and self.v.whole is not None:
            m, v = [self.m.whole], [self.v.whole]
        self.version += 1
        if not self._on_host:
            self._update_without_branch(g, torch._foreach_norm(g))
            return
        # Finite exactly if every entry and every square is (or their sum overflows).
        together = torch.stack(torch._foreach_norm(g)) if len(g) > 1 or g[0].dim() != 1 else g[0]
        if not math.isfinite(self._parts.total(torch.dot(together, together))):
            bad = torch.tensor([not math.isfinite(norm**2) for norm in torch._foreach_norm(self._by_name(g))])
            self._report((self._parts.total(bad.long()) > 0).tolist())
            return
        self._updates += 1
        self._passed += 1
        self._known = None if self._known is None else self._known + 1
        torch._foreach_lerp_(m, g, 1 - self.decay.m)
        torch._foreach_mul_(v, self.decay.v)
        torch._foreach_addcmul_(v, g, g, 1 - self.decay.v)

    def _prepared(self, gradients: Mapping[str, Tensor | None], scale: Tensor | float | None) -> list[Tensor]:
        """The gradients by parameter; on the host all as one if they lie side by side as the moments do."""
        whole = gradients.whole if isinstance(gradients, Flat) and self._on_host and scale is None else None
        own = self.m.whole if len(self.m) > 1 and self.v.whole is not None else None
        same = gradients.keys() == self.m.keys()
        if whole is not None and own is not None and same and (whole.shape, whole.dtype) == (own.shape, own.dtype):
            return [whole]
        prepared = [
            torch.zeros_like(m) if (gradient := gradients.get(name)) is None else _prepared(gradient, m, scale)
            for name, m in self.m.items()
        ]
        if own is None or not self._on_host or own.numel() > FEW:
            return prepared
        if self._side_by_side is None:
            self._side_by_side = Flat(self.m)
        torch._foreach_copy_(list(self._side_by_side.values()), prepared)
        assert self._side_by_side.whole is not None
        return [self._side_by_side.whole]

    def _by_name(self, g: Sequence[Tensor]) -> list[Tensor]:
        """One gradient for each parameter, also where they lie side by side."""
        if len(g) == len(self.m):
            return list(g)
        starts = [one.storage_offset() for one in self.m.values()]
        return [g[0][start : start + one.numel()] for start, one in zip(starts, self.m.values(), strict=True)]

    def _follow(self, gradients: Mapping[str, Tensor | None]) -> None:
        """Move to where the gradients are, if the model was moved."""
        for name, gradient in gradients.items():
            m = self.m.get(name)
            if gradient is None or m is None or (gradient.device == m.device and gradient.dtype == m.dtype):
                continue
            wide = torch.promote_types(gradient.dtype, torch.float32)
            if gradient.device != m.device or wide != m.dtype:
                self.m.replace(name, m.to(gradient.device, wide))
                self.v.replace(name, self.v[name].to(gradient.device, wide))
                self._on_host = all(tensor.device.type == "cpu" for tensor in self.m.values())
                place = gradient.device
                self._updates, self._good = self._updates.to(place, _count_type(place)), self._good.to(place)

    def _update_without_branch(self, g: Sequence[Tensor], norms: Sequence[Tensor]) -> None:
        """The same on an accelerator, where a branch would make the host wait for the device."""
        place = self._good.device
        together = torch.stack([norm if norm.device == place else norm.to(place) for norm in norms])
        good = together < torch.finfo(together.dtype).max ** 0.5
        good = good if self._parts is WHOLE else self._parts.total((~good).long()) == 0
        finite = good.all()
        self._updates += finite
        self._good &= good
        self._passed += 1
        self._known = None
        taken = self._spare if self._spare is not None and self._spare.fits(self.m) else Flat(self.m)
        torch._foreach_copy_(list(taken.values()), list(g))
        for m, v, own in side_by_side(self.m, self.m, self.v, taken):
            keep = finite.to(own.device)
            own.masked_fill_(~keep, 0)
            weights = [(keep * (1 - rate)).to(own.dtype) for rate in dict.fromkeys((self.decay.m, self.decay.v))]
            m.lerp_(own, weights[0])
            v.lerp_(own.square_(), weights[-1])

    def _report(self, bad: Sequence[bool]) -> None:
        self._passed += 1
        self._good &= ~torch.tensor(bad)
        names = [name for name, flag in zip(self.m, bad, strict=True) if flag]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        warn(f"NaN or infinite gradient in {shown}: the moments were not updated ({self.skipped} updates skipped)")

    def corrections(self) -> tuple[Tensor | float, Tensor | float]:
        """The factors 1 - rate^t of both moments (1 without bias correction, and before the first update)."""
        if not self.decay.bias_correction:
            return 1.0, 1.0
        if self._on_host:
            t = self.updates
            return (1 - self.decay.m**t, 1 - self.decay.v**t) if t else (1.0, 1.0)
        rates, steps = dict.fromkeys((self.decay.m, self.decay.v)), self._updates
        found = [torch.where(steps > 0, 1 - rate**steps, 1.0) for rate in rates]
        return found[0], found[-1]

    def ratios(
        self, names: Iterable[str], floor: Tensor | float, out: Flat | None = None, absolute: bool = False
    ) -> Flat:
        """m / max(v, floor) after bias correction.

        Args:
            names: the parameters.
            floor: the least value of v, in the units of a sample's own gradient squared.
            out: what an earlier call for the same parameters returned, to write into.
            absolute: leave the sign out.

        Returns:
            The ratios by name.
        """
        own = {name: self.v[name] for name in names}
        if out is None or any(out[name].dtype != v.dtype or out[name].device != v.device for name, v in own.items()):
            out = Flat(own)
        self._spare = out
        limit = self._limit(floor)
        for m, v, ratio in side_by_side(own, self.m, self.v, out):
            torch.clamp(v, min=limit if isinstance(limit, float) else limit.to(v.device), out=ratio)
            torch.div(m, ratio, out=ratio)
            if self.decay.m != self.decay.v:
                of_m, of_v = self.corrections()
                factor = of_v / of_m
                ratio.mul_(factor if isinstance(factor, float) else factor.to(v))
            if absolute:
                ratio.abs_()
        return out

    def _limit(self, floor: Tensor | float) -> Tensor | float:
        """The least value of v as it is stored, above zero even where a relative floor has nothing to relate to."""
        if self._on_host:
            _, of_v = self.corrections()
            return max(float(floor) * float(of_v), torch.finfo(torch.float32).tiny)
        share = self.decay.v**self._updates if self.decay.bias_correction else None
        if isinstance(floor, Tensor):
            return (floor if share is None else floor - floor * share).clamp(min=torch.finfo(torch.float32).tiny)
        return floor if share is None else torch.rsub(share, floor, alpha=floor * (1 - _LITTLE))

    def mean_v(self, names: Iterable[str] | None = None) -> Tensor:
        """The mean of v after bias correction over all entries of some parameters, or of all."""
        _, of_v = self.corrections()
        chosen = list(self.v if names is None else names)
        if self.v.whole is not None and len(chosen) == len(self.v):
            total = self.v.whole.sum()
        else:
            total = self._sum([self.v[name].sum() for name in chosen])
        return self._parts.total(total) / (of_v * self._count(chosen))

    def _sum(self, numbers: Iterable[Tensor]) -> Tensor:
        """The sum of single numbers, which may be on several devices."""
        return torch.stack([number.to(self._updates.device) for number in numbers]).sum()

    def _count(self, names: Iterable[str]) -> int:
        return sum(self._shapes[name].numel() for name in names)

    def noise_level(self) -> Tensor | float:
        """E[m^2] / E[v] of gradients that are pure noise: independent, of mean zero and of constant variance.

        For rates b of m and c of v after t updates: (1 - b) (1 - b^2t) / ((1 + b) (1 - c^t)). With equal rates
        it begins at 1 - b, which the first gradient gives whatever it is, and falls to (1 - b) / (1 + b). It belongs
        to m and v as they are stored, before bias correction.
        """
        rate = self.decay.m
        limit = (1 - rate) / (1 + rate)
        if self._on_host:
            t = self.updates
            return limit * (1 - rate ** (2 * t)) / (1 - self.decay.v**t) if t else 1.0
        steps = self._updates
        level = limit * (1 - rate ** (2 * steps)) / (1 - self.decay.v**steps)
        return torch.where(steps > 0, level, 1.0)

    def corrected(self, name: str) -> tuple[Tensor, Tensor]:
        """m and v of one parameter after bias correction."""
        of_m, of_v = self.corrections()
        return self.m[name] / of_m, self.v[name] / of_v

    def share_under(self, floor: Tensor | float, names: Iterable[str] | None = None) -> Tensor:
        """The share of parameters whose corrected v is below a floor, among some or all of them."""
        _, of_v = self.corrections()
        limit = floor * of_v
        own = {name: self.v[name] for name in (self.v if names is None else names)}
        below = [(v < (limit.to(v) if isinstance(limit, Tensor) else limit)).sum() for v in own.values()]
        return self._parts.total(self._sum(below)) / self._count(own)

    def share_within_bound(self) -> Tensor:
        """The share of parameters with m^2 <= v after bias correction, but for rounding.

        With equal decay rates it is 1: both are averages with the same weights, and the square of an average is
        at most the average of the squares.
        """
        of_m, of_v = self.corrections()
        slack = 64 * torch.finfo(torch.float32).eps
        pairs = zip(self.m.values(), self.v.values(), strict=True)
        within = [((m / of_m).square() <= (v / of_v) * (1 + slack)).sum() for m, v in pairs]
        return self._parts.total(self._sum(within)) / self._count(self.v)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the averages consist of."""
        return {
            "decay": list(astuple(self.decay)),
            "m": {name: self._parts.joined(name, tensor.clone()) for name, tensor in self.m.items()},
            "v": {name: self._parts.joined(name, tensor.clone()) for name, tensor in self.v.items()},
            "updates": self._updates.to(torch.int64),
            "skipped": (self._passed - self._updates).to(torch.int64),
            "bad": ~self._good,
        }

    def check_state(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Make sure that a state fits, without loading it; see `load_state_dict`.

        Raises:
            StateError: names or shapes differ, or a number is none that moments can have.
        """
        decay = list(astuple(self.decay))
        if list(state.get("decay", decay)) != decay:
            raise StateError(f"expected moments with decay {decay}, got {list(state['decay'])}")
        for key, own in (("m", self.m), ("v", self.v)):
            if key not in state:
                raise StateError(f"expected moments {key}, got a state without them")
            if strict and set(state[key]) != set(own):
                wrong = sorted(set(state[key]) ^ set(own))[:3]
                raise StateError(
                    f"expected moments {key} of the same parameters, got a difference in {wrong}; "
                    f"strict=False leaves such parameters out"
                )
            for name in (name for name in own if name in state[key]):
                saved = _tensor(state[key][name], f"{name}: expected moments {key}", self._shapes[name])
                saved = self._parts.cut(name, saved)
                bad = ~torch.isfinite(saved) | (saved < 0 if key == "v" else False)
                if self._parts.total(bad.sum()):
                    kind = "finite numbers" if key == "m" else "finite numbers from 0"
                    raise StateError(f"{name}: expected moments {key} that are {kind}, got others")
        for key, shape in (("updates", ()), ("skipped", ()), ("bad", (len(state["m"]),))):
            if key not in state:
                raise StateError(f"expected moments with {key!r}, got a state without it")
            number = _tensor(state[key], f"expected {key!r}", shape)
            if key != "bad" and (number.is_floating_point() or int(number) < 0):
                raise StateError(f"expected {key!r} to be a count from 0, got {number.item()}")

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Continue from a state; nothing changes if it does not fit.

        Args:
            state: what `state_dict` gave.
            strict: expect the same parameters. Otherwise those that only one side has are left out: their moments are
                as if their gradients had been zero so far.

        Raises:
            StateError: see `check_state`.
        """
        self.check_state(state, strict)
        for key, own in (("m", self.m), ("v", self.v)):
            for name, tensor in own.items():
                if name in state[key]:
                    tensor.copy_(self._parts.cut(name, state[key][name]))
                else:
                    tensor.zero_()
        self._updates.copy_(state["updates"])
        self._known = int(state["updates"]) if self._on_host else None
        self._passed = int(state["updates"]) + int(state["skipped"])
        bad = dict(zip(state["m"], state["bad"].tolist(), strict=True))
        self._good.copy_(torch.tensor([not bad.get(name, False) for name in self.m]))
        self.version += 1


def _tensor(value: Any, what: str, shape: Sequence[int]) -> Tensor:
    """A value of a state, which has to be a tensor of a shape."""
    got = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    if not isinstance(value, Tensor) or list(value.shape) != list(shape):
        raise StateError(f"{what} of shape {list(shape)}, got {got}")
    return value


def _prepared(gradient: Tensor, like: Tensor, scale: Tensor | float | None) -> Tensor:
    """A gradient as a dense tensor in the moments' precision, without the loss scale."""
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    if dense.requires_grad or dense.dtype != like.dtype:
        dense = dense.detach().to(like.dtype)
    return dense if scale is None else dense / scale
