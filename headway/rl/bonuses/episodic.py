"""Bonuses of single episodes: what is stored of one is dropped at its end.

`EpisodicMemory` is what they share; E3B and NGU reward features that are new in the episode.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from headway.rl.bonuses.bonus import Memory, check_above_zero, check_least, register_bonus, with_options
from headway.rl.bonuses.icm import ICM
from headway.rl.bonuses.rnd import RND
from headway.rl.episodes import Transitions, segments
from headway.rl.normalise import RunningMoments

CHUNK = 256
"""E3B: transitions of an episode that are scored at once; the cost per transition grows with their square."""

Episode = TypeVar("Episode")
Rows = TypeVar("Rows")


class EpisodicMemory(Memory, Generic[Rows, Episode]):
    """A memory that begins anew with each episode of each environment.

    Transitions are followed in the order of time, whether they are stored or only scored: a transition is scored by
    those before it in its episode, also where they are of the same batch.
    """

    is_episodic = True

    def __init__(self) -> None:
        super().__init__()
        self._episodes: dict[int, Episode] = {}

    @abstractmethod
    def read(self, batch: Transitions) -> Rows:
        """What `follow` needs to know about transitions."""

    @abstractmethod
    def follow(self, episode: Episode | None, rows: Rows, places: Tensor) -> tuple[Tensor, Episode]:
        """Go on with an episode.

        Args:
            episode: what is stored of it; it must not be changed. None if it begins.
            rows: of all transitions.
            places: those of the episode [n], in the order of time.

        Returns:
            a result for each of them [n, ...], and what is stored of the episode now.
        """

    def finish(self, results: Tensor, batch: Transitions, store: bool) -> Tensor:
        """From the results [N, ...] to scores [N]."""
        return results

    def score(self, batch: Transitions) -> Tensor:
        """See `Memory.score`."""
        return self._go(batch, store=False)

    def remember(self, batch: Transitions) -> None:
        """See `Memory.remember`."""
        self._go(batch, store=True)

    def remember_and_score(self, batch: Transitions) -> Tensor:
        """See `Memory.remember_and_score`."""
        return self._go(batch, store=True)

    def end_episodes(self, envs: Sequence[int] | None = None) -> None:
        """See `Memory.end_episodes`."""
        for env in list(self._episodes) if envs is None else envs:
            self._episodes.pop(env, None)

    def _go(self, batch: Transitions, store: bool) -> Tensor:
        pieces, episodes = list(segments(batch)), dict(self._episodes)
        rows, results = self.read(batch), []
        for env, places, ended in pieces:
            result, episode = self.follow(episodes.pop(env, None), rows, places)
            results.append(result)
            if not ended:
                episodes[env] = episode
        if store:
            self._episodes = episodes
        order = torch.cat([places for _, places, _ in pieces]).argsort()
        return self.finish(torch.cat(results)[order], batch, store)

    def get_extra_state(self) -> dict[int, Any]:
        """What is stored of each environment's episode."""
        return dict(self._episodes)

    def set_extra_state(self, state: Mapping[int, Any]) -> None:
        """Put it back."""
        self._episodes = dict(state)


