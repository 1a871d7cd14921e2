"""Counts: transitions into states that were visited rarely are worth more.

M. Bellemare et al., Unifying Count-Based Exploration and Intrinsic Motivation (2016); H. Tang et al., #Exploration: A
Study of Count-Based Exploration for Deep Reinforcement Learning (2017).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.bonuses.bonus import Memory, register_bonus
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.spaces import Observations, leaves

KEY_BYTES = 16
"""Of a state's key in the table: two states share one by chance with probability 2^-128."""
FEW = 8
"""Real numbers in an observation up to which each is cut into bins; more are hashed."""


class Codes(nn.Module):
    """Discretises observations, so that they can be counted.

    The code of an observation x is

        exact      x itself, for whole numbers such as the codes of a grid
        bins       floor(bins * (x - low) / (high - low)) in each dimension; floor(x * bins) without finite bounds
        simhash    sign(A z) in {-1, 1}^bits, with A [bits, D] normal and z as x, scaled to [-1, 1] where x has bounds

    Args:
        observation_space: of one environment.
        config: the scale of observations.
        generator: where A comes from.
        code: "exact", "bins" or "simhash". "auto" takes "exact" for whole numbers, "bins" for up to 8 real numbers, and
            "simhash" for more.
        bins: cells per dimension.
        bits: length of a hash; more bits tell more states apart.

    Raises:
        EnvError: an observation space that has no coding.
        MethodError: no such code, or a number below 1.
    """

    bounded: Tensor
    low: Tensor
    width: Tensor
    projection: Tensor

    def __init__(
        self,
        observation_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        code: str = "auto",
        bins: int = 10,
        bits: int = 32,
    ) -> None:
        super().__init__()
        if code not in ("auto", "exact", "bins", "simhash"):
            raise MethodError(f"code: expected one of auto, exact, bins, simhash, got {code!r}")
        for name, number in (("bins", bins), ("bits", bits)):
            if number < 1:
                raise MethodError(f"{name}: expected at least 1, got {number}")
        self._observations = Observations(observation_space, config)
        parts = [part for _, part in leaves(observation_space)]
        size = self._observations.size
        if code == "auto":
            is_whole = all(np.dtype(part.dtype).kind in "biu" for part in parts)
            code = "exact" if is_whole else "bins" if size <= FEW else "simhash"
        self.code, self.bins = code, bins
        low, high = torch.full((size,), -math.inf), torch.full((size,), math.inf)
        if type(observation_space).__name__ == "Box":
            ends = (torch.from_numpy(end)[None] for end in (observation_space.low, observation_space.high))
            low, high = (self._observations.read(end).flatten() for end in ends)
        bounded = (high - low).isfinite() & (high > low)
        self.register_buffer("bounded", bounded)
        self.register_buffer("low", torch.where(bounded, low, 0.0))
        self.register_buffer("width", torch.where(bounded, high - low, 1.0))
        self.register_buffer("projection", torch.randn(bits if code == "simhash" else 0, size, generator=generator))

    def keys(self, observations: Tensor) -> tuple[list[bytes], Tensor]:
        """The keys of the distinct states [U], and where each of the observations [N, ...] is among them [N]."""
        rows, indices = distinct_rows(self._codes(self._observations.read(observations).flatten(1)))
        keys = [hashlib.blake2b(row.tobytes(), digest_size=KEY_BYTES).digest() for row in rows.cpu().numpy()]
        return keys, indices

    def _codes(self, x: Tensor) -> Tensor:
        """Observations [N, D] as codes [N, any]."""
        if self.code == "exact":
            return x
        if self.code == "bins":
            cells = ((x - self.low) / self.width * self.bins).floor()
            return torch.where(self.bounded, cells.clamp(max=self.bins - 1), cells).long()
        z = torch.where(self.bounded, 2 * (x - self.low) / self.width - 1, x)
        return (z @ self.projection.T > 0).to(torch.uint8)


@register_bonus("counts")
class Counts(Memory):
    """Visits of discretised observations, r(s, a, s') = 1 / sqrt(N(c(s'))), with c as `Codes` says.

    N counts all visits so far. Those of a rollout are counted before they are rewarded, as Tang et al. do, so that
    their order does not matter; a state that was never counted has N = 1.

    Args:
        observation_space: of one environment.
        action_space: not used.
        config: the scale of observations.
        generator: where a hash comes from.
        code: see `Codes` ...
        bins: ... also for this ...
        bits: ... and this.

    Raises:
        EnvError: an observation space that has no coding.
        MethodError: no such code, or a number below 1.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        code: str = "auto",
        bins: int = 10,
        bits: int = 32,
    ) -> None:
        super().__init__()
        self.codes = Codes(observation_space, config, generator, code, bins, bits)
        self._visits: dict[bytes, int] = {}

    def score(self, batch: Transitions) -> Tensor:
        """1 / sqrt(N) for the next observations [N], with N = 1 for those that were never counted."""
        keys, indices = self.codes.keys(batch.next_obs)
        visits = torch.tensor([max(1, self._visits.get(key, 0)) for key in keys], device=indices.device)
        return visits.double().rsqrt().float()[indices]

    def remember(self, batch: Transitions) -> None:
        """Count the next observations."""
        keys, indices = self.codes.keys(batch.next_obs)
        for key, count in zip(keys, torch.bincount(indices, minlength=len(keys)).tolist(), strict=True):
            self._visits[key] = self._visits.get(key, 0) + count

    def metrics(self) -> dict[str, float]:
        """The number of states that were told apart so far."""
        return {"states": float(len(self._visits))}

    def get_extra_state(self) -> dict[str, Tensor]:
        """The table: keys [U, 16] and visits [U]."""
        keys = np.frombuffer(b"".join(self._visits), dtype=np.uint8).reshape(-1, KEY_BYTES)
        return {"keys": torch.from_numpy(keys.copy()), "visits": torch.tensor(list(self._visits.values()))}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Put the table back."""
        keys = (row.tobytes() for row in state["keys"].cpu().numpy())
        self._visits = dict(zip(keys, state["visits"].tolist(), strict=True))
