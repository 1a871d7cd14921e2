"""Levels of environments, such as the seeds of a generator or tasks: which one an episode plays next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headway.errors import SelectionError, StateError
from headway.ranks import rank_and_replicas
from headway.selection.draws import chosen, uniforms
from headway.selection.literature import PLR
from headway.selection.mixture import Bound, Mixture
from headway.selection.rules import Rule
from headway.selection.sources import check_limits

Level = int | Mapping[str, Any]
"""A seed, or the options of a task, as `reset` of an environment takes them."""


class LevelSampler:
    """Chooses the level of each episode by the scores that its levels got.

        sampler = LevelSampler(1000)                      # the seeds 0 to 999, by prioritized level replay
        number = int(sampler.sample())
        obs, _ = env.reset(seed=sampler.levels[number])   # play it ...
        sampler.update([number], [score])                 # ... and say what it was worth

    `headway.integrations.gymnasium_levels.LevelWrapper` does this for a vector environment. An episode plays level i
    with probability (Jiang et al., 2021)

        P(i) = new / U                                                                    U levels without a score
        P(i) = (1 - new) ((1 - staleness) p_i / sum_j p_j + staleness (c - C_i) / sum_j (c - C_j))       all others

    with p_i the rule's share, C_i the draw in which level i was last drawn and c the number of draws so far. The sums
    run over levels with a score. While no scored level has an age, staleness is ignored.

    Args:
        levels: how many there are, for the seeds from 0; or seeds; or seeds or options of tasks by name.
        rule: how scores become shares. `PLR()`, the default, for scores that say how much there is to learn, such as
            mean absolute advantages; `TSCL()` for returns, whose slope is learning progress; `MultiplicativeWeights()`
            for the scores of a world model, such as GMC.
        staleness: the share of replays that goes to levels by their age, in [0, 1].
        new: the probability of a level without a score, as long as there is one; None for the share of levels that
            have none.
        smoothing: how much of a level's score is kept when a new one comes, in [0, 1).
        floor: the least share of a level in p; see `Mixture`.
        seed: where all randomness starts.
        sync: add the scores up over the processes of torch.distributed, where it is in use; `update` must then be
            called in all of them. Each process draws levels of its own.

    Raises:
        SelectionError: the arguments make no sense.
    """

    def __init__(
        self,
        levels: int | Sequence[int] | Mapping[str, Level],
        rule: Rule | None = None,
        *,
        staleness: float = 0.1,
        new: float | None = None,
        smoothing: float = 0.0,
        floor: Bound = 0.0,
        seed: int = 0,
        sync: bool = True,
    ) -> None:
        check_limits(staleness=(staleness, 0, 1), new=(0 if new is None else new, 0, 1))
        by_name = _by_name(levels)
        self.names, self.levels = tuple(by_name), tuple(by_name.values())
        rule = PLR() if rule is None else rule
        self.mixture = Mixture(self.names, rule, smoothing=smoothing, floor=floor, seed=seed, sync=sync)
        self.staleness, self.new = staleness, new
        self._seed = seed
        self._uniforms = uniforms(seed, 0, rank_and_replicas(None, None)[0])
        self._drawn = 0
        self._last = torch.zeros(len(self), dtype=torch.int64)

    def __len__(self) -> int:
        """The number of levels."""
        return len(self.names)

    def __repr__(self) -> str:
        return f"LevelSampler({len(self)} levels, {int(self.mixture.seen.sum())} with a score, {self._drawn} draws)"

    def probabilities(self) -> Tensor:
        """P of each level in the next draw: [L], float64; they add up to 1."""
        seen = self.mixture.seen
        unseen = len(self) - int(seen.sum())
        if unseen == len(self):
            return torch.full((len(self),), 1 / len(self), dtype=torch.float64)
        replay = self.mixture.shares * seen
        replay = replay / replay.sum() if float(replay.sum()) > 0 else seen.double() / seen.sum()
        ages = ((self._drawn - self._last) * seen).double()
        if self.staleness and bool(ages.any()):
            replay = torch.lerp(replay, ages / ages.sum(), self.staleness)
        if not unseen:
            return replay
        new = unseen / len(self) if self.new is None else self.new
        return (1 - new) * replay + new * (~seen).double() / unseen

    def sample(self, count: int = 1) -> Tensor:
        """The numbers of the levels that the next episodes play: [count]."""
        numbers = []
        for _ in range(count):
            numbers.append(int(chosen(self.probabilities(), self._uniforms.read(self._drawn, 1))))
            self._drawn += 1
            self._last[numbers[-1]] = self._drawn
        return torch.tensor(numbers, dtype=torch.int64)

    def update(self, levels: Tensor | Sequence[int] | Sequence[str], scores: Tensor | Sequence[float] | None) -> None:
        """Take in scores of episodes, or of their steps; a level's score is the mean of those given at a time.

        Args:
            levels: the number or name of each score's level [B].
            scores: [B], of any kind that the rule understands. NaN and infinity are left out; None leaves the shares.

        Raises:
            SelectionError: other shapes, or levels that there are not.
        """
        self.mixture.update(levels, scores)

    def state_dict(self) -> dict[str, Any]:
        """Everything that later draws depend on."""
        mixture = self.mixture.state_dict()
        return {"mixture": mixture, "seed": self._seed, "drawn": self._drawn, "last": self._last.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            StateError: it belongs to other levels, another rule or another seed.
        """
        if state["seed"] != self._seed:
            raise StateError(f"expected the state of a sampler with seed {self._seed}, got that of {state['seed']}")
        self.mixture.load_state_dict(state["mixture"])
        self._drawn, self._last = state["drawn"], state["last"].clone()


def _by_name(levels: int | Sequence[int] | Mapping[str, Level]) -> dict[str, Level]:
    """Levels by name; seeds are named by themselves."""
    if isinstance(levels, Mapping):
        found: dict[str, Level] = {str(name): level for name, level in levels.items()}
    else:
        if not isinstance(levels, int | Sequence):
            raise SelectionError(f"expected how many levels there are, seeds, or levels by name, got {levels!r}")
        seeds = range(levels) if isinstance(levels, int) else levels
        found = {str(seed): seed for seed in seeds}
        if len(found) < len(seeds):
            raise SelectionError(f"expected different seeds, got {len(seeds)} of which {len(found)} differ")
    for level in found.values():
        if not (isinstance(level, Mapping) or (type(level) is int and level >= 0)):
            raise SelectionError(f"expected levels that are seeds from 0, or options by name, got {level!r}")
    if len({isinstance(level, Mapping) for level in found.values()}) > 1:
        raise SelectionError("expected levels of one kind, got seeds and options of tasks")
    return found
