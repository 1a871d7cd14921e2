"""Curricula over levels for Gymnasium vector environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch

from headway.errors import EnvError, MethodError, SelectionError
from headway.integrations.rewards import CarriesEnvironment
from headway.integrations.versions import require
from headway.rl.episodes import autoreset_mode
from headway.rl.spaces import Array, pick
from headway.selection import LevelSampler

require("gymnasium")

from gymnasium.vector import AutoresetMode, VectorWrapper  # noqa: E402

__all__ = ["LevelWrapper"]


class LevelWrapper(CarriesEnvironment, VectorWrapper):
    """Lets a `LevelSampler` choose what each environment plays next, whenever an episode ends.

        env = gymnasium.make_vec(ID, 8, vector_kwargs={"autoreset_mode": AutoresetMode.DISABLED})
        env = LevelWrapper(env, LevelSampler(1000))
        ... a rollout of T steps, from which you compute advantages [T, N] ...
        env.update(advantages.abs())

    Levels that are seeds are given to `reset(seed=...)` of the environments that begin, options of tasks to
    `reset(options=...)`. Outwards the wrapper has the autoreset mode SAME_STEP: a step that ends an episode returns the
    first observation of the next, and `infos["final_obs"]` has the last one. `infos["level"]` [N] is the number of the
    level that an observation shows; where an episode ended, `infos["final_info"]["level"]` is that of its last one.

    Args:
        env: a vector environment under the autoreset mode DISABLED, whose `reset` takes a list of seeds and a
            `reset_mask`, as Gymnasium's own and those of `headway.rl.make_env` do.
        sampler: the levels.
        score: "return" scores a level by the return of each episode, for `TSCL` and its like, and `update` need not be
            called; None leaves the scores to you.

    Raises:
        EnvError: it is no vector environment, or under another mode.
        MethodError: there is no such score.
    """

    env: Any

    def __init__(self, env: Any, sampler: LevelSampler, *, score: Literal["return"] | None = None) -> None:
        mode = autoreset_mode(env)
        if mode is not AutoresetMode.DISABLED:
            raise EnvError(
                f"expected an environment under the autoreset mode DISABLED, which lets levels be chosen, got "
                f"{mode.name}; make it with vector_kwargs={{'autoreset_mode': AutoresetMode.DISABLED}}, or "
                f"headway.rl.make_env(..., autoreset_mode='disabled')"
            )
        if score not in (None, "return"):
            raise MethodError(f"expected score='return' or None, got {score!r}")
        super().__init__(env)
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.sampler = sampler
        self.score = score
        self._level = np.zeros(env.num_envs, dtype=np.int64)
        self._returns = np.zeros(env.num_envs)
        self._played: list[Array] = []

    # What users call

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes everywhere, each in a level of its own.

        Args:
            seed: of the environments, for tasks; where levels are seeds, each level takes its place.
            options: of the environments; those of a task come on top.
        """
        obs, infos = self._begin(np.ones(self.num_envs, dtype=bool), seed, options or {})
        return obs, {**infos, **self._told()}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act in all environments; where that ends an episode, begin one in the next level."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        ended = np.asarray(terminated, dtype=bool) | np.asarray(truncated, dtype=bool)
        infos = {**infos, **self._told()}
        self._returns += rewards
        if self.score is None:
            self._played.append(self._level.copy())
        if ended.any():
            if self.score == "return":
                self.sampler.update(torch.from_numpy(self._level[ended]), torch.from_numpy(self._returns[ended]))
            last = np.full(self.num_envs, None, dtype=object)
            for row in np.flatnonzero(ended).tolist():
                last[row] = _copied(pick(obs, row))
            final = {"final_obs": last, "_final_obs": ended, "final_info": infos, "_final_info": ended.copy()}
            obs, begun = self._begin(ended, None, {})
            infos = {**_joined(infos, begun, ended), **final, **self._told()}
        return obs, rewards, terminated, truncated, infos

    def update(self, scores: Any) -> None:
        """Score the levels of the last T steps; a level's score is the mean over its steps.

        Args:
            scores: of these steps [T, N], such as absolute advantages, or intrinsic rewards of a world model.

        Raises:
            SelectionError: another shape, more steps than there were since the last update, or returns are the scores.
        """
        values = torch.as_tensor(scores)
        if self.score is not None:
            raise SelectionError(f"expected no scores, got some: the wrapper scores levels by {self.score!r}")
        if values.dim() != 2 or values.shape[1] != self.num_envs or not 1 <= len(values) <= len(self._played):
            raise SelectionError(
                f"expected scores [T, {self.num_envs}] of up to {len(self._played)} steps since the last update, "
                f"got {list(values.shape)}"
            )
        self.sampler.update(torch.from_numpy(np.stack(self._played[-len(values) :])), values)
        self._played = []

    def state_dict(self) -> dict[str, Any]:
        """What later levels depend on, and the environment where it can tell its state; see `carries_environment`."""
        played = np.stack(self._played) if self._played else np.zeros((0, self.num_envs), dtype=np.int64)
        return {
            "env": self.env.state_dict() if self.carries_environment else None,
            "sampler": self.sampler.state_dict(),
            "level": torch.from_numpy(self._level.copy()),
            "returns": torch.from_numpy(self._returns.copy()),
            "played": torch.from_numpy(played),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; an environment without a state has to be put back by other means.

        Raises:
            StateError: it is the state of other levels, or of another number of environments.
        """
        self._check_state(len(state["level"]), state["env"])
        self.sampler.load_state_dict(state["sampler"])
        if self.carries_environment:
            self.env.load_state_dict(state["env"])
        self._level, self._returns = state["level"].numpy().copy(), state["returns"].numpy().copy()
        self._played = list(state["played"].numpy().copy())

    # Parts

    def _begin(self, rows: Array, seed: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Begin episodes in some environments [N], in levels that the sampler chooses."""
        numbers = np.flatnonzero(rows)
        self._level[rows] = self.sampler.sample(len(numbers)).numpy()
        self._returns[rows] = 0.0
        chosen = [self.sampler.levels[number] for number in self._level]
        if not isinstance(chosen[0], Mapping):
            seeds = [level if row else None for level, row in zip(chosen, rows, strict=True)]
            mask = {} if rows.all() else {"reset_mask": rows.copy()}
            return self.env.reset(seed=seeds, options={**options, **mask} or None)
        return self._begin_tasks(numbers.tolist(), chosen, seed, options)

    def _begin_tasks(
        self, rows: list[int], tasks: Any, seed: Any, options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """One after the other: options of a reset are those of all environments that it begins."""
        obs, infos = None, {}
        for row in rows:
            own = np.arange(self.num_envs) == row
            given = {**options, **tasks[row]}
            if row == rows[0] and len(rows) == self.num_envs:  # a first reset must be one of all
                obs, infos = self.env.reset(seed=seed, options=given)
            else:
                obs, begun = self.env.reset(options={**given, "reset_mask": own})
                infos = _joined(infos, begun, own)
        return obs, infos

    def _told(self) -> dict[str, Any]:
        """The level of each environment, as infos have it."""
        return {"level": self._level.copy(), "_level": np.ones(self.num_envs, dtype=bool)}


def _copied(value: Any) -> Any:
    """An observation of one environment as arrays of its own: the environment may use its arrays again."""
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    return tuple(map(_copied, value)) if isinstance(value, tuple) else np.array(value)


def _joined(infos: Mapping[str, Any], begun: Mapping[str, Any], rows: Array) -> dict[str, Any]:
    """Infos of a step, with those of a reset in place of them for some environments [N]."""
    joined = {key: value & ~rows if str(key).startswith("_") else value for key, value in infos.items()}
    for key, value in begun.items():
        if str(key).startswith("_"):
            joined[key] = (joined[key] | (value & rows)) if key in joined else value & rows
        elif isinstance(value, Mapping):
            joined[key] = _joined(joined.get(key, {}), value, rows)
        elif key in joined:
            joined[key] = np.array(joined[key])
            joined[key][rows] = np.asarray(value)[rows]
        else:
            joined[key] = value
    return joined
