"""RE3: reward states that are far from all others, in the features of a random network.

Y. Seo et al., State Entropy Maximization with Random Encoders for Efficient Exploration (2021).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.errors import MethodError
from headway.rl.bonuses.bonus import Memory, register_bonus
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.networks import make_encoder, orthogonal
from headway.rl.spaces import Observations


@register_bonus("re3")
class RE3(Memory):
    """r(s, a, s') = log(1 + d_k(s')): d_k is the distance of f(s') to its k-th neighbour among what is stored.

    f is a fixed random network, and d_k estimates how thinly states lie there, so that the mean reward estimates their
    entropy. Transitions are stored before they are scored, and then are no neighbours of themselves. While fewer than
    k are stored, the farthest of them counts; with none the reward is zero.

    Args:
        observation_space: of one environment.
        action_space: not used.
        config: the encoder's widths, and the scale of observations.
        generator: where the weights come from.
        neighbours: k.
        capacity: transitions that are stored, the newest ones.

    Raises:
        EnvError: an observation space that has no coding.
        MethodError: a number below 1.
    """

    stored: Tensor
    count: Tensor

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        neighbours: int = 3,
        capacity: int = 10_000,
    ) -> None:
        super().__init__()
        for name, number in (("neighbours", neighbours), ("capacity", capacity)):
            if number < 1:
                raise MethodError(f"{name}: expected at least 1, got {number}")
        self.neighbours = neighbours
        self._observations = Observations(observation_space, config)
        self.encoder = make_encoder(
            self._observations.shape, config.features, config.hidden, generator, orthogonal, config.encoder
        ).requires_grad_(False)
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
        return distances.kthvalue(nth, dim=1).values.log1p()[indices]

    def _features(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """The features of the distinct next observations [U, features], and where each transition is among them [N]."""
        rows, indices = distinct_rows(batch.next_obs)
        return self.encoder(self._observations.read(rows)), indices
