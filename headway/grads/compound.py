"""Forms that are made of other forms: stacked, selected or normalised, joined and folded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.grads.persample import Dense, Outer, PerSample, RankOne, Reduction, Rows, Sum, reduce_dense
from headway.grads.routed import Routed
from headway.grads.scratch import Scratch


@dataclass
class Stacked:
    """Blocks of rows of one parameter, each with a form of its own (packed projections)."""

    parts: Sequence[PerSample]
    rows: Sequence[int]

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """See `PerSample.reduce`."""
        if total is not None:
            total.add_(self.total())
        sums: list[Tensor] = []
        start = 0
        for part, rows in zip(self.parts, self.rows, strict=True):
            own = [Reduction(r.kind, None if r.weight is None else r.weight[start : start + rows]) for r in reductions]
            values = part.reduce(own, scratch, None)
            sums = [x + y for x, y in zip(sums, values, strict=True)] if sums else values
            start += rows
        return sums

    def total(self, weights: Tensor | None = None) -> Tensor:
        """See `PerSample.total`."""
        return torch.cat([part.total(weights) for part in self.parts])

    def dense(self) -> Tensor:
        """See `PerSample.dense`."""
        return torch.cat([part.dense() for part in self.parts], dim=1)


@dataclass
class Selected:
    """Gradients of a parameter through a tensor that holds some of its numbers, each once: a transpose, a slice.

    What is not selected has the gradient zero, so that a weight only has to be selected like the parameter.

    Attributes:
        inner: the gradients at the tensor.
        select: makes the tensor of the parameter.
        shape: the parameter's shape.
        key: what `select` does; None if it cannot be compared.
    """

    inner: PerSample
    select: Callable[[Tensor], Tensor]
    shape: torch.Size
    key: Hashable = None

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """See `PerSample.reduce`."""
        if total is not None:
            total.add_(self.total())
        own = [Reduction(r.kind, None if r.weight is None else self.select(r.weight)) for r in reductions]
        return self.inner.reduce(own, scratch, None)

    def total(self, weights: Tensor | None = None) -> Tensor:
        """See `PerSample.total`."""
        return self._spread(self.inner.total(weights)).reshape(-1)

    def dense(self) -> Tensor:
        """See `PerSample.dense`."""
        return torch.func.vmap(self._spread)(self.inner.dense()).flatten(1)

    def _spread(self, flat: Tensor) -> Tensor:
        """Put the tensor's numbers back into their places in the parameter."""
        selected, pull = torch.func.vjp(self.select, flat.new_zeros(self.shape))[:2]
        (spread,) = pull(flat.view_as(selected))
        return spread


NORMED_BLOCK = 2**17
"""Numbers of the gradients at directions that are formed at once: half a MiB of float32, for the second-level cache."""


