"""What environments over arrays have in common: episodes that end and begin again, infos, statistics, checks, state.

One implementation of Gymnasium's three autoreset modes serves them all. An environment fills in the hooks at the end
of `ArrayVectorEnv`; `GridVectorEnv` is what grids have in common besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from headway.errors import EnvError, StateError
from headway.rl.envs.grids import render_grid
from headway.rl.envs.streams import Rows, Streams

if TYPE_CHECKING:
    Base: TypeAlias = VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]
else:
    Base = VectorEnv

Mask = NDArray[np.bool_]
Grids = NDArray[np.uint8]
Outcome = tuple[NDArray[np.float64], Mask, Mask]
"""Rewards, terminated and truncated [N]."""

OWN_STREAM = 0
"""The purpose of the streams that an environment draws from while it runs."""
NO_DOOR = int(np.iinfo(np.int64).max)
"""The distance from the nearest door where there is none."""


class ArrayVectorEnv(Base):
    """N environments whose state is in arrays.

    Beside what Gymnasium prescribes, infos hold `episode_return` and `episode_length` of the episodes that have ended
    [N]; `_episode_return` tells which. The seed decides every random choice; what happens in one environment does not
    depend on how many others there are.
    """

    reset_options: tuple[str, ...] = ("reset_mask",)

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        observations: Box,
        actions: Discrete | Box,
        seed: int,
        autoreset_mode: AutoresetMode,
    ) -> None:
        self.env_id = env_id
        self.num_envs = num_envs
        self.shape = observations.shape
        self.autoreset_mode = autoreset_mode
        self.metadata = {"autoreset_mode": autoreset_mode}
        self.single_observation_space = observations
        self.single_action_space = actions
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seed(check_seed(seed), np.arange(num_envs))
        self._started = False
        self._over = np.zeros(num_envs, dtype=bool)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin new episodes.

        Args:
            seed: start the random streams anew; None goes on with them. With one for each environment [N], those of the
                same seed play the same level.
            options: `reset_mask`, a boolean array [N], limits the reset to some environments.

        Returns:
            the observations [N, ...] and the infos.

        Raises:
            EnvError: an option is unknown or of the wrong kind, or environments would be left out of the first reset.
        """
        options = options or {}
        unknown = sorted(set(options) - set(self.reset_options))
        if unknown:
            raise EnvError(f"expected reset options among {', '.join(self.reset_options)}, got {', '.join(unknown)}")
        rows = rows_to_reset(options, self.num_envs)
        if len(rows) < self.num_envs and not self._started:
            raise EnvError(
                "expected a first reset of all environments, got a reset_mask; call reset() without it first"
            )
        if isinstance(seed, Sequence):
            for row in rows.tolist():
                if seed[row] is not None:
                    self._seed_level(check_seed(seed[row]), row)
        elif seed is not None:
            self._seed(check_seed(seed), rows)
        self._begin(rows, options)
        self._started = True
        return self._observe(), self._infos()

    def step(self, actions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Act in all environments.

        Args:
            actions: integers [N], or numbers [N, ...].

        Raises:
            EnvError: an action is not one; there was no reset; or an episode is over and autoreset is DISABLED.
        """
        actions = _checked_actions(actions, self.num_envs, self.single_action_space)
        if not self._started:
            raise EnvError("expected environments that were reset, got some that were not; call reset() first")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            raise EnvError(
                f"expected running episodes, got {int(self._over.sum())} that are over, and autoreset is disabled; "
                "call reset(options={'reset_mask': terminated | truncated}) first"
            )
        waiting = self._over
        live = ~waiting if waiting.any() else None
        self._lengths += 1
        rewards, terminated, truncated = self._advance(actions, live)
        if live is not None:  # NEXT_STEP: their action is ignored, they only begin anew
            rewards, terminated, truncated = rewards * live, terminated & live, truncated & live
            self._begin(np.flatnonzero(waiting), {})
        self._returns += rewards
        over = terminated | truncated
        self._over = over
        infos = self._end(over) if over.any() else {}
        return self._observe(), rewards, terminated, truncated, infos | self._infos()

    def _end(self, over: Mask) -> dict[str, Any]:
        """Take note of episodes that are over, and begin new ones in the same step if that is the mode."""
        infos: dict[str, Any] = {}
        for key, values in (("episode_return", self._returns), ("episode_length", self._lengths)):
            infos |= {key: np.where(over, values, 0), f"_{key}": over.copy()}
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return infos
        rows = np.flatnonzero(over)
        last = np.full(self.num_envs, None, dtype=object)
        for row, grid in zip(rows.tolist(), self._observe()[rows], strict=True):
            last[row] = grid
        final = {key: value & over if key[0] == "_" else value for key, value in self._infos().items()}
        infos |= {"final_obs": last, "_final_obs": over.copy(), "final_info": final, "_final_info": over.copy()}
        self._begin(rows, {})
        return infos

    def _begin(self, rows: Rows, options: Mapping[str, Any]) -> None:
        self._restart(rows, options)
        self._over[rows] = False
        self._returns[rows] = 0
        self._lengths[rows] = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything that the coming steps depend on, as numbers, strings, lists and dicts."""
        return {
            "env": self._identity(),
            "started": self._started,
            "over": self._over.tolist(),
            "returns": self._returns.tolist(),
            "lengths": self._lengths.tolist(),
            "inner": self._inner_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of such an environment, bit for bit; that of another one is a StateError."""
        if state.get("env") != self._identity():
            raise StateError(f"expected the state of {self._identity()}, got that of {state.get('env')}")
        self._started = bool(state["started"])
        self._over = np.array(state["over"], dtype=bool)
        self._returns = np.array(state["returns"], dtype=np.float64)
        self._lengths = np.array(state["lengths"], dtype=np.int64)
        self._load_inner_state(state["inner"])

    def _identity(self) -> dict[str, Any]:
        return {
            "class": type(self).__name__,
            "id": self.env_id,
            "num_envs": self.num_envs,
            "shape": list(self.shape),
            "autoreset_mode": self.autoreset_mode.value,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env_id}, num_envs={self.num_envs})"

    # What an environment fills in.

    def _infos(self) -> dict[str, Any]:
        """What is known about the current observations, by name."""
        return {}

    def _seed(self, seed: int, rows: Rows) -> None:
        """Start the random streams of some environments anew."""
        if len(rows) == self.num_envs:
            self._streams = Streams(self.num_envs, seed, OWN_STREAM)
        else:
            self._streams.seed(seed, rows)

    def _seed_level(self, level: int, row: int) -> None:
        """Start the random stream of one environment anew, as that of any other environment with this seed."""
        raise EnvError(f"expected one seed for all environments, got a list; {self.env_id} has no levels by seed")

    def _restart(self, rows: Rows, options: Mapping[str, Any]) -> None:
        """Begin a new episode in some environments."""
        raise NotImplementedError

    def _advance(self, actions: NDArray[Any], live: Mask | None) -> Outcome:
        """Act. Where `live` is False the episode is over: the outcome is not used, a restart follows."""
        raise NotImplementedError

    def _observe(self) -> NDArray[Any]:
        """What the agent sees [N, ...], in a new array."""
        raise NotImplementedError

    def _inner_state(self) -> dict[str, Any]:
        raise NotImplementedError

    def _load_inner_state(self, state: Mapping[str, Any]) -> None:
        raise NotImplementedError


class GridVectorEnv(ArrayVectorEnv):
    """Environments whose observations are grids of codes [N, width, height, 3].

    Infos also hold `door_distance`, the Manhattan distance of the agent from the nearest door [N].

    It is made as `ArrayVectorEnv` is, with width and height of an observation, and the number of actions.
    """

    render_mode = "rgb_array"

    def __init__(
        self, env_id: str, num_envs: int, shape: tuple[int, int], actions: int, seed: int, autoreset_mode: AutoresetMode
    ) -> None:
        grids = Box(0, 255, (*shape, 3), np.uint8)
        super().__init__(env_id, num_envs, grids, Discrete(actions), seed, autoreset_mode)
        self.shape = shape
        self.metadata |= {"render_modes": ["rgb_array"], "render_fps": 10}

    def _infos(self) -> dict[str, Any]:
        return {"door_distance": self._distances(), "_door_distance": np.ones(self.num_envs, dtype=bool)}

    def render(self) -> tuple[NDArray[np.uint8], ...]:
        """A picture of every environment [height, width, 3], the whole grid also where the agent sees a part."""
        return tuple(render_grid(grid) for grid in self.grids())

    # What a backend fills in.

    @property
    def has_door(self) -> bool:
        """Whether there is a door in these environments."""
        raise NotImplementedError

    def grids(self) -> Grids:
        """The whole grids with the agent in them [N, width, height, 3], whatever the agent sees."""
        raise NotImplementedError

    def _distances(self) -> NDArray[np.int64]:
        """Manhattan distance from the nearest door [N]; `NO_DOOR` where there is none."""
        raise NotImplementedError


def check_num_envs(value: object) -> int:
    """Refuse a number of environments that is none."""
    return _integer("num_envs", value, 1)


def check_seed(value: object) -> int:
    """Refuse a seed that is none."""
    return _integer("seed", value, 0)


def _integer(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise EnvError(f"expected {name} to be an integer of {least} or more, got {value!r}")
    return int(value)


def _checked_actions(actions: Any, num_envs: int, space: Any) -> NDArray[Any]:
    """The actions of a step: integers [num_envs] for Discrete, numbers [num_envs, ...] for a Box."""
    given = np.asarray(actions)
    shape = (num_envs, *(space.shape or ()))
    if given.shape != shape:
        raise EnvError(f"expected actions of shape {list(shape)}, one for each environment, got {list(given.shape)}")
    if isinstance(space, Box):
        if given.dtype.kind not in "iuf" or not np.isfinite(given).all():
            raise EnvError(f"expected actions of finite numbers, got {given.dtype} {given.reshape(-1)[:3]}")
        return np.clip(given, space.low, space.high)
    count = int(space.n)
    if given.dtype.kind not in "iu":
        raise EnvError(f"expected integer actions, got {given.dtype}; choose them by argmax or by sampling")
    wrong = given[(given < 0) | (given >= count)]
    if len(wrong):
        raise EnvError(f"expected actions from 0 to {count - 1}, got {wrong[0]}")
    return given.astype(np.intp, copy=False)


def rows_to_reset(options: Mapping[str, Any] | None, num_envs: int) -> Rows:
    """The environments that `reset_mask` names, a boolean array [num_envs] with a True in it; all without one."""
    mask = (options or {}).get("reset_mask")
    if mask is None:
        return np.arange(num_envs)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,):
        got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise EnvError(f"expected options['reset_mask'] to be a boolean array [{num_envs}], got {got}")
    if not mask.any():
        raise EnvError("expected at least one environment in options['reset_mask'], got none")
    return np.flatnonzero(mask)
