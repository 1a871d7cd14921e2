"""What bonuses of single episodes share: episodes are told apart, and what is stored of one is dropped at its end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from headway.errors import MethodError
from headway.rl.bonuses.bonus import Memory
from headway.rl.bonuses.counts import Codes
from headway.rl.episodes import Transitions

Episode = TypeVar("Episode")
Rows = TypeVar("Rows")


def segments(batch: Transitions) -> Iterator[tuple[int, Tensor, bool]]:
    """The pieces of episodes in a batch: the environment, the places [n] in the order of time, and whether it ended.

    Raises:
        MethodError: the transitions do not say which belong together.
    """
    if batch.envs is None or batch.ended is None:
        missing = " and ".join(name for name in ("envs", "ended") if getattr(batch, name) is None)
        raise MethodError(
            f"expected transitions in the order of time that tell episodes apart, got none of {missing}; "
            f"use Transitions(obs, actions, next_obs, ended=..., envs=...), or a bonus that is not episodic"
        )
    envs, ended = batch.envs.cpu().numpy(), batch.ended.cpu().numpy().astype(bool)
    order = np.argsort(envs, kind="stable")
    cuts = np.flatnonzero(ended[order][:-1] | (np.diff(envs[order]) != 0)) + 1
    for places in np.split(order, cuts):
        yield int(envs[places[0]]), torch.from_numpy(places).to(batch.envs.device), bool(ended[places[-1]])


class EpisodicMemory(Memory, Generic[Rows, Episode]):
    """A memory that begins anew with each episode of each environment.

    Transitions are followed in the order of time, whether they are stored or only scored: a transition is scored by
    those before it in its episode, also where they are of the same batch.
    """

    is_episodic = True

    def __init__(self) -> None:
        super().__init__()
        self._episodes: dict[int, Episode] = {}

    @abstractmethod
    def read(self, batch: Transitions) -> Rows:
        """What `follow` needs to know about transitions."""

    @abstractmethod
    def follow(self, episode: Episode | None, rows: Rows, places: Tensor) -> tuple[Tensor, Episode]:
        """Go on with an episode.

        Args:
            episode: what is stored of it; it must not be changed. None if it begins.
            rows: of all transitions.
            places: those of the episode [n], in the order of time.

        Returns:
            a result for each of them [n, ...], and what is stored of the episode now.
        """

    def finish(self, results: Tensor, batch: Transitions, store: bool) -> Tensor:
        """From the results [N, ...] to scores [N]."""
        return results

    def score(self, batch: Transitions) -> Tensor:
        """See `Memory.score`."""
        return self._go(batch, store=False)

    def remember(self, batch: Transitions) -> None:
        """See `Memory.remember`."""
        self._go(batch, store=True)

    def remember_and_score(self, batch: Transitions) -> Tensor:
        """See `Memory.remember_and_score`."""
        return self._go(batch, store=True)

    def end_episodes(self, envs: Sequence[int] | None = None) -> None:
        """See `Memory.end_episodes`."""
        for env in list(self._episodes) if envs is None else envs:
            self._episodes.pop(env, None)

    def _go(self, batch: Transitions, store: bool) -> Tensor:
        pieces, episodes = list(segments(batch)), dict(self._episodes)
        rows, results = self.read(batch), []
        for env, places, ended in pieces:
            result, episode = self.follow(episodes.pop(env, None), rows, places)
            results.append(result)
            if not ended:
                episodes[env] = episode
        if store:
            self._episodes = episodes
        order = torch.cat([places for _, places, _ in pieces]).argsort()
        return self.finish(torch.cat(results)[order], batch, store)

    def get_extra_state(self) -> dict[int, Any]:
        """What is stored of each environment's episode."""
        return dict(self._episodes)

    def set_extra_state(self, state: Mapping[int, Any]) -> None:
        """Put it back."""
        self._episodes = dict(state)


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
