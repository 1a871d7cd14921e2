"""Floors and ceilings for shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headway.errors import SelectionError
from headway.selection.sources import numbers_of

Bound = float | Mapping[str, float]
"""One number for every source, or a number by name; sources that are not named are not bounded."""

_SLACK = 1e-9


class Bounds:
    """The least and the greatest share of every source.

    Args:
        names: the sources.
        floor: least shares.
        ceiling: greatest shares.

    Raises:
        SelectionError: they are no shares, or no shares that add up to 1 lie between them.
    """

    def __init__(self, names: Sequence[str], floor: Bound = 0.0, ceiling: Bound = 1.0) -> None:
        self.low = _spread(names, floor, 0.0, "floor")
        self.high = _spread(names, ceiling, 1.0, "ceiling")
        for name, low, high in zip(names, self.low.tolist(), self.high.tolist(), strict=True):
            if low > high:
                raise SelectionError(f"{name}: expected a floor below the ceiling, got {low} and {high}")
        if self.low.sum() > 1 + _SLACK:
            raise SelectionError(f"expected floors that add up to at most 1, got {float(self.low.sum()):.4g}")
        if self.high.sum() < 1 - _SLACK:
            raise SelectionError(f"expected ceilings that add up to at least 1, got {float(self.high.sum()):.4g}")

        self._free = not bool((self.low > 0).any()) and not bool((self.high < 1).any())
        self.last = int(torch.nonzero(self.high).max())
        """The last source that may have a share."""

    def apply(self, shares: Tensor) -> Tensor:
        """The shares c * p between floor and ceiling, with the factor c for which they add up to 1: [S] -> [S].

        Sources that no bound holds keep their proportions. The sum is a function of c that never falls and is
        linear between the points at which a source meets a bound: c is found between two of these points.
        """
        if self._free or bool(((shares >= self.low) & (shares <= self.high)).all()):
            return shares
        tiny = shares.clamp(min=torch.finfo(shares.dtype).tiny)
        points = torch.cat([self.low / tiny, self.high / tiny]).sort().values
        sums = self._at(points.unsqueeze(1), tiny).sum(1)
        above = int(torch.searchsorted(sums, torch.tensor(1.0, dtype=sums.dtype)))
        if above == 0:
            factor = points[0]
        elif above == len(points):
            factor = points[-1]
        else:
            rise = sums[above] - sums[above - 1]
            share = (1.0 - sums[above - 1]) / rise if rise > 0 else torch.zeros((), dtype=sums.dtype)
            factor = points[above - 1] + share * (points[above] - points[above - 1])
        bounded = self._at(factor, tiny)
        return bounded / bounded.sum()

    def _at(self, factor: Tensor, shares: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(factor * shares, self.low), self.high)


def _spread(names: Sequence[str], bound: Bound, default: float, what: str) -> Tensor:
    """A bound for every source: [S]."""
    spread = torch.full((len(names),), default, dtype=torch.float64)
    if isinstance(bound, Mapping):
        spread[numbers_of(names, bound)] = torch.tensor(list(bound.values()), dtype=torch.float64)
    else:
        spread.fill_(float(bound))
    if bool((spread < 0).any()) or bool((spread > 1).any()) or bool(spread.isnan().any()):
        raise SelectionError(f"expected a {what} from 0 to 1, got {bound}")
    return spread
