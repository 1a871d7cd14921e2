"""The Intrinsic Curiosity Module: predicting in a space of features that the agent's actions shape."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from headway.rl.bonuses.bonus import Prediction, Predictor, register_bonus
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.networks import make_encoder, perceptron
from headway.rl.spaces import Observations, coding_of


@register_bonus("icm")
class ICM(Predictor):
    """An encoder, an inverse model that trains it, and a forward model on its features.

    The inverse model guesses the action from the features (tanh) of two successive observations; its loss is the
    cross-entropy of a choice, or the squared error of a continuous action. The forward model guesses the features of
    the next observation from those of the observation and the action. It sees features without their graph, so that
    the encoder learns from the inverse loss alone. Only the forward model is scored.

        training loss = inverse_weight * inverse + forward_weight * forward_factor * mean squared error

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: widths and weights.
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
        self._config = config
        if config.normalise_observations:
            self.normaliser = self._observations.normaliser(config.rnd_clip)
        features, hidden, actions = config.features, config.hidden, self._actions.size
        self.encoder = make_encoder(
            self._observations.shape,
            features,
            hidden,
            generator,
            kind=config.encoder,
            with_layer=config.icm_hidden_layer,
        )
        self.inverse = perceptron([2 * features, hidden, actions], generator)
        self.scored = perceptron([features + actions, hidden, features], generator)

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        config = self._config
        with nullcontext() if train else torch.no_grad():
            before, after = self.encode(batch)
        inputs = torch.cat([before.detach(), self._actions.encode(batch.actions)], dim=1)
        guesses: Tensor = self.scored(inputs)
        losses = (guesses - after.detach()).square().mean(1)
        errors = config.icm_forward_factor * losses.detach()
        metrics = {"forward_loss": errors.mean()}
        rest = None
        if train:
            inverse = self.inverse_losses(batch, before, after).mean()
            metrics["inverse_loss"] = inverse.detach()
            rest = config.icm_inverse_weight * inverse
        weight = config.icm_forward_weight * config.icm_forward_factor
        return Prediction(losses, errors, weight, rest, metrics=metrics)

    def inverse_losses(self, batch: Transitions, before: Tensor, after: Tensor) -> Tensor:
        """How wrong guesses of the actions are [N], given the features of both observations [N, features]."""
        return self._actions.losses(self.inverse(torch.cat([before, after], dim=1)), batch.actions)

    def encode(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """The features of observations and next observations [N, features], each distinct one encoded once."""
        rows, indices = distinct_rows(torch.cat([batch.obs, batch.next_obs]))
        features = torch.tanh(self.encoder(self.seen(rows, batch)))
        before, after = features.index_select(0, indices).split(len(batch))
        return before, after
