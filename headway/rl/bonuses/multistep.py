"""Multi-step inverse dynamics: features of all that the agent's actions decide, now or later.

Y. Efroni et al., Provably Filtering Exogenous Distractors using Multistep Inverse Dynamics (2022); A. Lamb et al.,
Guaranteed Discovery of Control-Endogenous Latent States with Multi-Step Inverse Models (AC-State, 2022).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import MethodError
from headway.rl.bonuses.bonus import register_bonus
from headway.rl.bonuses.episodic import segments
from headway.rl.bonuses.icm import ICM
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.networks import perceptron


@register_bonus("multistep")
class MultiStep(ICM):
    """An `ICM` whose encoder f learns to guess the first action on a way of k steps.

        inverse loss    -log p(a_t | f(s_t), f(s_t+k), k), with k drawn from 1 to `steps` within the episode

    One step is not enough where two states look alike after it: what tells them apart later is then not learned.
    Noise that no action decides is left out of the features, whatever k is. Rewards are those of ICM, from the forward
    model of one step.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: widths and weights.
        generator: where the weights and the numbers of steps come from.
        steps: the largest k; where the rollout or the episode ends before, the last observation counts.

    Raises:
        EnvError: a space that has no coding.
        MethodError: a number below 1.
    """

    is_episodic = True
    draws: Tensor

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        steps: int = 5,
    ) -> None:
        if steps < 1:
            raise MethodError(f"steps: expected at least 1, got {steps}")
        super().__init__(observation_space, action_space, config, generator)
        self.steps = steps
        inputs = 2 * config.features + steps
        self.inverse = perceptron([inputs, config.hidden, self._actions.size], generator)
        self.register_buffer("draws", torch.randint(2**62, (), generator=generator))

    def prepare(self, batch: Transitions) -> Transitions:
        """The transitions with an observation k steps on."""
        generator = torch.Generator().manual_seed(int(self.draws))
        self.draws += 1
        drawn = torch.randint(1, self.steps + 1, (len(batch),), generator=generator).to(batch.obs.device)
        chosen, steps = torch.empty_like(drawn), torch.empty_like(drawn)
        for _, places, _ in segments(batch):
            first = torch.arange(len(places), device=places.device)
            steps[places] = torch.minimum(drawn[places], len(places) - first)
            chosen[places] = places[first + steps[places] - 1]
        return replace(batch, later_obs=batch.next_obs[chosen], later_steps=steps)

    def inverse_losses(self, batch: Transitions, before: Tensor, after: Tensor) -> Tensor:
        """See `ICM.inverse_losses`; the observation k steps on takes the place of the next one."""
        assert batch.later_obs is not None  # it was prepared
        assert batch.later_steps is not None
        rows, indices = distinct_rows(batch.later_obs)
        later = torch.tanh(self.encoder(self.seen(rows, batch))).index_select(0, indices)
        steps = F.one_hot(batch.later_steps - 1, self.steps).to(before)
        return self._actions.losses(self.inverse(torch.cat([before, later, steps], dim=1)), batch.actions)
