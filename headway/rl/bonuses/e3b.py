"""E3B: what is new in this episode, in features that the agent's actions shape.

M. Henaff, R. Raileanu, M. Jiang and T. Rocktaeschel, Exploration via Elliptical Episodic Bonuses (2022).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.errors import MethodError
from headway.rl.bonuses.bonus import register_bonus
from headway.rl.bonuses.episodic import EpisodicMemory
from headway.rl.bonuses.icm import ICM
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig

CHUNK = 256
"""Transitions of an episode that are scored at once: the cost per transition grows with their square."""


@register_bonus("e3b")
class E3B(EpisodicMemory[Tensor, Tensor]):
    """The elliptical bonus r_t = f_t' C^-1 f_t, with C = ridge I + sum of f_i f_i' over the episode so far.

    f_t are the features of the next observation, from an encoder that learns to tell the actions (that of `ICM`). A
    feature that comes again is worth less; C is ridge I again when an episode ends.

    The bonuses of n steps come from one factorisation: with A = C^-1 before them, F [n, features] and the Cholesky
    factor L of I + F A F', r_t = L_tt^2 - 1, and afterwards C^-1 = A - W' W with W = L^-1 F A.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: the encoder and how it is trained.
        generator: where the weights come from.
        ridge: the size of C when an episode begins; the first bonus is the squared length of the features over it.

    Raises:
        EnvError: a space that has no coding.
        MethodError: a ridge that is not above 0.
    """

    trained = ("icm",)

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        ridge: float = 0.1,
    ) -> None:
        super().__init__()
        if not ridge > 0:
            raise MethodError(f"ridge: expected a number above 0, got {ridge}")
        self.ridge = ridge
        self.icm = ICM(observation_space, action_space, config, generator)
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
