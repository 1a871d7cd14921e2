"""Samples of several rows: a call that sees [B * T, ...] is scored row by row, and the rows of a sample are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from headway.grads.passes import Contribution
from headway.grads.persample import Dense, Outer, PerSample, RankOne, Rows, Stacked


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


def fold(form: PerSample, rows: int) -> PerSample:
    """Add up the gradients of every `rows` rows in a row: a form of c * rows gradients becomes one of c."""
    if isinstance(form, RankOne):
        return Outer(_together(form.a, rows), _together(form.b, rows))
    if isinstance(form, Outer):
        return Outer(
            lambda: _positions(form.inputs(), rows, form.groups),
            _positions(form.b, rows, form.groups),
            form.groups,
            form.order,
            form.shape,
        )
    if isinstance(form, Rows):
        return Rows(_together(form.ids, rows).flatten(1), _together(form.values, rows).flatten(1, 2), form.num_rows)
    if isinstance(form, Stacked):
        return Stacked([fold(part, rows) for part in form.parts], form.rows)
    return Dense(_together(form.dense(), rows).sum(1))


def _together(x: Tensor, rows: int) -> Tensor:
    """[c * rows, ...] -> [c, rows, ...]."""
    return x.unflatten(0, (-1, rows))


def _positions(x: Tensor, rows: int, groups: int) -> Tensor:
    """Positions of all rows of a sample: [c * rows * groups, T, d] -> [c * groups, rows * T, d]."""
    by_group = x.unflatten(0, (-1, rows, groups)).transpose(1, 2)
    return by_group.flatten(2, 3).flatten(0, 1)
