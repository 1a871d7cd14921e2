"""Stable-Baselines3: PPO in a task with a rare reward, alone and with a bonus of ICM+GMC.

    pip install 'headway-torch[sb3,rl]'
    python examples/sb3_ppo.py [--quick] [--method icm+gmc] [--steps 30000]

In DoorKey there is no reward until the agent has found a key, opened a door and reached the goal behind it. The
callback is all that differs between the two agents. One seed shows how it is used, not which of them is better. It
takes a minute on one core.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import torch
from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from headway.integrations.sb3 import OnPolicyIntrinsicCallback

ENVS = 8
END = "\r" if sys.stdout.isatty() else "\n"
"""After a line that tells how far it is: a terminal shows the latest, a file keeps all."""


def flat_grid(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The whole grid as one row of numbers."""
    return gymnasium.wrappers.FlattenObservation(ImgObsWrapper(FullyObsWrapper(env)))


class Arrivals(BaseCallback):
    """Counts the episodes that ended at the goal, and tells how far training is."""

    def __init__(self, name: str, steps: int) -> None:
        """Start at none."""
        super().__init__()
        self.name, self.steps = name, steps
        self.arrived = self.episodes = 0

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.episodes += 1
                self.arrived += not info["TimeLimit.truncated"]
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps < self.steps:
            print(self.line(), end=END, flush=True)

    def line(self) -> str:
        """How far training is, and what it came to."""
        share = min(1.0, self.num_timesteps / self.steps)
        return f"{self.name:10} {share:4.0%}  reached the goal in {self.arrived} of {self.episodes} episodes"


def train(name: str, callback: OnPolicyIntrinsicCallback | None, steps: int, seed: int) -> tuple[PPO, Arrivals]:
    """Train an agent; the callback is all that differs."""
    env = make_vec_env("MiniGrid-DoorKey-5x5-v0", ENVS, seed=seed, wrapper_class=flat_grid)
    model = PPO("MlpPolicy", env, n_steps=256, batch_size=256, learning_rate=1e-3, seed=seed, device="cpu")
    arrivals = Arrivals(name, steps)
    start = time.perf_counter()
    model.learn(steps, callback=[arrivals] if callback is None else [callback, arrivals])
    print(f"{arrivals.line()}, {steps / (time.perf_counter() - start):,.0f} steps per second")
    return model, arrivals


def main() -> None:
    """Train both, then save, load and go on."""
    parser = argparse.ArgumentParser(description="Stable-Baselines3's PPO with an intrinsic reward")
    parser.add_argument("--quick", action="store_true", help="a few rollouts, to see that it works")
    parser.add_argument("--method", default="icm+gmc")
    parser.add_argument("--coefficient", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps = 2 * 256 * ENVS if options.quick else options.steps
    torch.set_num_threads(1)

    train("PPO", None, steps, options.seed)
    callback = OnPolicyIntrinsicCallback(options.method, coefficient=options.coefficient, seed=options.seed)
    model, _ = train(options.method, callback, steps, options.seed)

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "agent")  # the intrinsic reward goes with it
        again = PPO.load(Path(folder) / "agent", model.get_env(), device="cpu")
        callback = OnPolicyIntrinsicCallback.carried_by(again)
        again.learn(256 * ENVS, callback=callback, reset_num_timesteps=False)
    print(f"saved, loaded and trained on: {again.num_timesteps:,} steps")
    print("One seed shows how it is used, not which of the two agents is better.")


if __name__ == "__main__":
    main()