@dataclass
class Normed:
    """Gradients of the directions v behind weight normalisation, W_i = g_i v_i / |v_i| for every row i.

    With the unit vectors u_i = v_i / |v_i|: (g_i / |v_i|) (G_i - (G_i . u_i) u_i), where G is the gradient at W.

    Attributes:
        inner: the gradients at W.
        units: u [p, d].
        factors: g_i / |v_i| [p].
    """

    inner: PerSample
    units: Tensor
    factors: Tensor

    def along(self) -> Tensor:
        """G_i . u_i, the gradients of the lengths g: [c, p]."""
        if isinstance(self.inner, RankOne):
            return self.inner.b * (self.inner.a @ self.units.to(self.inner.a).t())
        return torch.linalg.vecdot(self._rows(), self.units.to(self.factors))

    def _rows(self) -> Tensor:
        return self.inner.dense().unflatten(1, self.units.shape)

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """See `PerSample.reduce`."""
        if not isinstance(self.inner, RankOne):
            return reduce_dense(self.dense(), reductions, owned=True, total=total)
        if total is not None:
            total.add_(self.total())
        return [self._of_rank_one(self.inner, reduction, scratch) for reduction in reductions]

    def _of_rank_one(self, inner: RankOne, reduction: Reduction, scratch: Scratch) -> Tensor:
        """Reduce b_i f_i (a_j - (a . u_i) u_ij) without forming more than a few rows i of it at a time."""
        a, units, factors = inner.a, self.units.to(inner.a), (inner.b * self.factors.to(inner.a)).abs()
        weight = torch.ones_like(units) if reduction.weight is None else reduction.weight.reshape(units.shape).to(a)
        if reduction.kind == "dot":
            return inner.reduce([Reduction("dot", self._project(weight))], scratch, None)[0]
        shares = a @ units.t()  # [c, p]
        if reduction.kind == "sq":
            across = torch.linalg.vecdot(a, a).unsqueeze(1) - shares.square()
            return torch.linalg.vecdot(factors.square(), across.clamp(min=0))
        shares = shares.t().unsqueeze(2)
        step = max(1, NORMED_BLOCK // a.numel())
        scratch.forget()
        sums = []
        for start in range(0, len(units), step):
            rows = slice(start, start + step)
            across = scratch.take((len(units[rows]), *a.shape), a)
            torch.addcmul(a, shares[rows], units[rows].unsqueeze(1), value=-1, out=across).abs_()
            if len(across) == 1:  # one pass less
                sums.append(torch.mv(across[0], weight[start]).unsqueeze(0))
            else:
                sums.append(across.mul_(weight[rows].unsqueeze(1)).sum(2))
        return torch.linalg.vecdot(factors, torch.cat(sums).t())

    def total(self, weights: Tensor | None = None) -> Tensor:
        """See `PerSample.total`: the map from G to the gradient of v is linear."""
        return self._project(self.inner.total(weights).view(self.units.shape)).reshape(-1)

    def dense(self) -> Tensor:
        """See `PerSample.dense`."""
        return self._project(self._rows()).flatten(1)

    def _project(self, rows: Tensor) -> Tensor:
        units = self.units.to(rows)
        along = torch.linalg.vecdot(rows, units).unsqueeze(-1)
        return (rows - along * units) * self.factors.to(rows).unsqueeze(-1)


def join(parts: Sequence[PerSample]) -> PerSample:
    """Add the gradients of several uses of one parameter, before anything takes their absolute value."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if isinstance(first, Selected) and first.key is not None:
        inner = [part.inner for part in parts if isinstance(part, Selected) and part.key == first.key]
        if len(inner) == len(parts):
            return Selected(join(inner), first.select, first.shape, first.key)
    if isinstance(first, Normed) and all(isinstance(p, Normed) and p.units is first.units for p in parts):
        return Normed(join([part.inner for part in parts if isinstance(part, Normed)]), first.units, first.factors)
    outers = [part.positions() if isinstance(part, RankOne) else part for part in parts]
    if all(isinstance(part, Outer) and part.groups == 1 and part.order is None for part in outers):
        inputs = torch.cat([part.inputs() for part in outers if isinstance(part, Outer)], dim=1)
        outputs = torch.cat([part.b for part in outers if isinstance(part, Outer)], dim=1)
        return Outer(inputs, outputs)
    if all(isinstance(part, Rows) for part in parts):
        tables = [part for part in parts if isinstance(part, Rows)]
        ids, values = (torch.cat(column, dim=1) for column in zip(*((t.ids, t.values) for t in tables), strict=True))
        return Rows(ids, values, tables[0].num_rows)
    summed = parts[0].dense()
    for part in parts[1:]:
        summed = summed + part.dense()
    return Dense(summed)


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
    if isinstance(form, Routed):
        return form.folded(rows)
    if isinstance(form, Selected):
        return Selected(fold(form.inner, rows), form.select, form.shape, form.key)
    if isinstance(form, Normed):
        return Normed(fold(form.inner, rows), form.units, form.factors)
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
