"""Small environments with known answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Chain(gymnasium.Env):
    """Shows [number, episode, time]; pays the time; ends after `length` steps, in turn for good and by being cut."""

    observation_space = spaces.Box(-1, 1000, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, number: int, length: int) -> None:
        self.number, self.length, self.episode = number, length, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.observe(), {}

    def observe(self) -> np.ndarray:
        return np.array([self.number, self.episode, self.time], dtype=np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == self.length
        for_good = over and self.episode % 2 == 0
        return self.observe(), float(self.time), for_good, over and not for_good, {}


class Corridor(gymnasium.Env):
    """Five places in a row, from the left one; the right one ends the episode and pays 1."""

    observation_space = spaces.Box(0, 1, (5,), np.float32)
    action_space = spaces.Discrete(2, start=3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return self.observe(), {}

    def observe(self) -> np.ndarray:
        return np.eye(5, dtype=np.float32)[self.place]

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert action in (3, 4)
        self.time += 1
        self.place = min(4, max(0, self.place + (1 if action == 4 else -1)))
        arrived = self.place == 4
        return self.observe(), float(arrived), arrived, self.time == 30 and not arrived, {}


class Target(gymnasium.Env):
    """One step: pays minus the squared distance of the action from (0.5, -0.3)."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        distance = float(((action - np.array([0.5, -0.3])) ** 2).sum())
        return np.ones(1, np.float32), -distance, True, False, {}


def together(make: Callable[[int], gymnasium.Env], count: int, mode: AutoresetMode = AutoresetMode.SAME_STEP) -> Any:
    """Several of them as a vector environment; `make` gets the number of each."""
    return SyncVectorEnv([lambda number=number: make(number) for number in range(count)], autoreset_mode=mode)
