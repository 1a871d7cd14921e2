"""Intrinsic rewards from a wrapper around a Gymnasium vector environment.

Steps wait to be scored together: one pass of the predictor for many costs little more than one for a single.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from headway.errors import MethodError
from headway.integrations.rewards import CarriesEnvironment, check_number, check_unit, fixed_floor, reward_of
from headway.integrations.versions import require
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Episodes, Transitions
from headway.rl.methods import default_for
from headway.rl.normalise import RewardNormaliser
from headway.rl.reward import Reward
from headway.rl.spaces import Array

require("gymnasium")

from gymnasium.vector import VectorWrapper  # noqa: E402

__all__ = ["IntrinsicRewardWrapper"]

RAW = "intrinsic_reward"
SCALED = "scaled_intrinsic_reward"
TASK = "task_reward"
PARTS = ("obs", "actions", "next_obs", "valid", "ended")


class Block:
    """The steps since the predictor last learned: the reward must not change before `settle` was called.

    Args:
        reward: scores them.
        scale: from raw rewards [T, N], and where there are any [T, N], to scaled ones [T, N]; asked once per step.
    """

    def __init__(self, reward: Reward, scale: Callable[[Array, Array], Array]) -> None:
        self._reward, self._scale = reward, scale
        self._steps: list[dict[str, Array]] = []
        self._raw: list[Array] = []
        self._scaled: list[Array] = []
        self.transitions = 0

    def add(self, step: dict[str, Array]) -> int:
        """Take in the `PARTS` of a step of N environments; returns its number."""
        self._steps.append(step)
        self.transitions += int(step["valid"].sum())
        return len(self._steps) - 1

    def end_episodes(self, envs: Array) -> None:
        """Note that environments [N] were reset after the last step."""
        if self._steps:
            self._steps[-1]["ended"] = self._steps[-1]["ended"] | envs
        else:
            self._reward.end_episodes(np.flatnonzero(envs).tolist())

    def rewards(self, index: int) -> tuple[Array, Array]:
        """What the scorer says about a step [N], zero where there was no transition; and the same, scaled."""
        if index >= len(self._raw):
            self._score()
        return self._raw[index], self._scaled[index]

    def settle(self) -> tuple[Array, Array]:
        """Score what has not been; returns raw rewards [T, N], and where there are any [T, N]."""
        if len(self._raw) < len(self._steps):
            self._score()
        return np.stack(self._raw), self._stacked("valid")

    def state(self) -> list[dict[str, torch.Tensor]]:
        """The steps, as tensors."""
        return [{name: torch.from_numpy(part) for name, part in step.items()} for step in self._steps]

    def resume(self, state: list[Mapping[str, torch.Tensor]]) -> None:
        """Take in the steps of a state."""
        for step in state:
            ended = {"ended": torch.zeros_like(step["valid"])}  # former states do not say
            self.add({name: part.numpy() for name, part in {**ended, **step}.items()})

    def joined(self, first: int = 0) -> Transitions:
        """The transitions of all steps from one on, in the order of time."""
        parts = {name: self._stacked(name, first) for name in PARTS}
        return Transitions.of_rollout(parts.pop("valid"), **parts)

    def _stacked(self, part: str, first: int = 0) -> Array:
        return np.stack([step[part] for step in self._steps[first:]])

    def _score(self) -> None:
        """Score the steps that wait, all in one pass; a reward of single episodes goes through those before again."""
        done = len(self._raw)
        first = 0 if self._reward.is_episodic else done
        valid = self._stacked("valid", first)
        raw = np.zeros(valid.shape)
        if valid.any():
            raw[valid] = self._reward.rewards(self.joined(first)).double().cpu().numpy()
        raw, valid = raw[done - first :], valid[done - first :]
        self._raw += list(raw)
        self._scaled += list(self._scale(raw, valid))


class Pending(np.lib.mixins.NDArrayOperatorsMixin):
    """An array [N] that `values` computes when somebody looks at it; to pickle and to copy it is the array."""

    dtype = np.dtype(np.float64)
    ndim = 1

    def __init__(self, values: Callable[[], Array], count: int) -> None:
        self._values = values
        self.shape = (count,)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._values(), dtype=dtype)  # a copy, which is yours

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, Pending) else x for x in inputs), **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # numpy asks for some of them before it asks for the array
            raise AttributeError(name)
        return getattr(self.__array__(), name)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(np.asarray(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return np.array, (np.asarray(self),)

    def __repr__(self) -> str:
        return repr(np.asarray(self))


class IntrinsicRewardWrapper(CarriesEnvironment, VectorWrapper):
    """Puts intrinsic rewards into the infos of every step.

        env = IntrinsicRewardWrapper(gymnasium.make_vec("CartPole-v1", 8), "icm+gmc", coefficient=0.1)
        obs, rewards, terminated, truncated, infos = env.step(actions)
        rewards + infos["scaled_intrinsic_reward"]

    `infos["intrinsic_reward"]` is what the scorer says [N], `infos["scaled_intrinsic_reward"]` the same normalised and
    multiplied by the coefficient [N]. As Gymnasium has it, `infos["_intrinsic_reward"]` and
    `infos["_scaled_intrinsic_reward"]` say where there is one [N]: not where a step only began a new episode, for
    which zero stands. The task's rewards, and with them its episode statistics, stay as they are unless `add` is set.

    A step is scored by the predictor, and scaled by the statistics, as they were after the last update; both learn when
    `update_every` transitions have come together. The rewards in the infos are arrays that are computed when you look
    at them, all that wait in one pass: look at the end of a rollout, and they cost little. Normalised rewards are zero
    until the first update. Transitions at the ends of episodes are the true ones under all of Gymnasium's autoreset
    modes.

    Args:
        env: a vector environment; its observations may have several parts (Dict, Tuple).
        method: such as "icm+gmc", or an `IntrinsicReward` of your own.
        coefficient: what the intrinsic reward is multiplied by.
        normalise: bring it to the scale of `headway.rl.RewardNormaliser`, in units of the task's return.
        centre: with `normalise`, take the mean off first, so that being alive is worth nothing.
        add: also add the scaled reward to the rewards that `step` returns; the task's own are then in
            `infos["task_reward"]`. Put `RecordEpisodeStatistics` inside this wrapper, not around it.
        update_every: the number of transitions that the predictor learns from at once. A floor in the unit "batch" is
            meant for batches of this size; an `IntrinsicReward` of your own needs the unit "sample".
        gamma: the discount of the sums.
        config: settings of the predictor and the scorer; None for the defaults, which take images as [H, W, C].
        seed: of the predictor's weights.
        device: where the predictor lives.

    Raises:
        EnvError: it is no vector environment, its observations are not arrays, or without a config they are images that
            look like [C, H, W].
        MethodError: there is no such method, it has no intrinsic reward, or it is your own with the unit "batch".
    """

    env: Any

    def __init__(
        self,
        env: Any,
        method: str | Reward = "icm+gmc",
        *,
        coefficient: float = 0.05,
        normalise: bool = True,
        centre: bool = True,
        add: bool = False,
        update_every: int = 1024,
        gamma: float = 0.99,
        config: IntrinsicConfig | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        self._episodes = Episodes(env)
        super().__init__(env)
        if update_every < 1:
            raise MethodError(f"update_every: expected at least 1, got {update_every}")
        check_number("coefficient", coefficient)
        spaces = env.single_observation_space, env.single_action_space
        if isinstance(method, Reward):
            check_unit(method, update_every)
        else:
            config = fixed_floor(default_for(spaces[0]) if config is None else config, update_every)
        self.coefficient = coefficient
        self.add = add
        self.update_every = update_every
        self.reward = reward_of(method, spaces, config, device, seed)
        self.normaliser = RewardNormaliser(env.num_envs, gamma, centre=centre) if normalise else None
        self.metrics: dict[str, float] = {}
        self._block = Block(self.reward, self._scaled)

    # What users call

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes; with `options={"reset_mask": ...}` only there. It has no reward."""
        mask = (options or {}).get("reset_mask")  # read first: Gymnasium takes it out of the options
        obs, infos = self.env.reset(seed=seed, options=options)
        began = np.ones(self.num_envs, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
        self._episodes.begin(obs, began)
        self._block.end_episodes(began)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act in all environments, and reward it."""
        _ = self._episodes.obs  # an environment that was not reset is refused before it acts
        taken = np.array(actions)  # a copy: it waits for the predictor, and whoever gave it may use it again
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        step = self._episodes.take(taken, obs, rewards, terminated, truncated, infos)
        block = self._block
        index = block.add({name: getattr(step, name) for name in PARTS})
        if block.transitions >= self.update_every:
            self._learn()
        raw = Pending(lambda: block.rewards(index)[0], self.num_envs)
        scaled = Pending(lambda: block.rewards(index)[1], self.num_envs)
        infos = {**infos, RAW: raw, f"_{RAW}": step.valid, SCALED: scaled, f"_{SCALED}": step.valid.copy()}
        if self.add:
            infos[TASK], infos[f"_{TASK}"] = step.rewards, np.ones_like(step.valid)
            rewards = rewards + np.asarray(scaled)
        return obs, rewards, terminated, truncated, infos

    def state_dict(self) -> dict[str, Any]:
        """What later rewards depend on, and the environment where it can tell its state; see `carries_environment`."""
        now = self._episodes.state_dict()
        return {
            "env": self.env.state_dict() if self.carries_environment else None,
            "reward": self.reward.state_dict(),
            "normaliser": None if self.normaliser is None else self.normaliser.state_dict(),
            "waiting": self._block.state(),
            **{name: value if value is None else torch.from_numpy(value) for name, value in now.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; an environment without a state has to be put back by other means.

        Raises:
            StateError: it is the state of another method, another environment or another number of them.
        """
        self._check_state(len(state["over"]), state.get("env"))
        self.reward.load_state_dict(state["reward"])
        if self.carries_environment:
            self.env.load_state_dict(state["env"])
        if self.normaliser is not None and state["normaliser"] is not None:
            self.normaliser.load_state_dict(state["normaliser"])
        self._block = Block(self.reward, self._scaled)
        self._block.resume(state["waiting"])
        now = {name: None if state[name] is None else state[name].numpy() for name in ("obs", "over")}
        self._episodes.load_state_dict(now)

    # Parts

    def _scaled(self, raw: Array, valid: Array) -> Array:
        """Raw rewards [T, N] as they are scaled now."""
        if self.normaliser is None:
            return self.coefficient * raw
        if self.normaliser.moments.is_empty:
            return np.zeros_like(raw)
        scaled: Array = self.coefficient * self.normaliser(torch.from_numpy(raw)).numpy()
        return np.where(valid, scaled, 0.0)

    def _learn(self) -> None:
        """Train the predictor with what has come together, and let the statistics follow."""
        raw, valid = self._block.settle()
        self.metrics = self.reward.update(self._block.joined())
        if self.normaliser is not None:
            self.normaliser.update(torch.from_numpy(raw), torch.from_numpy(valid))
        self._block = Block(self.reward, self._scaled)
