"""Which batches are scored: each k-th, or as few as the drift of the scores and a budget of time allow."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor

from headway.errors import LossError
from headway.ranks import summed

WARM, TIMED = 8, 16
"""Batches before the first that is timed, and batches that are timed with scores; then as many without."""
DECIDE = 8
"""Scored batches from one decision about drift to the next."""
GROUPS = 64
"""Groups whose means are followed; those with higher numbers are taken together with others."""


@dataclass(frozen=True, kw_only=True)
class AutoEvery:
    """How `Meter(every="auto")` chooses the interval k: a batch is scored, and the k - 1 after it are not.

    The budget gives the least interval, ceil(cost / budget). From there the interval doubles while the scores move by
    less than half of `drift` from one scored batch to the next, and halves when they move by more than `drift`.

    The movement is that of the mean score of each group (of all samples, where no groups are given), as a share of the
    mean absolute score: the root of the mean of its square over eight scored batches, minus what the scatter of the
    samples alone would give, and minus one standard error. With several signals, the one that moves most decides.

    The cost is measured once: the median time of 16 steps with scores over that of 16 steps without, minus 1, after
    eight batches that are not timed. A step lasts from the end of one `backward` to the end of the next, so it has
    everything in it: data, forward pass, optimizer.

    Attributes:
        budget: the most time that scores may add to training, as a share of that of the step without them.
        drift: how far mean scores may move from one scored batch to the next.
        most: the longest interval that a lack of drift leads to.
        cost: the time that scoring adds to a step, as a share of it; None to measure it. With a number, what is scored
            depends on data and seeds alone.

    Raises:
        LossError: a value makes no sense.
    """

    budget: float = 0.1
    drift: float = 0.1
    most: int = 16
    cost: float | None = None

    def __post_init__(self) -> None:
        if not (self.budget > 0 and self.drift > 0):
            raise LossError(f"expected a budget and a drift above 0, got {self.budget} and {self.drift}")
        if self.most < 1:
            raise LossError(f"expected most to be at least 1, got {self.most}")
        if self.cost is not None and not 0 <= self.cost < math.inf:
            raise LossError(f"expected a cost from 0, as a share of a step's time, or None, got {self.cost}")


Every = int | Literal["auto"] | AutoEvery


class Interval:
    """Each k-th batch, beginning with the first.

    Attributes:
        length: k.
    """

    def __init__(self, length: int) -> None:
        self.length = length

    def advance(self, batches: int, scores: Mapping[str, Tensor] | None, groups: Tensor | None) -> bool:
        """Take note of a batch, the last of so many, and say whether the next one is scored.

        Its scores [B] come by signal, or as None if it was not scored; the groups of its samples [B], where known.
        """
        return self.is_due(batches)

    def is_due(self, batches: int) -> bool:
        """Whether the batch after so many is scored."""
        return batches % self.length == 0

    def state_dict(self) -> dict[str, Any]:
        """What the next decisions depend on, besides the number of batches."""
        return {}

    def load_state_dict(self, batches: int, state: Mapping[str, Any]) -> bool:
        """Continue from a meter's state after so many batches, and say whether the next one is scored."""
        return self.is_due(batches)


