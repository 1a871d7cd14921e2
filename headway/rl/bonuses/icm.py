"""The Intrinsic Curiosity Module: predicting in a space of features that the agent's actions shape."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.rl.bonuses.bonus import Prediction, Predictor, check_least, register_bonus, with_options
from headway.rl.config import IntrinsicConfig
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Transitions, segments
from headway.rl.networks import make_encoder, perceptron
from headway.rl.spaces import Coding


@register_bonus("icm")
class ICM(Predictor):
    """An encoder, an inverse model that trains it, and a forward model on its features.

    The inverse model guesses the action from the features (tanh) of two successive observations; its loss is the
    cross-entropy of a choice, or the squared error of a continuous action. The forward model guesses the features of
    the next observation from those of the observation and the action. It sees features without their graph, so that
    the encoder learns from the inverse loss alone. Only the forward model is scored.

        training loss = inverse_weight * inverse + forward_weight * forward_factor * mean squared error
    """

    actions: Coding

    def __init__(
        self, observation_space: Any, action_space: Any, config: IntrinsicConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._read_spaces(observation_space, action_space, config)
        self._config = config
        features, hidden, actions = config.features, config.hidden, self.actions.size
        kind, with_layer = config.encoder, config.icm_hidden_layer
        self.encoder = make_encoder(
            self._observations.shape, features, hidden, generator, kind=kind, with_layer=with_layer
        )
        self.inverse = perceptron([2 * features, hidden, actions], generator)
        self.scored = perceptron([features + actions, hidden, features], generator)

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        config = self._config
        with nullcontext() if train else torch.no_grad():
            before, after = self.encode(batch)
        inputs = torch.cat([before.detach(), self.actions.encode(batch.actions)], dim=1)
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
        return self.actions.losses(self.inverse(torch.cat([before, after], dim=1)), batch.actions)

    def encode(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """The features of observations and next observations [N, features]."""
        before, after = self._features(torch.cat([batch.obs, batch.next_obs]), batch).split(len(batch))
        return before, after

    def _features(self, observations: Tensor, batch: Transitions) -> Tensor:
        """The features [M, features] of observations [M, ...] of a batch, each distinct one encoded once."""
        rows, indices = distinct_rows(observations)
        return torch.tanh(self.encoder(self.seen(rows, batch))).index_select(0, indices)


@register_bonus("multistep")
class MultiStep(ICM):
    """An `ICM` whose encoder f learns to guess the first action on a way of k steps.

        inverse loss    -log p(a_t | f(s_t), f(s_t+k), k), with k drawn from 1 to `steps` within the episode

    One step is not enough where two states look alike after it: what tells them apart later is then not learned.
    Noise that no action decides is left out of the features, whatever k is. Rewards are those of ICM, from the forward
    model of one step.

    Y. Efroni et al., Provably Filtering Exogenous Distractors using Multistep Inverse Dynamics (2022); A. Lamb et al.,
    Guaranteed Discovery of Control-Endogenous Latent States with Multi-Step Inverse Models (AC-State, 2022).

    Args:
        steps: the largest k, at least 1; where the rollout or the episode ends before, the last observation counts.
    """

    is_episodic = True
    draws: Tensor

    @with_options
    def __init__(self, *given: Any, steps: int = 5) -> None:
        check_least(1, steps=steps)
        super().__init__(*given)
        *_, config, generator = given
        self.steps = steps
        inputs = 2 * config.features + steps
        self.inverse = perceptron([inputs, config.hidden, self.actions.size], generator)
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
        later = self._features(batch.later_obs, batch)
        steps = F.one_hot(batch.later_steps - 1, self.steps).to(before)
        return self.actions.losses(self.inverse(torch.cat([before, later, steps], dim=1)), batch.actions)
