"""Forms that a block of per-sample gradients of one parameter can take, and their reductions.

A rule describes the gradients of a block of c samples with one of these forms; none but `Dense` holds
them as a tensor. Every form answers the same three questions: a reduction to one number per sample, the
sum over the samples, and, where nothing else will do, the gradients themselves.

Letters: c samples in the block, T positions per sample, d inputs, p outputs, n numbers in the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor
from torch.linalg import vecdot

from headway.grads.scratch import Scratch, aligned

Kind = Literal["l1", "dot", "sq"]


@dataclass(frozen=True)
class Reduction:
    """One number per sample and parameter tensor, made from that sample's gradient g.

    Attributes:
        kind: "l1" is sum |g w|, "dot" is sum g w, "sq" is sum g^2.
        weight: w, of the parameter's shape; None means 1. For "l1" it must not be negative.
    """

    kind: Kind
    weight: Tensor | None = None

    @cached_property
    def flat(self) -> Tensor:
        """The weight as a vector."""
        assert self.weight is not None
        return self.weight if self.weight.dim() == 1 else self.weight.reshape(-1)

    @cached_property
    def transposed(self) -> Tensor:
        """The weight of a matrix, transposed."""
        assert self.weight is not None
        return self.weight.t()


class Sum(Protocol):
    """Where the gradients of blocks of samples are added up: a tensor, or a `Total`."""

    def add_(self, other: Tensor, /) -> Any:
        """Add the sum over a block, flat: [n]."""


class Total:
    """A sum that begins with its first term, so that a single one is not copied.

    Attributes:
        value: the sum, flat, or None while there is no term.
    """

    def __init__(self) -> None:
        self.value: Tensor | None = None

    def add_(self, other: Tensor) -> None:
        """Add a term, which nobody else needs any more."""
        self.value = other if self.value is None else self.value.add_(other)


class PerSample(Protocol):
    """The gradients of one parameter for a block of c samples."""

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """Return one tensor [c] per reduction; add the sum over samples to `total` if it is given."""

    def total(self, weights: Tensor | None = None) -> Tensor:
        """Return the sum over the samples, each times its weight if `weights` [c] are given, flat: [n]."""

    def dense(self) -> Tensor:
        """Return the gradients themselves, flat: [c, n]."""


def widened(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which gradients are reduced: at least float32."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.promote_types(dtype, torch.float32)


def promote(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Bring floating-point tensors to one dtype, at least float32."""
    first = tensors[0].dtype
    if first in (torch.float32, torch.float64) and all(tensor.dtype == first for tensor in tensors):
        return tensors
    dtype = torch.float32
    for tensor in tensors:
        if tensor.is_floating_point():
            dtype = torch.promote_types(dtype, tensor.dtype)
    return tuple(tensor.to(dtype) for tensor in tensors)


def _weighted(x: Tensor, weights: Tensor | None) -> Tensor:
    """Rows [c, ...] times their weights [c], if there are any."""
    return x if weights is None else x * weights.to(x).view(-1, *(1 for _ in x.shape[1:]))


def reduce_dense(
    grads: Tensor, reductions: Sequence[Reduction], owned: bool = False, total: Sum | None = None
) -> list[Tensor]:
    """Reduce materialised gradients [c, n]; `owned` allows overwriting them.

    The order of work keeps the number of passes over `grads` small: everything that needs the sign
    first, then one abs in place for all weighted L1 reductions.
    """
    if total is not None:
        total.add_(grads.sum(0))
    if len(reductions) == 1 and reductions[0].kind == "l1" and reductions[0].weight is not None:
        return [(grads.abs_() if owned else grads.abs()) @ _flat(reductions[0], grads)]
    results: list[Tensor | None] = [None] * len(reductions)
    absolute: Tensor | None = None
    for index, reduction in enumerate(reductions):
        if reduction.kind == "sq":
            results[index] = torch.linalg.vector_norm(grads, dim=1).square_()
        elif reduction.kind == "l1" and reduction.weight is None:
            results[index] = torch.linalg.vector_norm(grads, ord=1, dim=1)
        elif reduction.kind == "dot":
            results[index] = grads.sum(1) if reduction.weight is None else grads @ _flat(reduction, grads)
    for index, reduction in enumerate(reductions):
        if results[index] is None:
            if absolute is None:
                absolute = grads.abs_() if owned else grads.abs()
            results[index] = absolute @ _flat(reduction, grads)
    return [result for result in results if result is not None]


def _flat(reduction: Reduction, like: Tensor) -> Tensor:
    """The reduction's weight as a vector in the dtype of the gradients."""
    weight = reduction.flat
    return weight if weight.dtype == like.dtype else weight.to(like.dtype)


