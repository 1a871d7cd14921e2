"""Disagreement: reward transitions about which an ensemble of forward models is of several minds.

D. Pathak, D. Gandhi and A. Gupta, Self-Supervised Exploration via Disagreement (2019).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.bonuses.bonus import Prediction, Predictor, register_bonus
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.networks import make_encoder, orthogonal, perceptron
from headway.rl.spaces import Observations, coding_of


class Ensemble(nn.Module):
    """Networks of one kind with weights of their own.

    Args:
        members: the networks.
    """

    def __init__(self, members: list[nn.Sequential]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [N, inputs] to the outputs of all members [N, members, outputs]."""
        return torch.stack([member(inputs) for member in self.members], dim=1)


@register_bonus("disagreement")
class Disagreement(Predictor):
    """Forward models g_1 ... g_K of a fixed random network's features f, alike but for their first weights.

        error    r(s, a, s') = mean over features of the variance over k of g_k(f(s), a)
        loss     mean over k and features of (g_k(f(s), a) - f(s'))^2

    The models agree in the end also on what they cannot foretell: all of them say the mean of the noise. So the error
    goes to zero where the loss does not.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: widths and scales.
        generator: where the weights come from.
        members: K.

    Raises:
        EnvError: a space that has no coding.
        MethodError: fewer than two members.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        members: int = 5,
    ) -> None:
        super().__init__()
        if members < 2:
            raise MethodError(f"members: expected at least 2, got {members}")
        self._observations = Observations(observation_space, config)
        self.actions = self._actions = coding_of(action_space, "action")
        if config.normalise_observations:
            self.normaliser = self._observations.normaliser(config.rnd_clip)
        features, hidden = config.features, config.hidden
        self.encoder = make_encoder(
            self._observations.shape, features, hidden, generator, orthogonal, config.encoder
        ).requires_grad_(False)
        widths = [features + self._actions.size, hidden, features]
        self.scored = Ensemble([perceptron(widths, generator) for _ in range(members)])

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        with torch.no_grad():
            rows, indices = distinct_rows(torch.cat([batch.obs, batch.next_obs]))
            before, after = self.encoder(self.seen(rows, batch))[indices].split(len(batch))
        guesses: Tensor = self.scored(torch.cat([before, self._actions.encode(batch.actions)], dim=1))
        losses = (guesses - after[:, None]).square().mean((1, 2))
        errors = guesses.detach().var(1, correction=0).mean(1)
        return Prediction(losses, errors, metrics={"forward_loss": losses.detach().mean()})
