"""RIDE: reward actions that change much, and less where the agent has been in this episode.

R. Raileanu and T. Rocktaeschel, RIDE: Rewarding Impact-Driven Exploration for Procedurally-Generated
Environments (2020).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.rl.bonuses.bonus import register_bonus
from headway.rl.bonuses.counts import Codes
from headway.rl.bonuses.episodic import EpisodicCounts
from headway.rl.bonuses.icm import ICM
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig


@register_bonus("ride")
class RIDE(EpisodicCounts):
    """r(s, a, s') = |f(s') - f(s)| / sqrt(N_ep(s')), with f the features of an `ICM` that is trained beside it.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: the ICM and how it is trained.
        generator: where the weights come from.
        code: how states are told apart within an episode, see `Codes`.

    Raises:
        EnvError: a space that has no coding.
        MethodError: no such code.
    """

    trained = ("icm",)

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        code: str = "auto",
    ) -> None:
        super().__init__()
        self.icm = ICM(observation_space, action_space, config, generator)
        self.actions = self.icm.actions
        self.codes = Codes(observation_space, config, generator, code)

    def finish(self, results: Tensor, batch: Transitions, store: bool) -> Tensor:
        """From visits [N] to scores [N]."""
        before, after = self.icm.encode(batch)
        return (after - before).norm(dim=1) * results.rsqrt()
