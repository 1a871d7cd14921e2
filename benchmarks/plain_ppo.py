"""PPO as one writes it down first: the reference of `benchmarks/doorkey.py`.

One of Farama's environments; the policy and the value network see every observation on its own; both are then trained
one after the other, each operation on all cores. The networks and the settings are those of the preset `released`.
"""

from __future__ import annotations

import gymnasium
import minigrid  # noqa: F401  (registers its environments)
import numpy as np
import torch
import torch.nn.functional as F
from minigrid.wrappers import FullyObsWrapper
from torch import Tensor, nn
from torch.distributions import Categorical

STEPS, EPOCHS, MINIBATCH = 2048, 4, 256


def network(outputs: int) -> nn.Sequential:
    """Three convolutions and a layer, on observations [B, 4, 8, 8]."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 64, 128),
        nn.ReLU(),
        nn.Linear(128, outputs),
    )


class PlainPPO:
    """The reference; `iterate` is one rollout of 2048 steps and what is learned from it."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.env = FullyObsWrapper(gymnasium.make("MiniGrid-DoorKey-8x8-v0"))
        self.policy, self.value = network(7), network(1)
        self.policy_optimizer = torch.optim.Adam(self.policy.parameters(), 3e-4)
        self.value_optimizer = torch.optim.Adam(self.value.parameters(), 1e-3)
        self.obs = self.read(self.env.reset(seed=seed)[0])

    @staticmethod
    def read(observation: dict[str, np.ndarray]) -> Tensor:
        """An observation with a fourth channel [4, 8, 8]."""
        grid = np.concatenate([observation["image"], np.zeros((8, 8, 1))], axis=2)
        return torch.tensor(grid, dtype=torch.float32).permute(2, 0, 1)

    def iterate(self) -> None:
        """Act, estimate, learn."""
        seen, actions, logs, rewards, values, ends = [], [], [], [], [], []
        for _ in range(STEPS):
            with torch.no_grad():
                distribution = Categorical(logits=self.policy(self.obs.unsqueeze(0)))
                action = distribution.sample()
                value = self.value(self.obs.unsqueeze(0)).item()
            seen.append(self.obs)
            actions.append(action)
            logs.append(distribution.log_prob(action))
            observation, reward, terminated, truncated, _ = self.env.step(action.item())
            ended = terminated or truncated
            rewards.append(10 * float(reward))
            values.append(value)
            ends.append(ended)
            self.obs = self.read(self.env.reset()[0] if ended else observation)
        with torch.no_grad():
            last = self.value(self.obs.unsqueeze(0)).item()
        advantages, later = [0.0] * STEPS, 0.0
        for step in range(STEPS - 1, -1, -1):
            following = 0.0 if ends[step] else (last if step == STEPS - 1 else values[step + 1])
            delta = rewards[step] + 0.99 * following - values[step]
            later = delta + (0.0 if ends[step] else 0.99 * 0.95 * later)
            advantages[step] = later
        gains = torch.tensor(advantages)
        self.learn(torch.stack(seen), torch.cat(actions), torch.cat(logs), gains, gains + torch.tensor(values))

    def learn(self, seen: Tensor, actions: Tensor, logs: Tensor, gains: Tensor, returns: Tensor) -> None:
        """Epochs of minibatches."""
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        for _ in range(EPOCHS):
            for chosen in torch.randperm(STEPS).split(MINIBATCH):
                distribution = Categorical(logits=self.policy(seen[chosen]))
                ratio = (distribution.log_prob(actions[chosen]) - logs[chosen]).exp()
                gain = gains[chosen]
                surrogate = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                self.step(self.policy_optimizer, -surrogate - 0.01 * distribution.entropy().mean(), self.policy)
                loss = F.mse_loss(self.value(seen[chosen]).squeeze(1), returns[chosen])
                self.step(self.value_optimizer, loss, self.value)

    @staticmethod
    def step(optimizer: torch.optim.Optimizer, loss: Tensor, module: nn.Module) -> None:
        """One step down the gradient."""
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
