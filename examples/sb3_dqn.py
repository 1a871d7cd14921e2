"""Stable-Baselines3: DQN with an intrinsic reward for what it replays.

    pip install 'headway-torch[sb3]'
    python examples/sb3_dqn.py [--quick] [--method rnd] [--steps 10000]

The replay buffer holds the task's rewards. Each time transitions are sampled, they are rewarded by the predictor as it
is then. The last line says how many cells of a grid over MountainCar's states each agent came by. The callback is all
that differs between them; one seed and ten thousand steps show how it is used, not which of them is better. It takes
about a minute on one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

from headway.integrations.sb3 import OffPolicyIntrinsicCallback

CELLS = 20
LOW, HIGH = np.array([-1.2, -0.07]), np.array([0.6, 0.07])
END = "\r" if sys.stdout.isatty() else "\n"
"""After a line that tells how far it is: a terminal shows the latest, a file keeps all."""


class Cells(BaseCallback):
    """Counts the cells of position x speed that were visited."""

    def __init__(self, name: str, steps: int) -> None:
        """Start with none."""
        super().__init__()
        self.name, self.steps = name, steps
        self.visited = np.zeros((CELLS, CELLS), dtype=bool)

    def _on_step(self) -> bool:
        where = (self.locals["new_obs"] - LOW) / (HIGH - LOW) * CELLS
        column, row = np.clip(where.astype(int), 0, CELLS - 1).T
        self.visited[column, row] = True
        if self.num_timesteps % 500 == 0 and self.num_timesteps < self.steps:
            print(self.line(), end=END, flush=True)
        return True

    def line(self) -> str:
        """How far training is, and what it came to."""
        return f"{self.name:10} {self.num_timesteps / self.steps:4.0%}  {self.visited.sum()} cells"


def train(name: str, callback: OffPolicyIntrinsicCallback | None, steps: int, seed: int) -> int:
    """Train an agent; returns the number of cells that it came by."""
    settings: dict[str, Any] = {"learning_starts": 500, "train_freq": 8, "gradient_steps": 4, "batch_size": 64}
    settings |= {"exploration_fraction": 0.3, "exploration_final_eps": 0.05, "target_update_interval": 500}
    model = DQN(
        "MlpPolicy", "MountainCar-v0", learning_rate=1e-3, buffer_size=50_000, seed=seed, device="cpu", **settings
    )
    cells = Cells(name, steps)
    start = time.perf_counter()
    model.learn(steps, callback=[cells] if callback is None else [callback, cells])
    print(f"{cells.line()}, {steps / (time.perf_counter() - start):,.0f} steps per second")
    return int(cells.visited.sum())


def main() -> None:
    """Train both."""
    parser = argparse.ArgumentParser(description="Stable-Baselines3's DQN with an intrinsic reward")
    parser.add_argument("--quick", action="store_true", help="a thousand steps, to see that it works")
    parser.add_argument("--method", default="rnd")
    parser.add_argument("--coefficient", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps = 1000 if options.quick else options.steps
    torch.set_num_threads(1)

    plain = train("DQN", None, steps, options.seed)
    callback = OffPolicyIntrinsicCallback(options.method, coefficient=options.coefficient, seed=options.seed)
    with_bonus = train(options.method, callback, steps, options.seed)
    print(f"cells of {CELLS * CELLS}: {plain} alone, {with_bonus} with {options.method}")
    print("One seed shows how it is used, not which of the two agents is better.")


if __name__ == "__main__":
    main()