@dataclass
class Dense:
    """Materialised gradients [c, *shape], for small parameters such as biases."""

    grads: Tensor

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """See `PerSample.reduce`."""
        return reduce_dense(self.dense(), reductions, total=total)

    def total(self, weights: Tensor | None = None) -> Tensor:
        """See `PerSample.total`."""
        dense = self.dense()
        return dense.sum(0) if weights is None else weights.to(dense) @ dense

    def dense(self) -> Tensor:
        """See `PerSample.dense`."""
        return self.grads.flatten(1) if self.grads.dim() > 1 else self.grads.unsqueeze(1)


@dataclass
class RankOne:
    """One position per sample: the gradient of a [p, d] weight is the outer product of b and a.

    abs factors over an outer product, so a weighted L1 norm is one matrix product:
    sum_ij |b_i a_j| w_ij = sum_j (|b| w)_j |a_j|.

    Attributes:
        a: inputs [c, d].
        b: gradients at the outputs [c, p].
        is_positive: the inputs are known to have no negative entries, so that |a| is a.
    """

    a: Tensor
    b: Tensor
    is_positive: bool = False

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """See `PerSample.reduce`."""
        if total is not None:
            total.add_(self.total())
        return [self._reduce(reduction, scratch) for reduction in reductions]

    def _reduce(self, reduction: Reduction, scratch: Scratch) -> Tensor:
        a, b = self.a, self.b
        if reduction.kind == "sq":
            return vecdot(a, a) * vecdot(b, b)
        if reduction.weight is None:
            if reduction.kind == "dot":
                return a.sum(1) * b.sum(1)
            return torch.linalg.vector_norm(a, ord=1, dim=1) * torch.linalg.vector_norm(b, ord=1, dim=1)
        if reduction.kind == "l1":  # three regions of the buffer: the product below, |a|, |b|
            product = min(a.numel(), b.numel())
            b = scratch.absolute(b, aligned(product, a.numel()))
            a = a if self.is_positive else torch.abs(a, out=scratch.take(a.shape, a, aligned(product)))
        if reduction.weight.dim() != 2 or reduction.weight.dtype != a.dtype:
            reduction = Reduction(reduction.kind, reduction.weight.reshape(b.shape[1], a.shape[1]).to(a.dtype))
        if a.shape[1] <= b.shape[1]:  # the product with the narrower result is the cheaper one to sum
            return vecdot(torch.mm(b, cast(Tensor, reduction.weight), out=scratch.take(a.shape, a)), a)
        return vecdot(torch.mm(a, reduction.transposed, out=scratch.take(b.shape, b)), b)

    def total(self, weights: Tensor | None = None) -> Tensor:
        """See `PerSample.total`."""
        return (_weighted(self.b, weights).t() @ self.a).reshape(-1)

    def dense(self) -> Tensor:
        """See `PerSample.dense`."""
        return (self.b.unsqueeze(2) * self.a.unsqueeze(1)).flatten(1)

    def positions(self) -> Outer:
        """The same gradients in the form for several positions."""
        return Outer(self.a.unsqueeze(1), self.b.unsqueeze(1))


@dataclass
class BiasOf(Dense):
    """Gradients [c, p] of the bias beside a weight of rank one: the same b, whose |b| is taken once for both."""

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """See `PerSample.reduce`."""
        if total is None and len(reductions) == 1 and reductions[0].kind == "l1" and reductions[0].weight is not None:
            return [scratch.absolute(self.grads) @ _flat(reductions[0], self.grads)]
        return super().reduce(reductions, scratch, total)


