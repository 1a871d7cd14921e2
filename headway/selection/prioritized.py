"""Samples by priority: a sum tree over a dataset, a sampler that draws from it, and the best samples of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

import torch
from torch import Tensor

from headway.errors import SelectionError, warn
from headway.ranks import gathered
from headway.selection.epochs import EpochSampler
from headway.selection.sources import check_limits

FAN = 16
"""Children of a node."""

Rows = Callable[[int, Tensor], Tensor]
"""The weights of the children of nodes [k] at a level: [k, FAN]."""


class SumTree:
    """Weights of n samples, and the sums of FAN neighbours at a time up to the root: draws and updates take log n.

    Args:
        weights: the weight of each sample [n], not negative.
    """

    def __init__(self, weights: Tensor) -> None:
        self.size = len(weights)
        self.levels = [_padded(weights.double())]
        while len(self.levels[-1]) > FAN:
            self.levels.append(_padded(self.levels[-1].view(-1, FAN).sum(1)))

    @property
    def weights(self) -> Tensor:
        """The weight of each sample [n]."""
        return self.levels[0][: self.size]

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self.levels[-1].sum())

    def set(self, indices: Tensor, weights: Tensor) -> None:
        """Give samples [k], each at most once, new weights [k]."""
        self.levels[0][indices] = weights.double()
        for below, above in zip(self.levels, self.levels[1:], strict=False):
            indices = indices // FAN
            above[indices] = below.view(-1, FAN)[indices].sum(1)

    def rows(self, level: int, nodes: Tensor) -> Tensor:
        """The weights of the children of nodes [k]: [k, FAN]."""
        return self.levels[level].view(-1, FAN)[nodes]

    def draw(self, uniforms: Tensor, rows: Rows | None = None) -> Tensor:
        """The samples that uniform numbers in [0, 1) stand for: [k] -> [k], each with probability weight / total.

        Args:
            uniforms: the numbers.
            rows: weights to draw by instead of the tree's own, for a tree of the same size.
        """
        rows = rows or self.rows
        nodes = torch.zeros(len(uniforms), dtype=torch.int64)
        left = uniforms
        for level in reversed(range(len(self.levels))):
            sums = rows(level, nodes).cumsum(1)
            if level == len(self.levels) - 1:
                left = left * sums[:, -1]
            left = torch.minimum(left, sums[:, -1] * (1 - 1e-15))  # rounding must not lead past the last child
            child = (sums <= left.unsqueeze(1)).sum(1).clamp(max=FAN - 1)
            before = sums.gather(1, (child - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
            left = left - torch.where(child > 0, before, 0.0)
            nodes = nodes * FAN + child
        return nodes.clamp(max=self.size - 1)


def _padded(values: Tensor) -> Tensor:
    """Zeros up to a multiple of FAN."""
    return torch.nn.functional.pad(values, (0, -len(values) % FAN))


class PrioritizedSampler(EpochSampler):
    """Draws samples of a dataset in proportion to a power of their latest score (Schaul et al., 2015).

        sampler = PrioritizedSampler(len(dataset))
        loader = DataLoader(Indexed(dataset), batch_size=32, sampler=sampler)      # gives (index, x, y)
        for index, x, y in loader:
            losses = F.cross_entropy(model(x), y, reduction="none")
            scores = meter.backward(losses * sampler.importance(index))
            sampler.update(index, scores)

    A sample is drawn with probability

        P(i) = (1 - staleness) p_i / sum_j p_j + staleness s_i / sum_j s_j,   p_i = (|score_i| + least)^alpha

    with s_i the draws since sample i was last drawn: old scores are looked at again (Jiang et al., 2021). A sample that
    has no score yet has the greatest priority of all that have one. Draws are with replacement.

    Args:
        size: the number of samples, or a dataset that knows it.
        alpha: how far scores count: 0 draws evenly, 1 in proportion.
        beta: how far `importance` corrects for the uneven draws: 1 makes weighted mean losses unbiased, 0 leaves them.
        staleness: the share of draws that goes to samples by their age, in [0, 1].
        least: added to every score, so that no sample is lost.
        num_samples: indices of an epoch over all replicas; by default as many as there are samples.
        seed: where all randomness starts; the same in every replica.
        rank: which replica this is; by default that of torch.distributed, where it is in use.
        num_replicas: how many there are. All draw the same indices, and each hands out its own.
        sync: take in the scores of all processes of torch.distributed; `update` must then be called in all of them.
        history: the indices of this replica that are remembered, so that a state can go back to them.

    Raises:
        SelectionError: the arguments make no sense.
    """

    def __init__(
        self,
        size: int | Sized,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        staleness: float = 0.0,
        least: float = 1e-6,
        num_samples: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        num_replicas: int | None = None,
        sync: bool = True,
        history: int = 2**16,
    ) -> None:
        number = size if isinstance(size, int) else len(size)
        if number < 1:
            raise SelectionError(f"expected at least one sample, got {number}")
        check_limits(alpha=(alpha, 0, 1), beta=(beta, 0, 1), staleness=(staleness, 0, 1))
        if not least > 0:
            raise SelectionError(f"expected least above 0, got {least}")
        self.size, self.alpha, self.beta, self.staleness, self._least = number, alpha, beta, staleness, least
        self._sync = sync
        self._version = 0
        self.skipped = 0
        self._drawn = 0
        self._restore(torch.zeros(number), torch.ones(number), torch.zeros(number), torch.full((number,), 1 / number))
        super().__init__(number if num_samples is None else num_samples, seed, rank, num_replicas, history)

    def _restore(self, priorities: Tensor, unscored: Tensor, last: Tensor, probabilities: Tensor) -> None:
        """Build the trees: of priorities, of samples without a score, and of the draw that each was last drawn in."""
        self._priorities, self._unscored, self._last = SumTree(priorities), SumTree(unscored), SumTree(last)
        self._members = SumTree(torch.ones(self.size)) if self.staleness else self._unscored
        self._probabilities = probabilities.double()
        self._greatest = float(priorities.max()) or 1.0

    @property
    def version(self) -> int:
        """Changes with every update of the scores."""
        return self._version

    def probabilities(self, indices: Tensor) -> Tensor:
        """P of samples [k] as the scores are now: [k]."""
        own = self._priorities.weights[indices] + self._greatest * self._unscored.weights[indices]
        probability = own / (self._priorities.total + self._greatest * self._unscored.total)
        if aged := self._aged():
            ages = (self._drawn - self._last.weights[indices]) / (self._drawn * self.size - self._last.total)
            probability = (1 - aged) * probability + aged * ages
        return probability

    def _aged(self) -> float:
        """The share of draws that goes by age: none as long as all samples are of the same age."""
        return self.staleness if self.staleness and self._drawn * self.size > self._last.total else 0.0

    def _draw_new(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Each number first says by what a sample is drawn: its age, its priority, or because it has no score."""
        scored, unscored = self._priorities.total, self._greatest * self._unscored.total
        aged = self._aged()
        ends = [aged, aged + (1 - aged) * scored / (scored + unscored), 1.0]
        drawn_by = [(self._members, self._ages), (self._priorities, None), (self._unscored, None)]
        indices = torch.empty(len(uniforms), dtype=torch.int64)
        start = 0.0
        for (tree, rows), end in zip(drawn_by, ends, strict=True):
            chosen = (uniforms >= start) & (uniforms < end)
            if bool(chosen.any()):
                indices[chosen] = tree.draw((uniforms[chosen] - start) / (end - start), rows)
            start = end
        return indices, self.probabilities(indices)

    def _ages(self, level: int, nodes: Tensor) -> Tensor:
        return self._drawn * self._members.rows(level, nodes) - self._last.rows(level, nodes)

    def _take(self, indices: Tensor, origin: Tensor) -> None:
        self._probabilities[indices] = origin
        self._drawn += len(indices)
        if self.staleness:
            once, _ = _last_of_each(indices, origin)
            self._last.set(once, torch.full((len(once),), float(self._drawn)))

    def update(self, indices: Tensor | Sequence[int], scores: Tensor | Sequence[float] | None) -> None:
        """Take in the scores of a batch: the index of each sample [B], and its score [B], of any signal.

        Scores count by their size, without their sign. Those that are NaN or infinite are left out, and counted in
        `skipped`. None, for a batch that the meter did not score, changes nothing.

        Raises:
            SelectionError: other shapes, or samples that there are not.
        """
        if scores is None:
            return
        places = torch.as_tensor(indices).detach().flatten().cpu()
        values = torch.as_tensor(scores).detach().flatten().double().cpu().abs()
        if places.shape != values.shape or places.is_floating_point():
            raise SelectionError(f"expected a score for each of {len(places)} samples by index, got {len(values)}")
        if len(places) and not (int(places.min()) >= 0 and int(places.max()) < self.size):
            raise SelectionError(
                f"expected indices from 0 to {self.size - 1}, got {int(places.min())} to {int(places.max())}"
            )
        if self._sync:
            places, values = gathered(torch.stack([places.double(), values], 1)).unbind(1)
        finite = values.isfinite()
        if not bool(finite.all()):
            if not self.skipped:
                warn(f"{int((~finite).sum())} of {len(values)} scores are NaN or infinite and are left out")
            self.skipped += int((~finite).sum())
        once, latest = _last_of_each(places.long()[finite], values[finite])
        if len(once):
            priorities = (latest + self._least).pow(self.alpha)
            self._priorities.set(once, priorities)
            self._unscored.set(once, torch.zeros(len(once)))
            self._greatest = max(float(priorities.max()), self._greatest if self._version else 0.0)
            self._version += 1

    def importance(self, indices: Tensor | Sequence[int]) -> Tensor:
        """(N P)^-beta of samples [B], with the probability P that each was last drawn with: [B], float32.

        Multiply losses with it. With beta = 1 the weighted mean loss estimates that of even draws without bias.
        """
        places = torch.as_tensor(indices).flatten()
        if self._chunk is not None and self._chunk.origin is not None:
            handed = slice(self._chunk.handed * self.num_replicas)
            self._probabilities[self._chunk.indices[handed]] = self._chunk.origin[handed]
        probability = self._probabilities[places.cpu()]
        return (self.size * probability).pow(-self.beta).float().to(places.device)

    def _identity(self) -> dict[str, Any]:
        return {"size": self.size, "alpha": self.alpha, "staleness": self.staleness, "least": self._least}

    def _own_state(self) -> dict[str, Any]:
        return {
            **self._identity(),
            "priorities": self._priorities.weights.clone(),
            "unscored": self._unscored.weights.bool(),
            "last": self._last.weights.clone(),
            "probabilities": self._probabilities.clone(),
            "greatest": self._greatest,
            "drawn": self._drawn,
            "updates": self._version,
            "skipped": self.skipped,
        }

    def _load_own(self, state: Mapping[str, Any]) -> None:
        self._restore(state["priorities"], state["unscored"], state["last"], state["probabilities"].clone())
        self._greatest, self._drawn = state["greatest"], state["drawn"]
        self._version, self.skipped = state["updates"], state["skipped"]

    def __repr__(self) -> str:
        scored = self.size - int(self._unscored.total)
        return f"PrioritizedSampler({self.size} samples, {scored} with a score, alpha={self.alpha}, beta={self.beta})"


