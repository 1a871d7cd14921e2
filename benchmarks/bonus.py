"""Does an intrinsic reward with its default settings help? Returns of PPO alone and with a bonus, over seeds.

    python benchmarks/bonus.py [--task doorkey lock] [--method ppo icm icm+gmc] [--seeds 0:6] [--out FILE.json]

Stable-Baselines3's PPO learns four tasks:

    doorkey    DoorKey-5x5, the whole grid; PPO alone solves it with some seeds
    lock       20 numbers to be entered in order, a wrong one begins anew: nobody gets to the end by chance
    zoo        DoorKey-5x5 with the settings of rl-zoo3, and observations as float32
    zoo-bytes  the same with observations as bytes, as rl-zoo3 has them: the rollout buffer spoils what is normalised

The callback, with its defaults, is all that differs between methods; `--set` changes a setting of it. A return is the
mean over the episodes that end in the last fifth of the training. Rows that the file has already are not computed
again. The grid of `doorkey` is that of `headway.rl.make_env`, that of `zoo` is Farama's.
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import minigrid  # noqa: F401  (registers its environments)
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from gymnasium.wrappers import DtypeObservation
from minigrid.wrappers import FlatObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

from headway.integrations.sb3 import OnPolicyIntrinsicCallback
from headway.rl import Episodes, IntrinsicConfig, make_env

Array = npt.NDArray[Any]
ENVS, NUMBERS = 8, 20
STEPS = {"doorkey": 61_440, "lock": 61_440, "zoo": 102_400, "zoo-bytes": 102_400}
METHODS = ("ppo", "icm", "icm+gmc")
ZOO: dict[str, Any] = {"n_steps": 128, "batch_size": 64, "n_epochs": 10, "learning_rate": 2.5e-4, "ent_coef": 0.0}
Results = dict[str, dict[str, dict[str, float]]]
"""Returns by task, method and seed."""


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


def make(task: str, seed: int) -> VecEnv:
    """The environments of a task."""
    if task == "doorkey":
        return VecMonitor(Grids("MiniGrid-DoorKey-5x5-v0", seed))
    if task == "lock":
        return make_vec_env(Lock, ENVS, seed=seed)

    def wrapped(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        flat = FlatObsWrapper(env)
        return DtypeObservation(flat, np.float32) if task == "zoo" else flat

    return VecNormalize(make_vec_env("MiniGrid-DoorKey-5x5-v0", ENVS, seed=seed, wrapper_class=wrapped))


def train(task: str, method: str, seed: int, steps: int, changes: dict[str, Any] | None = None) -> float:
    """The mean return at the end."""
    settings = ZOO if task.startswith("zoo") else {"n_steps": 256, "batch_size": 256, "learning_rate": 1e-3}
    model = PPO("MlpPolicy", make(task, seed), seed=seed, device="cpu", **settings)
    returns = Returns(steps)
    changes = dict(changes or {})
    options = {name: changes.pop(name) for name in ("coefficient", "centre", "normalise") if name in changes}
    config = IntrinsicConfig(**changes) if changes else None
    paid = [] if method == "ppo" else [OnPolicyIntrinsicCallback(method, config=config, seed=seed, **options)]
    model.learn(steps, callback=[*paid, returns])
    return float(np.mean(returns.returns)) if returns.returns else 0.0


def table(results: Results) -> str:
    """Means, their standard errors and single seeds, as the page has them."""
    lines = ["| task | method | mean return | standard error | seeds |", "| --- | --- | --- | --- | --- |"]
    for name, by_method in results.items():
        for method, returns in by_method.items():
            values = [returns[seed] for seed in sorted(returns, key=int)]
            error = f"{np.std(values, ddof=1) / len(values) ** 0.5:.2f}" if len(values) > 1 else "–"
            seeds = " ".join(f"{value:.2f}" for value in values)
            lines.append(f"| {name} | {method} | {np.mean(values):.2f} | {error} | {seeds} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> Results:
    """Train, print, and keep."""
    parser = argparse.ArgumentParser(description="returns of PPO alone and with an intrinsic reward")
    parser.add_argument("--task", nargs="+", default=["doorkey", "lock"], choices=list(STEPS))
    parser.add_argument("--method", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", default="0:6", help="FIRST:END")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="of IntrinsicConfig or the callback")
    parser.add_argument("--steps", type=int, help="instead of each task's own number")
    parser.add_argument("--out", type=Path, help="the results as JSON; rows that it has are not computed again")
    options = parser.parse_args(arguments)
    changes = dict(each.split("=", 1) for each in options.set)
    typed = {name: value if value.isidentifier() else json.loads(value) for name, value in changes.items()}
    torch.set_num_threads(1)
    results: Results = {}
    for seed in range(*map(int, options.seeds.split(":"))):
        for name in options.task:
            for method in options.method:
                if options.out and options.out.exists():
                    results = json.loads(options.out.read_text())["returns"]
                label = " ".join([method, *options.set]) if method != "ppo" else method
                rows = results.setdefault(name, {}).setdefault(label, {})
                if str(seed) in rows:
                    continue
                rows[str(seed)] = train(name, method, seed, options.steps or STEPS[name], typed)
                print(f"{name:9} {label:8} seed {seed}: {rows[str(seed)]:.3f}", flush=True)
                if options.out:
                    versions = {each: version(each) for each in ("stable-baselines3", "gymnasium", "minigrid", "torch")}
                    options.out.write_text(json.dumps({"versions": versions, "returns": results}, indent=1) + "\n")
    print(table(results))
    return results


if __name__ == "__main__":
    main()