class AutoInterval(Interval):
    """An interval that follows the drift of the scores and what they cost. All ranks decide alike."""

    def __init__(self, config: AutoEvery) -> None:
        super().__init__(1)
        self._config = config
        self._begin()

    def _begin(self) -> None:
        self._clock: float | None = None  # when the batch before ended
        self._next = 0  # the batch that is scored next
        self._cost = self._config.cost
        self._times: list[float] = []
        self._movement = Movement()
        self.length = self._least()

    def _least(self) -> int:
        """The least interval that is within the budget."""
        return 1 if self._cost is None else max(1, math.ceil(round(self._cost / self._config.budget, 6)))

    def advance(self, batches: int, scores: Mapping[str, Tensor] | None, groups: Tensor | None) -> bool:
        """See `Interval`; with several ranks, all have to call it."""
        if scores is not None:
            self._movement.add(scores, groups)
        if self._cost is None:
            self._time(batches)
        elif scores is not None:
            if self._movement.compared >= DECIDE:
                self._decide()
            self._next = batches - 1 + self.length
        return self.is_due(batches)

    def is_due(self, batches: int) -> bool:
        """See `Interval`."""
        return batches >= self._next

    def _time(self, batches: int) -> None:
        """Time batches with scores and then without, and set the least interval when there are enough of both."""
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()  # or the clock would tell how fast work is handed out
        now = time.perf_counter()
        self._times.append(0.0 if self._clock is None else now - self._clock)
        self._clock = now
        count, plain_from, end = len(self._times), WARM + TIMED, WARM + 2 * TIMED
        self._next = batches + (end - count if count >= plain_from else 0)
        if count == end:
            scored, plain = self._times[WARM:plain_from], self._times[plain_from:]
            medians = summed(torch.tensor([statistics.median(scored), statistics.median(plain)], dtype=torch.float64))
            self._cost = max(0.0, float(medians[0] / medians[1]) - 1)
            self._times, self._movement, self.length = [], Movement(), self._least()

    def _decide(self) -> None:
        """Double or halve the interval, or leave it."""
        moved, least = self._movement.read(), self._least()
        if moved > self._config.drift:
            self.length = max(least, self.length // 2)
        elif moved < self._config.drift / 2:
            self.length = max(least, min(2 * self.length, self._config.most))

    def state_dict(self) -> dict[str, Any]:
        """The interval, what was measured, and the mean scores that the next ones are compared with."""
        own = {"length": self.length, "next": self._next, "cost": self._cost, "times": list(self._times)}
        return {"every": {**own, "movement": self._movement.state_dict()}}

    def load_state_dict(self, batches: int, state: Mapping[str, Any]) -> bool:
        """See `Interval`; from the state of a meter with a fixed interval it begins anew."""
        self._begin()
        own = state.get("every")
        if own is not None:
            self.length, self._next, self._cost = own["length"], own["next"], own["cost"]
            self._times = list(own["times"])
            self._movement.load_state_dict(own["movement"])
        return self.is_due(batches)


class Movement:
    """How far the mean scores of groups move from one scored batch to the next, over all ranks.

    With means m and m' of a group in two batches, s and s' their standard errors and a the mean of both batches' mean
    absolute scores, a group gives ((m - m')^2 - s^2 - s'^2) / a^2, whose expectation is the square of the movement. A
    batch gives the mean over the groups that have two samples in both.
    """

    def __init__(self) -> None:
        self.compared = 0
        self._before: dict[str, Tensor] = {}  # by signal [3, GROUPS]: mean, its squared error, mean absolute score
        self._squares: dict[str, list[float]] = {}

    def add(self, scores: Mapping[str, Tensor], groups: Tensor | None) -> None:
        """Compare the scores of a batch, by signal [B], with those of the scored batch before."""
        sums = summed(torch.stack([_sums(own, groups) for own in scores.values()]))
        self.compared += 1
        for name, own in zip(scores, sums, strict=True):
            now = _means(own)
            before = self._before.get(name, torch.full_like(now, math.nan))
            scale = (now[2] + before[2]) / 2
            square = ((now[0] - before[0]).square() - now[1] - before[1]) / scale.square()
            known = square[square.isfinite()]
            if len(known):
                self._squares.setdefault(name, []).append(float(known.mean()))
            self._before[name] = now.where(now.isfinite().all(0), before)

    def read(self) -> float:
        """The movement of the signal that moves most, minus one standard error; NaN if unknown. Begins anew."""
        found = []
        for squares in self._squares.values():
            if len(squares) > 1:
                error = statistics.stdev(squares) / math.sqrt(len(squares))
                found.append(math.sqrt(max(0.0, statistics.fmean(squares) - error)))
        self.compared, self._squares = 0, {}
        return max(found, default=math.nan)

    def state_dict(self) -> dict[str, Any]:
        """Everything."""
        return deepcopy({"compared": self.compared, "before": self._before, "squares": self._squares})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.compared = state["compared"]
        self._before, self._squares = deepcopy(state["before"]), deepcopy(state["squares"])


def _sums(scores: Tensor, groups: Tensor | None) -> Tensor:
    """By group, the number of finite scores [B], and sums of scores, squares and absolute values: [4, GROUPS]."""
    own = scores.detach().cpu().double()
    where = torch.zeros(len(own), dtype=torch.int64) if groups is None else groups.detach().cpu().long() % GROUPS
    finite = own.isfinite()
    own = own.where(finite, 0.0)
    rows = torch.stack([finite.double(), own, own.square(), own.abs()])
    return torch.zeros(len(rows), GROUPS, dtype=torch.float64).index_add_(1, where, rows)


def _means(sums: Tensor) -> Tensor:
    """The mean of each group, its squared error, and the mean absolute score of all: [4, GROUPS] -> [3, GROUPS].

    NaN for groups with fewer than two scores.
    """
    count, total, squares, sizes = sums
    mean = total / count
    variance = (squares - count * mean.square()).clamp(min=0) / (count - 1)
    means = torch.stack([mean, variance / count, (sizes.sum() / count.sum()).expand(GROUPS)])
    return means.masked_fill(count < 2, math.nan)


def interval_for(every: Every) -> Interval:
    """What a meter's argument `every` stands for.

    Raises:
        LossError: `every` is not an interval.
    """
    if isinstance(every, AutoEvery) or every == "auto":
        return AutoInterval(every if isinstance(every, AutoEvery) else AutoEvery())
    if isinstance(every, bool) or not isinstance(cast(object, every), int):
        raise LossError(f"expected every to be a whole number, 'auto' or an AutoEvery, got {every!r}")
    if every < 1:
        raise LossError(f"expected every to be at least 1, got {every}")
    return Interval(every)
