"""Does an intrinsic reward with its default settings help? Returns of PPO alone and paid, over seeds.

    python benchmarks/bonus.py [--env doorkey lock] [--method ppo icm icm+gmc] [--seeds 6] [--out FILE.json]

Stable-Baselines3's PPO learns in DoorKey-5x5, which it solves with some seeds, and opens a lock of 20 numbers, which
it does not: a wrong number begins it anew, so that nobody finds the end by chance. The callback, with its defaults, is
all that differs between methods. A return is the mean over the episodes that end in the last fifth of the training.
Rows that the file has already are not computed again. DoorKey is that of `headway.rl.make_env`: the rules are Farama's.
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from headway.integrations.sb3 import OnPolicyIntrinsicCallback
from headway.rl import Episodes, make_env

Array = npt.NDArray[Any]
ENVS, NUMBERS = 8, 20
STEPS = {"doorkey": 61_440, "lock": 61_440}
METHODS = ("ppo", "icm", "icm+gmc")
Results = dict[str, dict[str, dict[str, float]]]
"""Returns by environment, method and seed."""


class Lock(gymnasium.Env[Array, int]):
    """A row of numbers, 0 or 1, to be entered in order; the last one pays 1, a wrong one begins anew."""

    action_space: Any = spaces.Discrete(2)
    observation_space = spaces.Box(0, 1, (NUMBERS,), np.float32)
    numbers = np.random.default_rng(0).integers(0, 2, NUMBERS)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """Begin."""
        super().reset(seed=seed)
        self.place = self.time = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Enter a number."""
        self.time += 1
        self.place = self.place + 1 if action == self.numbers[self.place] else 0
        is_open = self.place == NUMBERS - 1
        return self._seen(), float(is_open), is_open, self.time == 3 * NUMBERS and not is_open, {}

    def _seen(self) -> Array:
        return np.eye(NUMBERS, dtype=np.float32)[self.place]


class Grids(VecEnv):
    """DoorKey as Stable-Baselines3 takes it: the whole grid as one row of numbers."""

    def __init__(self, env_id: str, seed: int) -> None:
        env = make_env(env_id, num_envs=ENVS)
        self._episodes = Episodes(env)
        self._episodes.reset(seed=seed)
        size = int(np.prod(env.single_observation_space.shape or ()))
        super().__init__(ENVS, spaces.Box(0, 255, (size,), np.uint8), env.single_action_space)

    def reset(self) -> Array:
        """What is seen at first."""
        return self._episodes.obs.reshape(ENVS, -1)

    def step_async(self, actions: Array) -> None:
        """Keep the actions."""
        self._actions = actions

    def step_wait(self) -> tuple[Array, Array, Array, list[dict[str, Any]]]:
        """Act."""
        step = self._episodes.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(ENVS)]
        for index in np.flatnonzero(step.ended):
            infos[index] = {
                "terminal_observation": step.next_obs[index].ravel(),
                "TimeLimit.truncated": bool(step.truncated[index]),
            }
        return self.reset(), step.rewards.astype(np.float32), step.ended, infos

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """None of them has any."""
        return [None] * ENVS

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """See `get_attr`."""

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **options: Any) -> list[Any]:
        """See `get_attr`."""
        return [None] * ENVS

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """None is."""
        return [False] * ENVS


class Returns(BaseCallback):
    """Keeps the returns of the episodes that end in the last fifth of the training."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.returns: list[float] = []
        self._from = 0.8 * steps

    def _on_step(self) -> bool:
        if self.num_timesteps > self._from:
            self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return True


def train(env_name: str, method: str, seed: int, steps: int) -> float:
    """The mean return at the end."""
    env = (
        VecMonitor(Grids("MiniGrid-DoorKey-5x5-v0", seed))
        if env_name == "doorkey"
        else make_vec_env(Lock, ENVS, seed=seed)
    )
    model = PPO("MlpPolicy", env, n_steps=256, batch_size=256, learning_rate=1e-3, seed=seed, device="cpu")
    returns = Returns(steps)
    paid = [] if method == "ppo" else [OnPolicyIntrinsicCallback(method, seed=seed)]
    model.learn(steps, callback=[*paid, returns])
    return float(np.mean(returns.returns))


def table(results: Results) -> str:
    """Means and single seeds, as the page has them."""
    lines = ["| task | method | mean return | seeds |", "| --- | --- | --- | --- |"]
    for name, by_method in results.items():
        for method, returns in by_method.items():
            seeds = ", ".join(f"{seed}: {value:.2f}" for seed, value in sorted(returns.items()))
            lines.append(f"| {name} | {method} | {np.mean(list(returns.values())):.2f} | {seeds} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> Results:
    """Train, print, and keep."""
    parser = argparse.ArgumentParser(description="returns of PPO alone and with an intrinsic reward")
    parser.add_argument("--env", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--method", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--steps", type=int, help="instead of each environment's own number")
    parser.add_argument("--out", type=Path, help="the results as JSON; rows that it has are not computed again")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results: Results = {}
    for seed in range(options.seeds):
        for name in options.env:
            for method in options.method:
                if options.out and options.out.exists():
                    results = json.loads(options.out.read_text())["returns"]
                rows = results.setdefault(name, {}).setdefault(method, {})
                if str(seed) in rows:
                    continue
                rows[str(seed)] = train(name, method, seed, options.steps or STEPS[name])
                print(f"{name:8} {method:8} seed {seed}: {rows[str(seed)]:.3f}", flush=True)
                if options.out:
                    versions = {each: version(each) for each in ("stable-baselines3", "gymnasium", "torch")}
                    options.out.write_text(json.dumps({"versions": versions, "returns": results}, indent=1) + "\n")
    print(table(results))
    return results


if __name__ == "__main__":
    main()
