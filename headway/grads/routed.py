"""Gradients of experts, whose weights are one parameter [E, p, d]: rows belong to an expert and to a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headway.grads.persample import Outer, PerSample, RankOne, Reduction, Sum
from headway.grads.scratch import Scratch


@dataclass(frozen=True)
class _Part:
    """The rows of one expert, filled up with zeros to the same number for each sample that has any."""

    expert: int
    start: int
    longest: int
    who: Tensor

    def of(self, rows: Tensor) -> Tensor:
        """The expert's own among the filled rows: [samples that have any, longest, width]."""
        stop = self.start + len(self.who) * self.longest
        return rows[self.start : stop].view(len(self.who), self.longest, -1)


class Routing:
    """Which sample and which expert each of S rows belongs to.

    Args:
        experts: the expert of each row [S], in ascending order.
        owners: the sample of each row [S], in ascending order within an expert.
        samples: c.
        count: E.
    """

    def __init__(self, experts: Tensor, owners: Tensor, samples: int, count: int) -> None:
        self.experts, self.owners, self.samples, self.count = experts, owners, samples, count
        self._folded: dict[int, Routing] = {}

    def folded(self, rows: int) -> Routing:
        """The same where every `rows` samples in a row are one."""
        if rows not in self._folded:
            self._folded[rows] = Routing(self.experts, self.owners // rows, self.samples // rows, self.count)
        return self._folded[rows]

    @cached_property
    def _layout(self) -> tuple[list[_Part], Tensor, int]:
        """The experts that have rows, the place of each row among the filled ones, and the number of those."""
        groups = self.experts * self.samples + self.owners
        sizes = torch.bincount(groups, minlength=self.count * self.samples)
        parts, begins, end = [], [], 0
        for expert, own in enumerate(sizes.view(self.count, self.samples).tolist()):
            who, longest = [i for i, size in enumerate(own) if size], max(own)
            if who:
                parts.append(_Part(expert, end, longest, torch.tensor(who, device=groups.device)))
            ranks = {sample: rank for rank, sample in enumerate(who)}
            begins += [end + ranks.get(i, 0) * longest for i in range(self.samples)]
            end += len(who) * longest
        shift = torch.tensor(begins, device=groups.device) - (sizes.cumsum(0) - sizes)
        return parts, torch.arange(len(groups), device=groups.device) + shift[groups], end

    @property
    def parts(self) -> list[_Part]:
        """The experts that have rows."""
        return self._layout[0]

    def filled(self, rows: Tensor) -> Tensor:
        """Rows [S, width] as `parts` reads them."""
        _, places, count = self._layout
        return rows if count == len(rows) else rows.new_zeros(count, rows.shape[1]).index_copy_(0, places, rows)

    def counts(self) -> list[int]:
        """How many rows each expert has."""
        return torch.bincount(self.experts, minlength=self.count).tolist()


@dataclass
class Routed:
    """Gradients of a parameter [E, p, d] of E experts: a row r adds b_r a_r^T to its expert's.

    Only the gradients of one expert, for the samples that it saw, are formed at a time.

    Attributes:
        a: inputs [S, d].
        b: gradients at the outputs [S, p].
        routing: whose the rows are.
    """

    a: Tensor
    b: Tensor
    routing: Routing

    def folded(self, rows: int) -> Routed:
        """The gradients of every `rows` samples in a row, added up."""
        return Routed(self.a, self.b, self.routing.folded(rows))

    def _by_expert(self) -> list[tuple[_Part, PerSample]]:
        a, b = self.routing.filled(self.a), self.routing.filled(self.b)
        return [
            (part, Outer(part.of(a), part.of(b)) if part.longest > 1 else RankOne(part.of(a)[:, 0], part.of(b)[:, 0]))
            for part in self.routing.parts
        ]

    def reduce(self, reductions: Sequence[Reduction], scratch: Scratch, total: Sum | None) -> list[Tensor]:
        """See `PerSample.reduce`."""
        results = [self.a.new_zeros(self.routing.samples) for _ in reductions]
        sums = self._nothing() if total is not None else None
        for part, form in self._by_expert():
            own = [Reduction(r.kind, None if r.weight is None else r.weight[part.expert]) for r in reductions]
            values = form.reduce(own, scratch, None if sums is None else sums[part.expert])
            for result, value in zip(results, values, strict=True):
                result.index_add_(0, part.who, value)
        if total is not None and sums is not None:
            total.add_(sums.view(-1))
        return results

    def _nothing(self) -> Tensor:
        return self.a.new_zeros(self.routing.count, self.b.shape[1] * self.a.shape[1])

    def total(self, weights: Tensor | None = None) -> Tensor:
        """See `PerSample.total`."""
        b = self.b if weights is None else self.b * weights.to(self.b)[self.routing.owners].unsqueeze(1)
        counts = self.routing.counts()
        products = [own.t() @ a for own, a in zip(b.split(counts), self.a.split(counts), strict=True)]
        return torch.stack(products).view(-1)

    def dense(self) -> Tensor:
        """See `PerSample.dense`."""
        result = self.a.new_zeros(self.routing.samples, self.routing.count, self.b.shape[1] * self.a.shape[1])
        for part, form in self._by_expert():
            result[part.who, part.expert] = form.dense()
        return result.flatten(1)