@register_bonus("e3b")
class E3B(EpisodicMemory[Tensor, Tensor]):
    """The elliptical bonus r_t = f_t' C^-1 f_t, with C = ridge I + sum of f_i f_i' over the episode so far.

    f_t are the features of the next observation, from an encoder that learns to tell the actions (that of `ICM`). A
    feature that comes again is worth less; C is ridge I again when an episode ends.

    The bonuses of n steps come from one factorisation: with A = C^-1 before them, F [n, features] and the Cholesky
    factor L of I + F A F', r_t = L_tt^2 - 1, and afterwards C^-1 = A - W' W with W = L^-1 F A.

    M. Henaff, R. Raileanu, M. Jiang and T. Rocktaeschel, Exploration via Elliptical Episodic Bonuses (2022).

    Args:
        ridge: the size of C when an episode begins, above 0; the first bonus is the squared length of the features
            over it.
    """

    trained = ("icm",)

    @with_options
    def __init__(self, *given: Any, ridge: float = 0.1) -> None:
        super().__init__()
        check_above_zero(ridge=ridge)
        self.ridge = ridge
        self.icm = ICM(*given)
        self.actions = self.icm.actions

    def read(self, batch: Transitions) -> Tensor:
        """The features of next observations [N, features]."""
        return self.icm.encode(batch)[1].double()

    def follow(self, episode: Tensor | None, rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """The bonuses [n], and C^-1 after them [features, features]."""
        size = rows.shape[1]
        inverse = torch.eye(size).to(rows) / self.ridge if episode is None else episode.to(rows)
        bonuses = []
        for features in rows[places].split(CHUNK):
            spread = features @ inverse
            factor = torch.linalg.cholesky(torch.eye(len(features)).to(rows) + spread @ features.T)
            bonuses.append(factor.diagonal().square() - 1)
            whitened = torch.linalg.solve_triangular(factor, spread, upper=False)
            inverse = inverse - whitened.T @ whitened
        return torch.cat(bonuses).clamp(min=0), inverse


@register_bonus("ngu")
class NGU(EpisodicMemory[tuple[Tensor, Tensor], Tensor]):
    """Novelty within the episode, r_ep, times novelty over the agent's life.

        r = r_ep min(max(1 + (e - mean e) / std e, 1), limit)
        r_ep = 1 / (sqrt(sum of K(f_i)) + 0.001), over the k nearest features f_i of the episode so far
        K(f_i) = 1e-4 / (max(|f - f_i|^2 / d_m^2 - 0.008, 0) + 1e-4), d_m^2 the running mean of |f - f_i|^2

    where e is RND's error, or with a scorer, as in `ngu+gmc`, what that scorer makes of RND. r_ep is zero where
    sqrt(...) + 0.001 > 8. f are the features of the next observation, from the encoder of `ICM`; those of the first
    observation are stored when an episode begins. The means take a rollout in before it is scored.

    A. Puigdomenech Badia et al., Never Give Up: Learning Directed Exploration Strategies (2020).

    Args:
        neighbours: k, at least 1.
        capacity: features of an episode that are stored, the newest ones; at least 1.
        limit: of what novelty over the agent's life can multiply a reward by; at least 1.
    """

    trained = ("icm", "rnd")
    scored = "rnd"

    @with_options
    def __init__(self, *given: Any, neighbours: int = 10, capacity: int = 5000, limit: float = 5.0) -> None:
        super().__init__()
        check_least(1, neighbours=neighbours, capacity=capacity, limit=limit)
        self.neighbours, self.capacity, self.limit = neighbours, capacity, limit
        self.icm, self.rnd = ICM(*given), RND(*given)
        self.actions = self.icm.actions
        self.distances, self.novelty = RunningMoments(), RunningMoments()

    def read(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """The features of observations and of next observations [N, features]."""
        return self.icm.encode(batch)

    def follow(self, episode: Tensor | None, rows: tuple[Tensor, Tensor], places: Tensor) -> tuple[Tensor, Tensor]:
        """The squared distances to the k nearest features before [n, k], infinite where there are fewer."""
        before, after = rows
        earlier = before[places[:1]] if episode is None else episode.to(before)
        own = after[places]
        every = torch.cat([earlier, own])
        squares = torch.cdist(own, every, compute_mode="donot_use_mm_for_euclid_dist").square()
        later = torch.ones_like(squares, dtype=torch.bool).triu(len(earlier))
        nearest = squares.masked_fill(later, math.inf).topk(min(self.neighbours, len(every)), dim=1, largest=False)
        missing = self.neighbours - nearest.values.shape[1]
        return torch.nn.functional.pad(nearest.values, (0, missing), value=math.inf), every[-self.capacity :]

    def finish(self, results: Tensor, batch: Transitions, store: bool) -> Tensor:
        """From squared distances [N, k] to scores [N]."""
        novelty = self.measures["rnd"](batch)
        near = results[results.isfinite()]
        if store:
            self.distances.update(near)
            self.novelty.update(novelty)
        moments = self.novelty.or_of(novelty)
        factors = (1 + (novelty - moments.mean) / moments.divisor).clamp(1, self.limit)
        mean = self.distances.or_of(near).mean
        relative = results / torch.where(mean > 0, mean, 1.0).to(results)
        kernels = 1e-4 / ((relative - 0.008).clamp(min=0) + 1e-4)
        similarity = kernels.sum(1).sqrt() + 1e-3
        return torch.where(similarity > 8.0, 0.0, 1 / similarity) * factors.to(novelty)
