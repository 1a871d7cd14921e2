"""Samples of several rows: a call that sees [B * T, ...] is scored row by row, and the rows of a sample are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from headway.grads.compound import fold
from headway.grads.passes import Contribution
from headway.grads.persample import PerSample


@dataclass
class Folded:
    """A contribution whose rows belong to samples, `rows` to each, one after another.

    Attributes:
        inner: the contribution with every row as a sample of its own.
        rows: T.
        size: numbers in its parameters.
    """

    inner: Contribution
    rows: int
    size: int

    @property
    def params(self) -> Sequence[str]:
        """See `Contribution.params`."""
        return self.inner.params

    @property
    def footprint(self) -> int:
        """See `Contribution.footprint`: what the rows need apart from a gradient, and one gradient."""
        return self.rows * max(0, self.inner.footprint - self.size) + self.size

    def block(self, start: int, stop: int) -> Mapping[str, PerSample]:
        """See `Contribution.block`."""
        forms = self.inner.block(start * self.rows, stop * self.rows)
        return {name: fold(form, self.rows) for name, form in forms.items()}


def by_sample(contribution: Contribution, rows: int, parameters: Mapping[str, Tensor]) -> Contribution:
    """A contribution of samples, from one in which every sample has `rows` rows."""
    if rows == 1:
        return contribution
    return Folded(contribution, rows, sum(parameters[name].numel() for name in contribution.params))