def _last_of_each(indices: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Each index once, with the value that comes last."""
    ordered, order = indices.sort(stable=True)
    last = torch.ones(len(ordered), dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    return ordered[last], values[order[last]]


def select(scores: Tensor, k: int, *, groups: Tensor | None = None) -> Tensor:
    """The indices of the k samples of a batch with the greatest scores [B], the greatest first: [k].

    For choosing what to train on out of a larger batch, as RHO-LOSS does with `Excess` scores (Mindermann et al.,
    2022). NaN counts as the least.

    Args:
        scores: one per sample.
        k: how many are chosen.
        groups: the group of each sample [B]; the k are then divided as evenly among groups as their sizes allow.

    Raises:
        SelectionError: there are fewer than k samples.
    """
    if scores.dim() != 1 or not 1 <= k <= len(scores):
        raise SelectionError(f"expected k from 1 to the {len(scores)} samples of a batch, got {k}")
    order = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).argsort(descending=True, stable=True)
    if groups is None:
        return order[:k]
    grouped = groups[order]
    rank_in_group = torch.zeros_like(order)
    for group in grouped.unique():
        member = grouped == group
        rank_in_group[member] = torch.arange(int(member.sum()), device=order.device)
    return order[rank_in_group.argsort(stable=True)[:k]]
