"""Never Give Up: what is new in this episode, more so where it is new altogether.

A. Puigdomenech Badia et al., Never Give Up: Learning Directed Exploration Strategies (2020).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from headway.errors import MethodError
from headway.rl.bonuses.bonus import register_bonus
from headway.rl.bonuses.episodic import EpisodicMemory
from headway.rl.bonuses.icm import ICM
from headway.rl.bonuses.rnd import RND
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.normalise import RunningMoments

EPSILON = 1e-4
"""Of the kernel."""
CLUSTER = 0.008
"""Distances below this share of the mean count as none."""
CONSTANT = 1e-3
"""Under the fraction, so that nothing is worth infinitely much."""
SIMILAR = 8.0
"""The similarity from which a state is worth nothing."""


@register_bonus("ngu")
class NGU(EpisodicMemory[tuple[Tensor, Tensor], Tensor]):
    """Novelty within the episode, r_ep, times novelty over the agent's life.

        r = r_ep min(max(1 + (e - mean e) / std e, 1), limit)
        r_ep = 1 / (sqrt(sum of K(f_i)) + c), over the k nearest features f_i of the episode so far
        K(f_i) = epsilon / (max(|f - f_i|^2 / d_m^2 - 0.008, 0) + epsilon), d_m^2 the running mean of |f - f_i|^2

    where e is RND's error, or with a scorer, as in `ngu+gmc`, what that scorer makes of RND. r_ep is zero where
    sqrt(...) + c > 8. f are the features of the next observation, from the encoder of `ICM`; those of the first
    observation are stored when an episode begins. The means take a rollout in before it is scored.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: the networks and how they are trained.
        generator: where the weights come from.
        neighbours: k.
        capacity: features of an episode that are stored, the newest ones.
        limit: of what novelty over the agent's life can multiply a reward by.

    Raises:
        EnvError: a space that has no coding.
        MethodError: a number below 1.
    """

    trained = ("icm", "rnd")
    scored = "rnd"

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        neighbours: int = 10,
        capacity: int = 5000,
        limit: float = 5.0,
    ) -> None:
        super().__init__()
        for name, number in (("neighbours", neighbours), ("capacity", capacity), ("limit", limit)):
            if not number >= 1:
                raise MethodError(f"{name}: expected at least 1, got {number}")
        self.neighbours, self.capacity, self.limit = neighbours, capacity, limit
        self.icm = ICM(observation_space, action_space, config, generator)
        self.rnd = RND(observation_space, action_space, config, generator)
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
        return _episodic(results, _known(self.distances, near).mean) * self._modulation(novelty)

    def _modulation(self, novelty: Tensor) -> Tensor:
        moments = _known(self.novelty, novelty)
        deviation = torch.where(moments.deviation > 0, moments.deviation, 1.0)
        return (1 + (novelty - moments.mean) / deviation).clamp(1, self.limit).to(novelty)


def _known(moments: RunningMoments, values: Tensor) -> RunningMoments:
    """Statistics, or those of the values [n] where there are none yet."""
    if not moments.is_empty:
        return moments
    own = RunningMoments().to(values.device)
    own.update(values)
    return own


def _episodic(squares: Tensor, mean: Tensor) -> Tensor:
    """r_ep [N] from squared distances [N, k] and their mean []."""
    relative = squares / torch.where(mean > 0, mean, 1.0).to(squares)
    kernels = EPSILON / ((relative - CLUSTER).clamp(min=0) + EPSILON)
    similarity = kernels.sum(1).sqrt() + CONSTANT
    return torch.where(similarity > SIMILAR, 0.0, 1 / similarity)
