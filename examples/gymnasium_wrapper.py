"""Gymnasium: a vector environment that says what each step was worth to a predictor.

    pip install 'headway-torch[rl]'
    python examples/gymnasium_wrapper.py [--quick] [--methods icm+gmc rnd]

An agent that acts at random drives eight mountain cars. The table shows, for bands of the car's speed, how often it was
met and what a step in it was worth on average, by method: RND rewards what is rare, ICM+GMC what its forward model is
learning from. The task's own episode statistics are what they were. It takes half a minute on one core.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from headway.integrations.gymnasium import IntrinsicRewardWrapper

ENVS = 8
BANDS = (0.0, 0.005, 0.01, 0.02, 0.07)
END = "\r" if sys.stdout.isatty() else "\n"
"""After a line that tells how far it is: a terminal shows the latest, a file keeps all."""


def play(method: str, steps: int, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The speed after every step, and what the step was worth."""
    env = gymnasium.make_vec("MountainCar-v0", ENVS, vectorization_mode="sync")
    env = IntrinsicRewardWrapper(env, method, coefficient=1.0, seed=seed)
    env = RecordEpisodeStatistics(env)  # outside or inside: rewards are the task's
    env.reset(seed=seed)
    env.action_space.seed(seed)
    speeds, rewards = [], []
    for step in range(steps):
        obs, *_, infos = env.step(env.action_space.sample())
        valid = infos["_intrinsic_reward"]  # not where a step only began a new episode
        speeds.append(np.abs(obs[valid, 1]))
        rewards.append(infos["scaled_intrinsic_reward"][valid])
        if (step + 1) % max(1, steps // 10) == 0 and step + 1 < steps:
            print(f"{method:10} {(step + 1) / steps:4.0%}", end=END, flush=True)
    print(f"{method:10} 100%  the task's return is {np.mean(env.return_queue):.0f} in {env.episode_count} episodes")
    return np.concatenate(speeds), np.concatenate(rewards)


def main() -> None:
    """Play with every method, and show the rewards."""
    parser = argparse.ArgumentParser(description="intrinsic rewards in the infos of a vector environment")
    parser.add_argument("--quick", action="store_true", help="a few hundred steps, to see that it works")
    parser.add_argument("--methods", nargs="+", default=["icm+gmc", "rnd"])
    parser.add_argument("--steps", type=int, default=2000, help="steps of all environments (default: 2000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = 250 if options.quick else options.steps
    played = {method: play(method, steps, options.seed) for method in options.methods}
    print(f"{'speed':16}{'steps':>8}" + "".join(f"{method:>12}" for method in played))
    for low, high in pairwise(BANDS):
        cells = []
        for speeds, rewards in played.values():
            own = rewards[(speeds >= low) & (speeds < high)]
            cells.append(f"{own.mean():12.4f}" if len(own) else f"{'-':>12}")
        print(f"{low:.3f} to {high:.3f}  {len(own):8,}{''.join(cells)}")
    print("RND rewards what is rare, GMC what its predictor is learning from: rare states need not be that.")


if __name__ == "__main__":
    main()
