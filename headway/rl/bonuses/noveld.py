"""NovelD: reward crossing from what is known into what is new, once an episode.

T. Zhang et al., BeBold: Exploration Beyond the Boundary of Explored Regions (2020); T. Zhang et al., NovelD: A Simple
yet Effective Exploration Criterion (2021).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.errors import MethodError
from headway.rl.bonuses.bonus import register_bonus
from headway.rl.bonuses.counts import Codes
from headway.rl.bonuses.episodic import EpisodicCounts
from headway.rl.bonuses.rnd import RND
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig


@register_bonus("noveld")
class NovelD(EpisodicCounts):
    """r(s, a, s') = max(nov(s') - alpha nov(s), 0) [N_ep(s') = 1]: zero where s' was in the episode before.

    nov is the root of RND's mean squared error, which is the distance of the paper but for a constant factor. With a
    scorer, as in `noveld+gmc`, it is what that scorer makes of RND.

    Args:
        observation_space: of one environment.
        action_space: not used.
        config: RND's networks and how they are trained.
        generator: where the weights come from.
        alpha: what the novelty of the state that is left counts; 1 is BeBold.
        code: how states are told apart within an episode, see `Codes`.

    Raises:
        EnvError: an observation space that has no coding.
        MethodError: alpha below 0, or no such code.
    """

    trained = ("rnd",)
    scored = "rnd"

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        alpha: float = 0.5,
        code: str = "auto",
    ) -> None:
        super().__init__()
        if not alpha >= 0:
            raise MethodError(f"alpha: expected a number of at least 0, got {alpha}")
        self.alpha = alpha
        self.rnd = RND(observation_space, action_space, config, generator)
        self.codes = Codes(observation_space, config, generator, code)

    def finish(self, results: Tensor, batch: Transitions, store: bool) -> Tensor:
        """From visits [N] to scores [N]."""
        return self._differences(batch) * (results == 1)

    def _differences(self, batch: Transitions) -> Tensor:
        """max(nov(s') - alpha nov(s), 0) [N]; both are scored in one call, so with the same statistics."""
        twice = Transitions(
            torch.cat([batch.obs, batch.obs]),
            torch.cat([batch.actions, batch.actions]),
            torch.cat([batch.next_obs, batch.obs]),
        )
        novelty = self.measures["rnd"](twice)
        if self.scorer == "error":
            novelty = novelty.sqrt()
        after, before = novelty.split(len(batch))
        return (after - self.alpha * before).clamp(min=0)
