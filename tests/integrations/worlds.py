"""Environments and rewards whose every number is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from headway.rl.bonuses import Forward
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.reward import IntrinsicResult, IntrinsicReward

SMALL = replace(IntrinsicConfig.released(), features=5, hidden=8, rnd_features=6)
CHOICES = spaces.Discrete(3)
FORCES = spaces.Box(-0.5, 0.5, (2,), np.float32)


class Clock(gymnasium.Env[Any, Any]):
    """Shows who it is, the number of the episode and the step in it; every third episode is cut off early.

    Episodes with an odd number last one step longer than those with an even one.
    """

    def __init__(self, name: int = 0, actions: spaces.Space[Any] = CHOICES, length: int = 4) -> None:
        self.observation_space = spaces.Box(-1e3, 1e3, (3,), np.float32)
        self.action_space = actions
        self.name, self.length = name, length
        self.episode, self.step_in_episode = -1, 0
        self.actions: list[Any] = []

    def look(self) -> np.ndarray:
        return np.array([self.name, self.episode, self.step_in_episode], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.step_in_episode = self.episode + 1, 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(np.array(action))
        self.step_in_episode += 1
        is_over = self.step_in_episode == self.length + self.episode % 2
        is_cut = self.episode % 3 == 0 and self.step_in_episode == self.length - 1
        return self.look(), 1.0, is_over, is_cut, {}


class Known(IntrinsicReward):
    """Pays 2 * (step before) + 0.5 * (step after) + the name, learns nothing, and keeps what it was shown."""

    def __init__(self, actions: spaces.Space[Any] = CHOICES) -> None:
        generator = torch.Generator().manual_seed(0)
        super().__init__(Forward(Clock().observation_space, actions, SMALL, generator), "error", SMALL, name="known")
        self.shown: list[Transitions] = []
        self.paid_for: list[Transitions] = []

    @staticmethod
    def of(obs: Any, next_obs: Any) -> Any:
        return 2 * obs[..., 2] + 0.5 * next_obs[..., 2] + obs[..., 0]

    def rewards_and_update(self, batch: Transitions) -> IntrinsicResult:
        self.shown.append(batch)
        return IntrinsicResult(self.of(batch.obs, batch.next_obs).float())

    def rewards(self, batch: Transitions) -> torch.Tensor:
        self.paid_for.append(batch)
        return self.of(batch.obs, batch.next_obs).float()


def assert_within_episodes(batch: Transitions) -> None:
    """Every transition stays in its episode and leads one step on."""
    obs, following = batch.obs.double(), batch.next_obs.double()
    assert torch.equal(following[:, :2], obs[:, :2])
    assert torch.equal(following[:, 2], obs[:, 2] + 1)
