"""Bonuses that count: transitions into states that were visited rarely, ever or in this episode, are worth more."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.bonuses.bonus import Memory, check_least, register_bonus, with_options
from headway.rl.bonuses.episodic import EpisodicMemory
from headway.rl.bonuses.icm import ICM
from headway.rl.bonuses.rnd import RND
from headway.rl.config import IntrinsicConfig
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Transitions
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

    It is made with what a bonus is made with; actions do not matter.

    Args:
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
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        code: str = "auto",
        bins: int = 10,
        bits: int = 32,
    ) -> None:
        super().__init__()
        if code not in ("auto", "exact", "bins", "simhash"):
            raise MethodError(f"code: expected one of auto, exact, bins, simhash, got {code!r}")
        check_least(1, bins=bins, bits=bits)
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

    M. Bellemare et al., Unifying Count-Based Exploration and Intrinsic Motivation (2016); H. Tang et al., #Exploration:
    A Study of Count-Based Exploration for Deep Reinforcement Learning (2017).

    Args:
        code: how states are told apart, see `Codes`.
        bins: cells per dimension, at least 1.
        bits: length of a hash, at least 1.
    """

    @with_options
    def __init__(self, *given: Any, code: str = "auto", bins: int = 10, bits: int = 32) -> None:
        super().__init__()
        self.codes = Codes(*given, code=code, bins=bins, bits=bits)
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


class EpisodicCounts(EpisodicMemory[tuple[list[str], list[str]], dict[str, int]]):
    """Counts the visits N_ep(s') of each state in the running episode, its first observation included.

    Attributes:
        codes: tells states apart.
    """

    codes: Codes

    def read(self, batch: Transitions) -> tuple[list[str], list[str]]:
        """The keys of observations and of next observations."""
        keys, indices = self.codes.keys(torch.cat([batch.obs, batch.next_obs]))
        every = [keys[index].hex() for index in indices.tolist()]
        return every[: len(batch)], every[len(batch) :]

    def follow(
        self, episode: dict[str, int] | None, rows: tuple[list[str], list[str]], places: Tensor
    ) -> tuple[Tensor, dict[str, int]]:
        """The visits of each next observation so far [n], this one included."""
        before, after = rows
        order = places.tolist()
        visits = {before[order[0]]: 1} if episode is None else dict(episode)
        counts = []
        for place in order:
            key = after[place]
            visits[key] = visits.get(key, 0) + 1
            counts.append(visits[key])
        return torch.tensor(counts, dtype=torch.float32, device=places.device), visits


@register_bonus("ride")
class RIDE(EpisodicCounts):
    """r(s, a, s') = |f(s') - f(s)| / sqrt(N_ep(s')), with f the features of an `ICM` that is trained beside it.

    Actions that change much are worth most, and less where the agent has been in this episode.

    R. Raileanu and T. Rocktaeschel, RIDE: Rewarding Impact-Driven Exploration for Procedurally-Generated Environments
    (2020).

    Args:
        code: how states are told apart within an episode, see `Codes`.
    """

    trained = ("icm",)

    @with_options
    def __init__(self, *given: Any, code: str = "auto") -> None:
        super().__init__()
        self.icm = ICM(*given)
        self.actions = self.icm.actions
        self.codes = Codes(*given, code=code)

    def finish(self, results: Tensor, batch: Transitions, store: bool) -> Tensor:
        """From visits [N] to scores [N]."""
        before, after = self.icm.encode(batch)
        return (after - before).norm(dim=1) * results.rsqrt()


@register_bonus("noveld")
class NovelD(EpisodicCounts):
    """r(s, a, s') = max(nov(s') - alpha nov(s), 0) [N_ep(s') = 1]: zero where s' was in the episode before.

    It rewards crossing from what is known into what is new, once an episode. nov is the root of RND's mean squared
    error, which is the distance of the paper but for a constant factor. With a scorer, as in `noveld+gmc`, it is what
    that scorer makes of RND.

    T. Zhang et al., BeBold: Exploration Beyond the Boundary of Explored Regions (2020); T. Zhang et al., NovelD: A
    Simple yet Effective Exploration Criterion (2021).

    Args:
        alpha: what the novelty of the state that is left counts, at least 0; 1 is BeBold.
        code: how states are told apart within an episode, see `Codes`.
    """

    trained = ("rnd",)
    scored = "rnd"

    @with_options
    def __init__(self, *given: Any, alpha: float = 0.5, code: str = "auto") -> None:
        super().__init__()
        check_least(0, alpha=alpha)
        self.alpha = alpha
        self.rnd = RND(*given)
        self.codes = Codes(*given, code=code)

    def finish(self, results: Tensor, batch: Transitions, store: bool) -> Tensor:
        """From visits [N] to scores [N]; both novelties are scored in one call, so with the same statistics."""
        twice = Transitions(
            torch.cat([batch.obs, batch.obs]),
            torch.cat([batch.actions, batch.actions]),
            torch.cat([batch.next_obs, batch.obs]),
        )
        novelty = self.measures["rnd"](twice)
        if self.scorer == "error":
            novelty = novelty.sqrt()
        after, before = novelty.split(len(batch))
        return (after - self.alpha * before).clamp(min=0) * (results == 1)
