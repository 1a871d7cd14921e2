"""The forward model: what will the next observation be?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.rl.bonuses.bonus import Prediction, Predictor, register_bonus
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.networks import perceptron
from headway.rl.spaces import Observations, coding_of


@register_bonus("forward")
class Forward(Predictor):
    """Predicts the next observation from the observation and the action.

    A perceptron with two hidden layers on the flattened observation and the encoded action (one-hot if it is a
    choice). The loss of a transition is the mean squared error over the observation.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: widths and scales.
        generator: where the weights come from.

    Raises:
        EnvError: a space that has no coding.
    """

    def __init__(
        self, observation_space: Any, action_space: Any, config: IntrinsicConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._observations = Observations(observation_space, config)
        self.actions = self._actions = coding_of(action_space, "action")
        if config.normalise_observations:
            self.normaliser = self._observations.normaliser(config.rnd_clip)
        size = self._observations.size
        self.scored = perceptron([size + self._actions.size, config.hidden, config.hidden, size], generator)

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        inputs, targets = self.pairs(batch)
        guesses: Tensor = self.scored(inputs)
        losses = (guesses - targets).square().mean(1)
        errors = self.errors(losses.detach(), inputs, targets)
        return Prediction(losses, errors, metrics={"forward_loss": losses.detach().mean()})

    def errors(self, losses: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """What the scorer "error" rewards [N], given the losses [N] and `pairs`: the losses themselves."""
        return losses

    def pairs(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """What the network is given [N, D + A] and what it should say [N, D]."""
        before, after = (self.seen(each, batch).flatten(1) for each in (batch.obs, batch.next_obs))
        return torch.cat([before, self._actions.encode(batch.actions)], dim=1), after
