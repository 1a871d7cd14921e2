"""A fourth channel: noise while the agent is near a door, zero elsewhere.

The noise is a television for curious agents. It is new at every step, says nothing about the world, and nobody can
learn to predict it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from headway.errors import EnvError, StateError
from headway.rl.envs.grid_env import GridVectorEnv, Mask, check_seed, rows_to_reset
from headway.rl.envs.grids import render_grid
from headway.rl.envs.streams import Rows, Streams

Array: TypeAlias = NDArray[Any]
if TYPE_CHECKING:
    Base: TypeAlias = VectorWrapper[Array, Array, Array, Array, Array]
else:
    Base = VectorWrapper

NOISE_STREAM = 1


class GridNoise(Base):
    """What noise does to grid environments. This one makes none; subclasses draw some.

    Infos say `noise_on`: whether there is noise in the returned observations [N], here False; the infos of a last
    observation (`final_info`) say it too.

    With `channel` observations have a fourth one, of zeros, and become float32 [N, width, height, 4].
    """

    def __init__(self, env: GridVectorEnv, channel: bool = False) -> None:
        if not isinstance(env, GridVectorEnv):
            raise EnvError(f"expected an environment from headway.rl.make_env, got {type(env).__name__}")
        super().__init__(env)
        self.env: GridVectorEnv = env
        self.channel = channel
        if channel:
            self.single_observation_space = Box(-np.inf, np.inf, (*env.shape, 4), np.float32)
            self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._noise = np.zeros((env.num_envs, *env.shape), dtype=np.float32)
        self._on = np.zeros(env.num_envs, dtype=bool)
        self._all = np.arange(env.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin new episodes, as the environment does; a seed for all starts the noise anew as well."""
        seen, infos = self.env.reset(seed=seed, options=options)
        rows = rows_to_reset(options, self.num_envs)
        if seed is not None and not isinstance(seed, Sequence):
            self._seed(check_seed(seed), rows)
        self._renew(rows, infos)  # what the others see has not changed
        return self._with_channel(seen), infos | self._told()

    def step(self, actions: Array) -> tuple[Array, Array, Mask, Mask, dict[str, Any]]:
        """Act in all environments, as the environment does."""
        seen, rewards, terminated, truncated, infos = self.env.step(actions)
        if "final_info" in infos:
            self._add_final(infos)
        self._renew(self._all, infos)
        return self._with_channel(seen), rewards, terminated, truncated, infos | self._told()

    def _add_final(self, infos: dict[str, Any]) -> None:
        """Give last observations noise of their own, and tell in `final_info` where it is on."""
        mask = infos["_final_obs"]
        rows = np.flatnonzero(mask)
        self._renew(rows, infos["final_info"])
        seen = np.stack(infos["final_obs"][rows].tolist())
        for row, last in zip(rows.tolist(), self._with_channel(seen, rows), strict=True):
            infos["final_obs"][row] = last
        infos["final_info"] |= {"noise_on": self._on & mask, "_noise_on": mask.copy()}

    def _told(self) -> dict[str, Any]:
        return {"noise_on": self._on.copy(), "_noise_on": np.ones(self.num_envs, dtype=bool)}

    def _with_channel(self, seen: Array, rows: Rows | None = None) -> Array:
        if not self.channel:
            return seen
        out = np.empty((*seen.shape[:-1], seen.shape[-1] + 1), dtype=np.float32)
        out[..., :-1] = seen
        out[..., -1] = self._noise if rows is None else self._noise[rows]
        return out

    def render(self) -> tuple[NDArray[np.uint8], ...]:
        """A picture of every environment [height, width, 3], with the noise of the last observation over it."""
        grids = self.env.grids()
        return tuple(render_grid(grid, noise=noise) for grid, noise in zip(grids, self._noise, strict=True))

    def _seed(self, seed: int, rows: Rows) -> None:
        """Start the noise of some environments anew."""

    def _renew(self, rows: Rows, infos: Mapping[str, Any]) -> None:
        """Draw new noise for some environments, from what their infos say."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the coming steps depend on, as numbers, strings, lists and dicts."""
        return {"noise": type(self).__name__, "env": self.env.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of such an environment, bit for bit; that of another one is a StateError."""
        if state.get("noise") != type(self).__name__:
            raise StateError(f"expected the state of {type(self).__name__}, got that of {state.get('noise')}")
        self.env.load_state_dict(state["env"])


class DoorNoise(GridNoise):
    """Noise in a fourth channel while the agent is near a door.

    The channel is zero unless the agent is within `distance` of the nearest door; then it is standard normal over the
    whole observation, new in every observation. The distance is the agent's true one also where it sees only a part
    of the grid. Infos say `noise_on`: whether there is noise in the returned observations [N].

    Args:
        env: grid environments.
        seed: decides the noise.
        distance: Manhattan distance up to which the noise is on.

    Raises:
        EnvError: the environment has no door.
    """

    def __init__(self, env: GridVectorEnv, seed: int = 0, distance: int = 1) -> None:
        super().__init__(env, channel=True)
        if not env.has_door:
            raise EnvError(f"expected an environment with a door for door noise, got {env.env_id}; use noise='none'")
        self.distance = distance
        self._streams = Streams(env.num_envs, check_seed(seed), NOISE_STREAM)

    def _seed(self, seed: int, rows: Rows) -> None:
        self._streams.seed(seed, rows)

    def _renew(self, rows: Rows, infos: Mapping[str, Any]) -> None:
        near = infos["door_distance"][rows] <= self.distance
        self._noise[rows[self._on[rows] & ~near]] = 0
        self._on[rows] = near
        self._draw(rows[near], self._streams.normal)

    def _draw(self, rows: Rows, normal: Callable[[Rows, int], Array]) -> None:
        if len(rows):
            self._noise[rows] = normal(rows, self._noise[0].size).reshape(len(rows), *self.env.shape)

    def state_dict(self) -> dict[str, Any]:
        """See `GridNoise.state_dict`."""
        own = {"distance": self.distance, "on": self._on.tolist(), "streams": self._streams.state_dict()}
        return {**super().state_dict(), "own": own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `GridNoise.load_state_dict`; the noise of the last observation is drawn again."""
        super().load_state_dict(state)
        own = state["own"]
        if own["distance"] != self.distance:
            raise StateError(f"expected noise up to distance {self.distance}, got {own['distance']}")
        self._streams.load_state_dict(own["streams"])
        self._on = np.array(own["on"], dtype=bool)
        self._noise[:] = 0
        self._draw(np.flatnonzero(self._on), self._streams.last_normal)
