"""What an intrinsic reward costs in Stable-Baselines3: steps per second of PPO with ICM+GMC against plain PPO.

    python benchmarks/sb3.py [--method icm+gmc] [--rounds 9] [--envs 1 8] [--out FILE.json]

Both agents take turns, one rollout of 2,048 steps and the training after it at a time, so that a change in the
machine's speed meets them alike; ratios are those of the same round, and the table has their medians. Time is that
of the process on its one core, which is what a clock shows where nothing else runs; ratios by the clock are given too.
All settings of PPO are Stable-Baselines3's own; DoorKey is Farama's, with the whole grid as a flat vector.
"""

from __future__ import annotations

import argparse
import statistics
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import torch
from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.common import Neighbours, describe, write_json
from headway.integrations.sb3 import OnPolicyIntrinsicCallback

STEPS = 2048
WARM_UP = 2
ENVIRONMENTS = ("CartPole-v1", "MiniGrid-DoorKey-8x8-v0")


def flat_grid(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The whole grid as one row of numbers."""
    return gymnasium.wrappers.FlattenObservation(ImgObsWrapper(FullyObsWrapper(env)))


class Agent:
    """PPO that learns one rollout at a time, paid or not."""

    def __init__(self, env_id: str, envs: int, method: str | None) -> None:
        wrapper = flat_grid if env_id.startswith("MiniGrid") else None
        env = make_vec_env(env_id, envs, seed=0, wrapper_class=wrapper)
        self._model = PPO("MlpPolicy", env, n_steps=STEPS // envs, seed=0, device="cpu")
        self._callback = None if method is None else OnPolicyIntrinsicCallback(method)

    def turn(self) -> tuple[float, float]:
        """Steps per second of one rollout and its training: of the processor, and by the clock."""
        busy, clock = time.process_time(), time.perf_counter()
        self._model.learn(STEPS, callback=self._callback, reset_num_timesteps=False)
        return STEPS / (time.process_time() - busy), STEPS / (time.perf_counter() - clock)


def measure(env_id: str, envs: int, method: str, rounds: int) -> dict[str, float]:
    """Median steps per second of both, and the median, least and greatest ratio of a round."""
    agents = {"plain": Agent(env_id, envs, None), "paid": Agent(env_id, envs, method)}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in agents}
    for number in range(WARM_UP + rounds):
        for name in sorted(agents, reverse=bool(number % 2)):  # neither is always the first
            rates[name].append(agents[name].turn())
    pairs = list(zip(rates["plain"][WARM_UP:], rates["paid"][WARM_UP:], strict=True))
    ratios = [paid[0] / plain[0] for plain, paid in pairs]
    return {
        "plain_steps_per_second": statistics.median(plain[0] for plain, _ in pairs),
        "paid_steps_per_second": statistics.median(paid[0] for _, paid in pairs),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "greatest": max(ratios),
        "ratio_by_the_clock": statistics.median(paid[1] / plain[1] for plain, paid in pairs),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what an intrinsic reward costs in Stable-Baselines3")
    parser.add_argument("--method", default="icm+gmc")
    parser.add_argument("--env", nargs="+", default=list(ENVIRONMENTS), choices=ENVIRONMENTS)
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 8], help="numbers of environments (default: 1 8)")
    parser.add_argument("--rounds", type=int, default=9, help="rollouts that are measured (default: 9)")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    neighbours = Neighbours()
    results: dict[str, dict[str, float]] = {}
    names = f"{'plain/s':>10}{'paid/s':>10}{'ratio':>8}{'least':>8}{'greatest':>10}{'by clock':>10}"
    print(f"{'environment':28}{'envs':>5}{names}")
    for env_id in options.env:
        for envs in options.envs:
            row = measure(env_id, envs, options.method, options.rounds)
            results[f"{env_id}, {envs} env{'s' if envs > 1 else ''}"] = row
            rates = f"{row['plain_steps_per_second']:10,.0f}{row['paid_steps_per_second']:10,.0f}"
            ratios = f"{row['ratio']:8.2f}{row['least']:8.2f}{row['greatest']:10.2f}{row['ratio_by_the_clock']:10.2f}"
            print(f"{env_id:28}{envs:5}{rates}{ratios}", flush=True)
    busy = neighbours.say()
    machine = describe()
    content = {
        "date": machine.date,
        "cpu": machine.cpu,
        "method": options.method,
        "busy_cores_of_others": busy,
        "versions": {name: version(name) for name in ("stable-baselines3", "gymnasium", "minigrid", "torch")},
        "results": results,
    }
    write_json(options.out, content)


if __name__ == "__main__":
    main()
