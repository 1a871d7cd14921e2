"""The forward model: what will the next observation be?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.predictors.base import Observations, Prediction, Predictor
from headway.rl.predictors.encoders import perceptron
from headway.rl.predictors.registry import register_predictor
from headway.rl.spaces import coding_of
from headway.rl.transitions import Transitions


@register_predictor("forward")
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
        """Make the network."""
        super().__init__()
        self._observations = Observations(observation_space, config)
        self.actions = self._actions = coding_of(action_space, "action")
        self.normaliser = self._observations.normaliser(config)
        size = self._observations.size
        self.scored = perceptron([size + self._actions.size, config.hidden, config.hidden, size], generator)

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        before, after = (self.seen(each, batch).flatten(1) for each in (batch.obs, batch.next_obs))
        guesses: Tensor = self.scored(torch.cat([before, self._actions.encode(batch.actions)], dim=1))
        losses = (guesses - after).square().mean(1)
        return Prediction(losses, losses.detach(), metrics={"forward_loss": losses.detach().mean()})
