"""Bonuses of random networks: guessing what one makes of an observation, and how far apart it puts observations."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headway.rl.bonuses.bonus import Memory, Prediction, Predictor, check_least, register_bonus, with_options
from headway.rl.config import IntrinsicConfig
from headway.rl.distinct import distinct_rows, padded
from headway.rl.episodes import Transitions
from headway.rl.networks import make_encoder, orthogonal, perceptron, random_encoder
from headway.rl.normalise import ObservationNormaliser
from headway.rl.spaces import Observations


@register_bonus("rnd")
class RND(Predictor):
    """Random network distillation: guesses the outputs of a fixed, random network.

    The guesses are wrong about observations that it has not seen often.

    Only the next observation counts, actions do not. As in the original: observations are normalised with running
    statistics and clipped, weights are orthogonal, and the predictor has two layers more than its target. The loss of
    a transition is the mean squared error over the outputs.
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
            self.normaliser = ObservationNormaliser(shape, config.rnd_clip)

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        rows, indices = distinct_rows(batch.next_obs)
        observations = self.seen(padded(rows, len(batch)), batch)
        with torch.no_grad():
            targets: Tensor = self.target(observations)
        guesses: Tensor = self.scored(observations)
        losses = (guesses - targets).square().mean(1)
        return Prediction(losses, losses.detach().index_select(0, indices), indices=indices)


@register_bonus("re3")
class RE3(Memory):
    """r(s, a, s') = log(1 + d_k(s')): d_k is the distance of f(s') to its k-th neighbour among what is stored.

    f is a fixed random network, and d_k estimates how thinly states lie there, so that the mean reward estimates their
    entropy. Transitions are stored before they are scored, and then are no neighbours of themselves. While fewer than
    k are stored, the farthest of them counts; with none the reward is zero.

    Y. Seo et al., State Entropy Maximization with Random Encoders for Efficient Exploration (2021).

    Args:
        neighbours: k, at least 1.
        capacity: transitions that are stored, the newest ones; at least 1.
    """

    stored: Tensor
    count: Tensor

    @with_options
    def __init__(self, *given: Any, neighbours: int = 3, capacity: int = 10_000) -> None:
        super().__init__()
        check_least(1, neighbours=neighbours, capacity=capacity)
        self.neighbours = neighbours
        observation_space, _, config, generator = given
        self._observations = Observations(observation_space, config)
        self.encoder = random_encoder(self._observations.shape, config, generator)
        self.register_buffer("stored", torch.zeros(capacity, config.features))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def score(self, batch: Transitions) -> Tensor:
        """See `Memory.score`; transitions that are not stored."""
        return self._scores(batch, self.neighbours)

    def remember(self, batch: Transitions) -> None:
        """Store the features of next observations, in place of the oldest."""
        rows, indices = self._features(batch)
        capacity = len(self.stored)
        newest = rows[indices[-capacity:]]
        first = int(self.count) + len(batch) - len(newest)
        self.stored[torch.arange(first, first + len(newest), device=newest.device) % capacity] = newest
        self.count += len(batch)

    def remember_and_score(self, batch: Transitions) -> Tensor:
        """See `Memory.remember_and_score`."""
        self.remember(batch)
        return self._scores(batch, self.neighbours + 1)

    def _scores(self, batch: Transitions, nth: int) -> Tensor:
        rows, indices = self._features(batch)
        stored = self.stored[: int(self.count)]
        nth = min(nth, len(stored))
        if not nth:
            return torch.zeros(len(batch), device=rows.device)
        # without the short cut through products of matrices, which is off by 1e-3 where rows are alike
        distances = torch.cdist(rows, stored, compute_mode="donot_use_mm_for_euclid_dist")
        return distances.topk(nth, dim=1, largest=False).values[:, -1].log1p()[indices]

    def _features(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """The features of the distinct next observations [U, features], and where each transition is among them [N]."""
        rows, indices = distinct_rows(batch.next_obs)
        return self.encoder(self._observations.read(rows)), indices