@dataclass
class Outer:
    """Several positions per sample: the gradient is sum_t b_t a_t^T, for each of `groups` blocks of rows.

    abs does not factor over the sum, so a weighted L1 norm needs the gradients; they are formed in a
    reused buffer. Signed dots and squared norms can do without.

    Attributes:
        a: inputs [c * groups, T, d] of any precision, or a function that makes them when they are needed.
        b: gradients at the outputs [c * groups, T, p] of any precision.
        groups: blocks of rows with inputs of their own (grouped convolutions).
        order: the order in which the parameter's dimensions give [groups * p, d], if not their own.
        shape: the parameter's shape, wanted with `order`.
    """

    a: Tensor | Callable[[], Tensor]
    b: Tensor
    groups: int = 1
    order: tuple[int, ...] | None = None
    shape: tuple[int, ...] = ()

    def inputs(self) -> Tensor:
        """The inputs [c * groups, T, d], made on first use."""
        if not isinstance(self.a, Tensor):
            self.a = self.a()
        return self.a

    def factors(self) -> tuple[Tensor, ...]:
        """Inputs and output gradients in one precision, at least float32."""
        return promote(self.inputs(), self.b)

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """See `PerSample.reduce`."""
        blocks, positions, p = self.b.shape
        d = self.inputs().shape[2]
        if self.order is not None:
            reductions = [self._arranged(reduction) for reduction in reductions]
        gram = positions * (p + d) < p * d
        if total is None and all(r.kind == "dot" or (r.kind == "sq" and gram) for r in reductions):
            return [self._dot(r) if r.kind == "dot" else self._gram() for r in reductions]
        if scratch.kernels is not None and self.groups == 1 and scratch.kernels.takes(self.inputs(), self.b):
            values, summed = scratch.kernels.reduce(self.inputs(), self.b, reductions, total is not None)
            if total is not None and summed is not None:
                total.add_(self._in_shape(summed))
            return values
        a, b = self.factors()
        scratch.forget()  # what is taken next overwrites it
        grads = scratch.take((blocks, p, d), a)
        torch.bmm(b.transpose(1, 2), a, out=grads)
        flat = grads.view(blocks // self.groups, -1)
        if total is not None and self.order is not None:
            total.add_(self._in_shape(flat.sum(0)).reshape(-1))
            total = None
        return reduce_dense(flat, reductions, owned=True, total=total)

    def _arranged(self, reduction: Reduction) -> Reduction:
        """A reduction whose weight has the order of the gradients that are formed here."""
        if reduction.weight is None or self.order is None:
            return reduction
        return Reduction(reduction.kind, reduction.weight.permute(self.order).contiguous())

    def _in_shape(self, flat: Tensor) -> Tensor:
        """Gradients [..., n] in the order of the parameter's own dimensions."""
        if self.order is None:
            return flat
        lead = flat.dim() - 1
        arranged = flat.unflatten(-1, [self.shape[dim] for dim in self.order])
        back = sorted(range(len(self.order)), key=lambda place: self.order[place])  # type: ignore[index]
        return arranged.permute(*range(lead), *(lead + place for place in back)).flatten(lead)

    def _dot(self, reduction: Reduction) -> Tensor:
        """sum_t b_t^T w a_t, without forming the gradients."""
        a, b = self.factors()
        if reduction.weight is None:
            values = (a.sum(2) * b.sum(2)).sum(1)
        else:
            weight = reduction.weight.reshape(self.groups, b.shape[2], a.shape[2]).to(a.dtype)
            mapped = a @ (weight[0] if self.groups == 1 else weight.repeat(len(a) // self.groups, 1, 1)).mT
            values = (mapped * b).sum((1, 2))
        return values.view(-1, self.groups).sum(1)

    def _gram(self) -> Tensor:
        """Squared norm as the inner product of two Gram matrices over positions, [T, T] each."""
        a, b = self.factors()
        return ((a @ a.mT) * (b @ b.mT)).sum((1, 2)).view(-1, self.groups).sum(1)

    def total(self, weights: Tensor | None = None) -> Tensor:
        """See `PerSample.total`."""
        a, b = (x.unflatten(0, (-1, self.groups)) for x in self.factors())
        a, b = (x.transpose(0, 1).flatten(1, 2) for x in (a, _weighted(b, weights)))
        return self._in_shape((b.mT @ a).reshape(-1))

    def dense(self) -> Tensor:
        """See `PerSample.dense`."""
        a, b = self.factors()
        grads = b.transpose(1, 2) @ a
        return self._in_shape(grads.view(len(grads) // self.groups, -1))


@dataclass
class Rows:
    """A lookup table: position t of a sample adds its values to one row of the gradient.

    Attributes:
        ids: the rows that were looked up [c, T].
        values: gradients at the outputs [c, T, d].
        num_rows: rows of the table.
    """

    ids: Tensor
    values: Tensor
    num_rows: int

    def _compact(self) -> tuple[Tensor, Tensor]:
        """Add up the positions that share a row: rows [c, T] and sums [c, T, d], unused sums zero.

        Sorting keeps all shapes fixed, so that no device has to wait for the number of distinct rows.
        """
        ids, order = self.ids.sort(dim=1)
        starts = torch.ones_like(ids)
        starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
        segment = starts.cumsum(1) - 1
        values = self.values.gather(1, order.unsqueeze(2).expand_as(self.values))
        sums = torch.zeros_like(self.values).scatter_add_(1, segment.unsqueeze(2).expand_as(values), values)
        rows = torch.zeros_like(ids).scatter_(1, segment, ids)
        return rows, sums

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """See `PerSample.reduce`."""
        if total is not None:
            total.add_(self.total())
        rows, sums = self._compact()
        flat = sums.flatten(1)
        results = []
        for reduction in reductions:
            if reduction.weight is not None:
                weight = reduction.weight.reshape(self.num_rows, -1)[rows].flatten(1).to(flat.dtype)
                results.append(vecdot(flat.abs() if reduction.kind == "l1" else flat, weight))
            else:
                results += reduce_dense(flat, [reduction])
        return results

    def total(self, weights: Tensor | None = None) -> Tensor:
        """See `PerSample.total`."""
        table = self.values.new_zeros(self.num_rows, self.values.shape[2])
        return table.index_add_(0, self.ids.flatten(), _weighted(self.values, weights).flatten(0, 1)).reshape(-1)

    def dense(self) -> Tensor:
        """See `PerSample.dense`."""
        samples, _, width = self.values.shape
        table = self.values.new_zeros(samples, self.num_rows, width)
        index = self.ids.unsqueeze(2).expand_as(self.values)
        return table.scatter_add_(1, index, self.values).flatten(1)
