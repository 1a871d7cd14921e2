"""Rules of the literature: EXP3.S, TSCL, ADO, group DRO, self-paced learning and PLR. See `headway.selection.rules`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import SelectionError
from headway.selection.rules import Feedback, Learner
from headway.selection.sources import check_limits
from headway.signals.curves import Curves, slopes


class _Tensors:
    """A learner whose whole state is some tensors by name, the latest shares among them."""

    def __init__(self, rule: _TensorRule, sources: int) -> None:
        self._rule = rule
        self._state = {"shares": _equal(sources), **rule._start(sources)}

    def learn(self, feedback: Feedback) -> None:
        self._state["shares"].copy_(self._rule._learn(self._state, feedback))

    def shares(self) -> Tensor:
        return self._state["shares"]

    def state_dict(self) -> dict[str, Any]:
        return {name: value.clone() for name, value in self._state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in self._state.items():
            value.copy_(state[name])


class _TensorRule:
    """A rule whose learner is `_Tensors`: a subclass says how they start, and which shares follow from a batch."""

    _limits: ClassVar[Mapping[str, tuple[Any, ...]]]
    """Of each attribute the least and the greatest value, or the choices."""

    def __post_init__(self) -> None:
        for name, limits in self._limits.items():
            value = getattr(self, name)
            if not isinstance(limits[0], str):
                least, greatest = limits
                check_limits(**{name: (value, least, greatest)})
            elif value not in limits:
                raise SelectionError(f"expected {name} out of {', '.join(limits)}, got {value!r}")

    def begin(self, sources: int, seed: int) -> Learner:
        """Start with equal shares; nothing here is random."""
        return _Tensors(self, sources)

    def _start(self, sources: int) -> dict[str, Tensor]:
        """The tensors beside the shares."""
        raise NotImplementedError

    def _learn(self, state: dict[str, Tensor], feedback: Feedback) -> Tensor:
        """Take a batch into the tensors; returns the new shares [S]."""
        raise NotImplementedError


def _equal(sources: int) -> Tensor:
    return torch.full((sources,), 1 / sources, dtype=torch.float64)


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.float64)


def _explored(shares: Tensor, explore: float) -> Tensor:
    """Shares [S] of which a part is divided equally."""
    return (1 - explore) * shares + explore / len(shares)


@dataclass(frozen=True)
class EXP3S(_TensorRule):
    """The adversarial bandit EXP3.S, as Graves et al. (2017) use it for curricula.

        shares  p_i = (1 - explore) softmax(w)_i + explore / S
        reward  R_i = (n_i / B) q_i / p_i          importance-weighted; q_i the source's scaled mean score
        w_i  <- log((1 - a) exp(w_i + rate R_i) + a / (S - 1) sum_{j != i} exp(w_j + rate R_j)),   a = 1 / t

    with n_i of the batch's B samples from source i. Scores are scaled to [-1, 1] by the quantiles 0.2 and 0.8 of those
    of the last `history` batches.

    Attributes:
        rate: the step size.
        explore: the share that is divided equally.
        history: mean scores of sources that the quantiles look back on.
    """

    rate: float = 0.01
    explore: float = 0.05
    history: int = 1000

    _limits: ClassVar = {"rate": (0, math.inf), "explore": (0, 1), "history": (2, math.inf)}

    def _start(self, sources: int) -> dict[str, Tensor]:
        return {"log": _zeros(sources), "past": _zeros(self.history), "seen": _zeros(1), "steps": _zeros(1)}

    def _learn(self, state: dict[str, Tensor], feedback: Feedback) -> Tensor:
        present = feedback.counts > 0
        scaled = _scaled(feedback.means[present], state)
        shares, batch = state["shares"], feedback.counts.sum()
        reward = torch.zeros_like(shares)
        reward[present] = feedback.counts[present] / batch * scaled / shares[present]
        state["steps"] += 1
        grown = state["log"] + self.rate * reward
        state["log"].copy_(_mixed(grown - grown.max(), 1 / float(state["steps"])))
        return _explored(state["log"].softmax(0), self.explore)


def _mixed(grown: Tensor, mix: float) -> Tensor:
    """The logarithm of each weight with a little of all others: [S] -> [S]."""
    others = len(grown) - 1
    if not others:
        return grown
    weights = grown.exp()
    return ((1 - mix) * weights + mix / others * (weights.sum() - weights)).clamp(min=1e-300).log()


def _scaled(scores: Tensor, state: dict[str, Tensor]) -> Tensor:
    """Scores [n] in [-1, 1] by the quantiles of the past, which they become a part of."""
    past, seen = state["past"], int(state["seen"])
    places = (seen + torch.arange(len(scores))) % len(past)
    past[places] = scores
    state["seen"] += len(scores)
    known = past[: min(seen + len(scores), len(past))]
    low, high = known.quantile(torch.tensor([0.2, 0.8], dtype=torch.float64)).tolist()
    return (2 * (scores - low) / (high - low) - 1).clamp(-1, 1) if high > low else torch.zeros_like(scores)


@dataclass(frozen=True)
class TSCL(_TensorRule):
    """Teacher-student curriculum learning (Matiisen et al., 2017): more of the sources whose score changes fastest.

    The score's slope Q of each source comes from its batches: "online", an average Q <- (1 - rate) Q + rate (x_t -
    x_{t-1}) of changes; "window", a straight line through its last `window` mean scores. Shares follow |Q|, so that
    sources that are being forgotten come back.

    Attributes:
        slope: "online" or "window".
        policy: "boltzmann", softmax(|Q| / temperature) with |Q| divided by the greatest; or "greedy", all but
            `explore` for the source of the greatest |Q|.
        rate: of the online average.
        window: batches of a source.
        temperature: of the Boltzmann policy.
        explore: the share that is divided equally.
    """

    slope: Literal["online", "window"] = "window"
    policy: Literal["boltzmann", "greedy"] = "boltzmann"
    rate: float = 0.1
    window: int = 20
    temperature: float = 0.5
    explore: float = 0.1

    _limits: ClassVar = {
        "rate": (0, 1),
        "window": (3, math.inf),
        "temperature": (1e-9, math.inf),
        "explore": (0, 1),
        "slope": ("online", "window"),
        "policy": ("boltzmann", "greedy"),
    }

    def _start(self, sources: int) -> dict[str, Tensor]:
        return {"window": _zeros(sources, self.window), "seen": _zeros(sources), "q": _zeros(sources)}

    def _learn(self, state: dict[str, Tensor], feedback: Feedback) -> Tensor:
        present = feedback.counts > 0
        window, had = state["window"], present & (state["seen"] > 0)
        change = torch.where(had, feedback.means - window[:, -1], 0.0)
        shifted = torch.cat([window[:, 1:], feedback.means.unsqueeze(1)], dim=1)
        window.copy_(torch.where(present.unsqueeze(1), shifted, window))
        state["seen"] += present
        if self.slope == "online":
            state["q"] += torch.where(had, self.rate * (change - state["q"]), 0.0)
        else:
            state["q"].copy_(slopes(window, state["seen"].long()))
        size = state["q"].abs()
        best = float(size.max())
        if best == 0:
            return _equal(len(size))
        if self.policy == "greedy":
            chosen = F.one_hot(size.argmax(), len(size)).double()
        else:
            chosen = (size / best / self.temperature).softmax(0)
        return _explored(chosen, self.explore)


@dataclass(frozen=True)
class ADO(_TensorRule):
    """Adaptive data optimization (Jiang et al., 2024): shares follow how fast each source's scaling law falls.

    Scores must be losses (`Curiosity()`). A power law e + b n^-a is fitted to each source's curve; then

        preference  r_i = c_i^credit (-dL_i/dn) / sum      c the average of past shares
        shares      p   = mix r + (1 - mix) (average of all shares so far), at least `least`

    Attributes:
        refit: batches between two fits; shares stay equal until the first.
        credit: how far a source's fall is credited to its own samples.
        mix: how much of the preference enters.
        smoothing: how much of the average of past shares is kept from one batch to the next.
        least: the least share of a source.
    """

    refit: int = 20
    credit: float = 0.5
    mix: float = 0.1
    smoothing: float = 0.9
    least: float = 0.01

    _limits: ClassVar = {"refit": (1, math.inf)} | dict.fromkeys(("credit", "mix", "smoothing", "least"), (0, 1))

    def _start(self, sources: int) -> dict[str, Tensor]:
        curves: dict[str, Tensor] = {}
        Curves(curves, sources)
        averages = {name: _equal(sources) for name in ("recent", "average", "preference")}
        return {**curves, **averages, "steps": _zeros(1)}

    def _learn(self, state: dict[str, Tensor], feedback: Feedback) -> Tensor:
        curves = Curves(state, len(feedback.counts))
        curves.add(feedback.means * feedback.counts, feedback.counts)
        state["steps"] += 1
        steps = float(state["steps"])
        state["recent"].lerp_(state["shares"], 1 - self.smoothing)
        state["average"].lerp_(state["shares"], 1 / steps)
        if steps % self.refit == 0:
            fall = curves.fit().slope(state["seen"])
            if bool((fall > 0).any()):
                credited = state["recent"].pow(self.credit) * fall
                state["preference"].copy_(credited / credited.sum())
        if steps >= self.refit:
            shares = (self.mix * state["preference"] + (1 - self.mix) * state["average"]).clamp(min=self.least)
            return shares / shares.sum()
        return state["shares"]


@dataclass(frozen=True)
class GroupDRO(_TensorRule):
    """Group distributionally robust optimization, as in DoReMi (Xie et al., 2023; Sagawa et al., 2020).

        w <- w * exp(rate * max(score, 0)),   shares = (1 - explore) w / sum + explore / S

    Scores are losses for the worst group, or `Excess` losses for DoReMi. DoReMi trains with the average of the shares
    in the end: `average=True`.

    Attributes:
        rate: the step size, in the scores' own unit.
        explore: the share that is divided equally.
        average: use the average of the shares of all batches so far.
    """

    rate: float = 1.0
    explore: float = 1e-3
    average: bool = False

    _limits: ClassVar = {"rate": (0, math.inf), "explore": (0, 1)}

    def _start(self, sources: int) -> dict[str, Tensor]:
        return {"log": _zeros(sources), "steps": _zeros(1)}

    def _learn(self, state: dict[str, Tensor], feedback: Feedback) -> Tensor:
        state["log"] += self.rate * feedback.smoothed.clamp(min=0)
        state["log"] -= state["log"].max()
        state["steps"] += 1
        shares = _explored(state["log"].softmax(0), self.explore)
        return state["shares"].lerp(shares, 1 / float(state["steps"]) if self.average else 1.0)


@dataclass(frozen=True)
class SelfPaced(_TensorRule):
    """Self-paced learning (Kumar et al., 2010) over sources: easy ones first, the others as time goes on.

    A source takes part, with all others that do in equal shares, while its smoothed score (a loss) is at most the
    quantile q of all sources' scores; q rises from `start` to 1 over `steps` batches.

    Attributes:
        start: the share of the sources that takes part at first.
        steps: batches until all do.
        explore: the share that is divided equally.
    """

    start: float = 0.3
    steps: int = 1000
    explore: float = 0.1

    _limits: ClassVar = {"start": (0, 1), "steps": (1, math.inf), "explore": (0, 1)}

    def _start(self, sources: int) -> dict[str, Tensor]:
        return {"batches": _zeros(1)}

    def _learn(self, state: dict[str, Tensor], feedback: Feedback) -> Tensor:
        state["batches"] += 1
        level = min(1.0, self.start + (1 - self.start) * float(state["batches"]) / self.steps)
        easy = (feedback.smoothed <= feedback.smoothed.quantile(level)).double()
        return (1 - self.explore) * easy / easy.sum() + self.explore / len(easy)


@dataclass(frozen=True)
class PLR(_TensorRule):
    """Prioritized level replay (Jiang et al., 2021): more of the sources with the greatest scores.

        share of i  h_i^(1 / temperature) / sum_j h_j^(1 / temperature),     h = 1 / rank, or the score itself

    Rank 1 is the greatest smoothed score; equal scores share the mean of their ranks. A source without a score counts
    as much as the best. The paper mixes in how long ago each was last drawn: `LevelSampler` does.

    Attributes:
        temperature: the greater, the more equal the shares; 0.1 in the paper.
        priority: "rank", or "proportional" for scores that are not negative.
    """

    temperature: float = 0.1
    priority: Literal["rank", "proportional"] = "rank"

    _limits: ClassVar = {"temperature": (1e-3, math.inf), "priority": ("rank", "proportional")}

    def _start(self, sources: int) -> dict[str, Tensor]:
        return {"seen": _zeros(sources)}

    def _learn(self, state: dict[str, Tensor], feedback: Feedback) -> Tensor:
        state["seen"] += feedback.counts > 0
        seen = state["seen"] > 0
        worth = scores = feedback.smoothed[seen]
        if self.priority == "rank":
            ordered = scores.sort().values
            below, up_to = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
            worth = 1 / (len(scores) - (below + up_to - 1).double() / 2)
        elif bool((scores < 0).any()):
            raise SelectionError(f"expected scores from 0 for proportional priorities, got {float(scores.min())}")
        weights = torch.ones_like(feedback.smoothed)
        weights[seen] = (worth / worth.max()).pow(1 / self.temperature) if bool(worth.any()) else 1.0
        return weights / weights.sum()
