"""Random network distillation: guessing what a random network makes of an observation."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headway.rl.bonuses.bonus import Prediction, Predictor, register_bonus
from headway.rl.distinct import distinct_rows, padded
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.networks import make_encoder, orthogonal, perceptron
from headway.rl.spaces import Observations


@register_bonus("rnd")
class RND(Predictor):
    """A predictor of a fixed, random network's outputs: wrong about observations that it has not seen often.

    Only the next observation counts, actions do not. As in the original: observations are normalised with running
    statistics and clipped, weights are orthogonal, and the predictor has two layers more than its target. The loss of
    a transition is the mean squared error over the outputs.

    Args:
        observation_space: of one environment.
        action_space: not used.
        config: widths, normalisation.
        generator: where the weights come from.

    Raises:
        EnvError: an observation space that has no coding.
    """

    merges_duplicates = True
    learning_rate = 1e-4

    def __init__(
        self, observation_space: Any, action_space: Any, config: IntrinsicConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._observations = Observations(observation_space, config)
        shape, outputs = self._observations.shape, config.rnd_features
        make = partial(make_encoder, shape, outputs, config.hidden, generator, orthogonal, kind=config.encoder)
        self.target = make().requires_grad_(False)
        self.scored = nn.Sequential(
            *make(),
            nn.ReLU(inplace=True),
            *perceptron([outputs, outputs, outputs], generator, orthogonal),
        )
        if config.rnd_normalise:
            self.normaliser = self._observations.normaliser(config.rnd_clip)

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        rows, indices = distinct_rows(batch.next_obs)
        observations = self.seen(padded(rows, len(batch)), batch)
        with torch.no_grad():
            targets: Tensor = self.target(observations)
        guesses: Tensor = self.scored(observations)
        losses = (guesses - targets).square().mean(1)
        return Prediction(losses, losses.detach().index_select(0, indices), indices=indices)
