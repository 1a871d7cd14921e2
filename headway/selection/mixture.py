"""A mixture of named sources whose shares follow scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from headway.errors import SelectionError, StateError, warn
from headway.ranks import summed
from headway.selection.rules import Feedback, MultiplicativeWeights, Rule
from headway.selection.sources import check_limits, listed, numbers_of, places_of

Bound = float | Mapping[str, float]
"""One number for every source, or a number by name; sources that are not named are not bounded."""

Prior = Mapping[str, float] | Sequence[float] | None
"""The shares to start from, by name or in the sources' order, in any unit; None for equal ones."""

_HOLD = 0.2
"""How far the default rule's shares are held to the prior; docs/mixtures.md has the runs that chose it."""


class Mixture:
    """Shares of named sources, which follow the scores that their samples get.

    Args:
        names: the sources.
        rule: how scores become shares; `MultiplicativeWeights()` or `PolicyGradient()`.
        floor: the least share of every source, or of some by name.
        ceiling: the greatest share of every source, or of some by name.
        prior: the shares to start from, by name or in the sources' order, in any unit (sizes will do); equal ones by
            default. The rule's shares are multiplied with them.
        hold: how far shares are held to the prior, in [0, 1]: hold * prior + (1 - hold) * shares. By default 0.2 with
            the default rule, as the study of mixtures chose it, and 0 with any other rule.
        smoothing: how much of a source's smoothed score is kept from one batch to the next, in [0, 1). It is raised to
            the power of the batches since the latest that was scored, as `update` has counted them.
        seed: for rules that draw random numbers.
        sync: add the scores up over the processes of torch.distributed, where it is in use, so that all have the same
            shares; `update` must then be called in all of them.

    Raises:
        SelectionError: the arguments make no sense.
    """

    def __init__(
        self,
        names: Sequence[str],
        rule: Rule | None = None,
        *,
        floor: Bound = 0.0,
        ceiling: Bound = 1.0,
        prior: Prior = None,
        hold: float | None = None,
        smoothing: float = 0.9,
        seed: int = 0,
        sync: bool = True,
    ) -> None:
        if not names or isinstance(names, str):
            raise SelectionError(f"expected at least one name, in a list, got {names!r}")
        if not 0 <= smoothing < 1:
            raise SelectionError(f"expected smoothing in [0, 1), got {smoothing}")
        self._follows_state = hold is None  # a state that is loaded says how far to hold
        if hold is None:
            hold = _HOLD if rule is None else 0.0
        check_limits(hold=(hold, 0, 1))
        rule = MultiplicativeWeights() if rule is None else rule
        if not isinstance(rule, Rule):
            raise SelectionError(f"expected a rule such as MultiplicativeWeights(), got {rule!r}")
        self.names = tuple(names)
        self._bounds = Bounds(self.names, floor, ceiling)
        self.prior = _as_shares(self.names, prior)
        self._has_prior = prior is not None
        self._hold, self._smoothing = hold, smoothing
        self._sync = sync
        self._learner = rule.begin(len(self.names), seed)
        self._scores = torch.zeros(len(self.names), dtype=torch.float64)
        self._seen = torch.zeros(len(self.names), dtype=torch.int64)
        self._unscored = 0  # batches since the latest that was scored
        self.skipped = 0
        self.version = 0
        self._shared: Tensor | None = None
        self._set_shares()

    def __len__(self) -> int:
        """The number of sources."""
        return len(self.names)

    @property
    def weights(self) -> dict[str, float]:
        """The share of every source by name; they add up to 1."""
        return dict(zip(self.names, self.shares.tolist(), strict=True))

    @property
    def scores(self) -> dict[str, float | None]:
        """The smoothed score of every source by name; None for one that has not been seen."""
        pairs = zip(self._scores.tolist(), self._seen.tolist(), strict=True)
        return dict(zip(self.names, [score if seen else None for score, seen in pairs], strict=True))

    @property
    def seen(self) -> Tensor:
        """Which sources have a score [S], bool."""
        return self._seen > 0

    def update(
        self, source_ids: Tensor | Sequence[int] | Sequence[str], scores: Tensor | Sequence[float] | None
    ) -> None:
        """Take in the scores of a batch; the shares follow at once.

        Scores that are NaN or infinite are left out, and counted in `skipped`. Before the first score that is not
        zero, batches of zeros change nothing.

        Args:
            source_ids: the source of each sample [B], by number or by name.
            scores: one per sample [B], of any signal, in any unit; None for a batch that the meter did not score. It
                leaves the shares as they are, and is counted: the next scores move them as far as those of all batches
                in between would have.

        Raises:
            SelectionError: other shapes, the scores of several signals, or sources that there are not.
        """
        if scores is None:
            self._unscored += 1
            return
        if isinstance(scores, Mapping):
            raise SelectionError(
                f"expected the scores of one signal, got those of {', '.join(map(str, scores)) or 'none'} by name; "
                f"pass scores[{next(iter(scores), 'gmc')!r}]"
            )
        values = torch.as_tensor(scores).detach().flatten()
        ids = numbers_of(self.names, source_ids)
        if ids.shape != values.shape:
            raise SelectionError(f"expected {len(ids)} scores, one for each name or number, got {len(values)}")
        totals = self._totals(ids, values)
        self._learn(totals[0], totals[1].long())

    def feedback(self, values: Mapping[str, float]) -> None:
        """Take in one number for each of some sources, such as a validation loss, in place of a batch's scores.

        Raises:
            SelectionError: there is no such source.
        """
        self.update(
            places_of(self.names, values),
            torch.tensor([float(value) for value in values.values()], dtype=torch.float64),
        )

    def _totals(self, ids: Tensor, values: Tensor) -> Tensor:
        """Sums of scores and numbers of samples, over all processes: [2, S]."""
        values = values.to(torch.float32 if values.device.type == "mps" else torch.float64)
        ids = ids.to(values.device)
        if not math.isfinite(float(values.sum())):
            finite = values.isfinite()
            bad = len(values) - int(finite.sum())
            if not self.skipped:
                warn(f"{bad} of {len(values)} scores are NaN or infinite and are left out")
            self.skipped += bad
            ids, values = ids[finite], values[finite]
        totals = values.new_empty(2, len(self))
        totals[0], totals[1] = torch.bincount(ids, values, len(self)), torch.bincount(ids, minlength=len(self))
        return (summed(totals) if self._sync else totals.cpu()).double()

    def _learn(self, sums: Tensor, counts: Tensor) -> None:
        batches, self._unscored = self._unscored + 1, 0
        speed = float(torch.tensor(1 - self._smoothing**batches))  # in float32, as it has always been
        means = sums / counts.clamp(min=1)
        present, seen = counts > 0, self.seen
        if not bool(present.any()) or not (bool(seen.any()) or bool(sums.any())):
            return  # GMC's first batch has no momentum to couple to: that all its scores are zero says nothing
        self._scores = self._scores + torch.where(seen, speed, 1.0) * present * (means - self._scores)
        self._seen += present
        known = self.seen
        smoothed = torch.where(known, self._scores, self._scores[known].mean())
        self._learner.learn(Feedback(smoothed, means, counts, batches))
        self._set_shares()

    def _set_shares(self) -> None:
        shares = self._learner.shares()
        if self._has_prior or self._hold > 0:
            tilted = shares * self.prior
            shares = torch.lerp(tilted / tilted.sum(), self.prior, self._hold)
        self._apply(self._bounds.apply(shares), self.version + 1)
        if self._shared is not None:
            self._publish(self._shared)

    def _apply(self, shares: Tensor, version: int) -> None:
        self.shares = shares
        self._edges = shares.cumsum(0)
        self._edges[self._bounds.last :] = 1.0  # rounding must not leave a gap, nor give it to a source without a share
        self.version = version

    def choose(self, uniforms: Tensor) -> Tensor:
        """The sources that uniform numbers in [0, 1) stand for under the present shares: [n] -> [n].

        Raises:
            SelectionError: a worker of a DataLoader asks, and the mixture is not in shared memory.
        """
        self.follow()
        return torch.searchsorted(self._edges, uniforms, right=True)

    # Workers of a DataLoader

    def share_memory(self) -> Mixture:
        """Keep the shares in shared memory from now on, so that updates reach the workers of a DataLoader.

        Call it before the workers start; `SourceStream` does. Updates belong into the training process alone.
        """
        if self._shared is None:
            self._shared = torch.zeros(3, len(self), dtype=torch.float64).share_memory_()
            self._publish(self._shared)
        return self

    def _publish(self, shared: Tensor) -> None:
        """Write the shares to the row that no one reads, then name it by the version: [3, S], the last row for that."""
        shared[self.version % 2] = self.shares
        shared[2, 0] = self.version

    def follow(self) -> Tensor:
        """The shares [S], in a worker of a DataLoader those that the training process has set."""
        if get_worker_info() is None:
            return self.shares
        if self._shared is None:
            raise SelectionError(
                "expected a mixture in shared memory, got a worker's own copy, which no update reaches; use "
                "SourceStream, or call mixture.share_memory() before the loader starts its workers"
            )
        version = int(self._shared[2, 0])
        while version != self.version:
            shares = self._shared[version % 2].clone()
            latest = int(self._shared[2, 0])
            if latest == version:
                self._apply(shares, version)
            version = latest
        return self.shares

    def state_dict(self) -> dict[str, Any]:
        """Everything that later shares depend on."""
        return {
            "names": list(self.names),
            "scores": self._scores.clone(),
            "seen": self._seen.clone(),
            "unscored": self._unscored,
            "skipped": self.skipped,
            "hold": self._hold,
            "rule": self._learner.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, also with its hold if none was given here (earlier states had 0 by default).

        Raises:
            StateError: it belongs to other sources or another rule.
        """
        if list(state.get("names", [])) != list(self.names):
            got = listed(list(state.get("names", ()))) or "none"
            raise StateError(f"expected a state of {listed(self.names)}, got one of {got}")
        if set(state["rule"]) != set(self._learner.state_dict()):
            raise StateError(
                f"expected the state of a rule with {sorted(self._learner.state_dict())}, got {sorted(state['rule'])}; "
                f"make it with the rule that it was saved with"
            )
        self._learner.load_state_dict(state["rule"])
        self._scores = state["scores"].clone()
        self._seen = state["seen"].clone()
        self._unscored = state.get("unscored", 0)
        if self._follows_state:
            self._hold = float(state.get("hold", 0.0))
        self.skipped = state["skipped"]
        self._set_shares()


class FollowsScores:
    """What draws by a mixture: a batch's scores change its shares."""

    mixture: Mixture

    def update(
        self, source_ids: Tensor | Sequence[int] | Sequence[str], scores: Tensor | Sequence[float] | None
    ) -> None:
        """Take in the scores of a batch: the source of each sample [B], by number or name, and its score [B].

        None stands for a batch that the meter did not score; see `Mixture.update`.
        """
        self.mixture.update(source_ids, scores)

    def feedback(self, values: Mapping[str, float]) -> None:
        """Take in one number for each of some sources by name, such as a validation loss; see `Mixture.feedback`."""
        self.mixture.feedback(values)

    @property
    def weights(self) -> dict[str, float]:
        """The share of every source by name."""
        return self.mixture.weights

    def __repr__(self) -> str:
        shares = ", ".join(f"{name}: {share:.3f}" for name, share in self.weights.items())
        return f"{type(self).__name__}({shares})"


class Bounds:
    """The least and the greatest share of every source; shares that add up to 1 must lie between them."""

    def __init__(self, names: Sequence[str], floor: Bound = 0.0, ceiling: Bound = 1.0) -> None:
        self.low, self.high = _spread(names, floor, 0.0, "floor"), _spread(names, ceiling, 1.0, "ceiling")
        for name, low, high in zip(names, self.low.tolist(), self.high.tolist(), strict=True):
            if low > high:
                raise SelectionError(f"{name}: expected a floor below the ceiling, got {low} and {high}")
        least, greatest, slack = float(self.low.sum()), float(self.high.sum()), 1e-9  # for rounding
        if least > 1 + slack:
            raise SelectionError(f"expected floors that add up to at most 1, got {least:.4g}")
        if greatest < 1 - slack:
            raise SelectionError(f"expected ceilings that add up to at least 1, got {greatest:.4g}")
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
        sums = (points.unsqueeze(1) * tiny).clamp(self.low, self.high).sum(1)
        above = int(torch.searchsorted(sums, torch.tensor(1.0, dtype=sums.dtype)))
        if above == 0:
            factor = points[0]
        elif above == len(points):
            factor = points[-1]
        else:
            rise = sums[above] - sums[above - 1]
            share = (1.0 - sums[above - 1]) / rise if rise > 0 else torch.zeros((), dtype=sums.dtype)
            factor = points[above - 1] + share * (points[above] - points[above - 1])
        bounded = (factor * tiny).clamp(self.low, self.high)
        return bounded / bounded.sum()


def _spread(names: Sequence[str], bound: Bound, default: float, what: str) -> Tensor:
    """A bound for every source: [S]."""
    spread = torch.full((len(names),), default, dtype=torch.float64)
    if isinstance(bound, Mapping):
        spread[places_of(names, bound)] = torch.tensor(list(bound.values()), dtype=torch.float64)
    else:
        spread.fill_(float(bound))
    if not bool(((spread >= 0) & (spread <= 1)).all()):
        raise SelectionError(f"expected a {what} from 0 to 1, got {bound}")
    return spread


def _as_shares(names: Sequence[str], prior: Prior) -> Tensor:
    """A prior as shares that add up to 1: [S]."""
    if prior is None:
        return torch.full((len(names),), 1 / len(names), dtype=torch.float64)
    if isinstance(prior, Mapping):
        if set(prior) != set(names):
            raise SelectionError(f"expected a prior of the sources {list(names)}, got {list(prior)}")
        prior = [prior[name] for name in names]
    shares = torch.tensor([float(value) for value in prior], dtype=torch.float64)
    if len(shares) != len(names) or not bool((shares > 0).all()) or not bool(shares.isfinite().all()):
        raise SelectionError(f"expected a prior above 0 for each of {len(names)} sources, got {list(prior)}")
    return shares / shares.sum()
