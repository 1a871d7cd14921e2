"""Farama's own MiniGrid environments behind the same interface: any id, seen in full or in part.

`Replayable` gives any Gymnasium environment a state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from headway.errors import EnvError, StateError, import_extra
from headway.rl.envs.grid_env import NO_DOOR, OWN_STREAM, Grids, GridVectorEnv, Mask, Outcome, check_num_envs
from headway.rl.envs.grids import Colour, Thing
from headway.rl.envs.streams import Rows, child

VIEWS = ("full", "partial")
PROBES = 5
"""Layouts that are looked at to find out whether an environment has doors; some place them at random."""


class MiniGridVectorEnv(GridVectorEnv):
    """N environments of Farama's, stepped one after the other.

    Args:
        env_id: as registered with Gymnasium, such as "MiniGrid-DoorKey-8x8-v0".
        num_envs: how many.
        seed: decides every layout, and what else the environment draws.
        view: "full" for the whole grid as `FullyObsWrapper` gives it, "partial" for what the agent sees.
        autoreset_mode: what happens when an episode ends.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        seed: int = 0,
        view: str = "full",
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        if view not in VIEWS:
            raise EnvError(f"expected a view among {', '.join(VIEWS)}, got {view!r}")
        self.view = view
        self.envs = [_make(env_id, view) for _ in range(check_num_envs(num_envs))]
        first = self.envs[0]
        self._seeds: list[int | None] = [None] * num_envs
        shape = first.observation_space["image"].shape[:2]
        self._seen = np.zeros((num_envs, *shape, 3), dtype=np.uint8)
        self._doors: list[NDArray[np.intp]] = [np.zeros((0, 2), dtype=np.intp)] * num_envs
        super().__init__(env_id, num_envs, shape, int(first.action_space.n), seed, autoreset_mode)

    @cached_property
    def has_door(self) -> bool:
        """Whether a door was found in one of a few layouts, looked at in an environment apart."""
        with _make(self.env_id, self.view) as probe:
            layouts = (probe.reset(seed=seed) for seed in range(PROBES))
            return any(len(_doors(probe)) for _ in layouts)

    def grids(self) -> Grids:
        """The whole grids with the agent in them [N, width, height, 3], whatever the agent sees of them."""
        grids: Grids = np.stack([each.unwrapped.grid.encode() for each in self.envs])
        for grid, each in zip(grids, self.envs, strict=True):
            x, y = each.unwrapped.agent_pos
            grid[x, y] = (Thing.AGENT, Colour.RED, each.unwrapped.agent_dir)
        return grids

    def _seed(self, seed: int, rows: Rows) -> None:
        for row in rows.tolist():
            self._seeds[row] = int(child(seed, row, OWN_STREAM).generate_state(1, np.uint64)[0])

    def _seed_level(self, level: int, row: int) -> None:
        self._seeds[row] = level  # as Farama's own reset(seed=level)

    def _restart(self, rows: Rows, options: Mapping[str, Any]) -> None:
        for row in rows.tolist():
            self.envs[row].reset(seed=self._seeds[row])
            self._seeds[row] = None  # the next reset goes on with the stream
            self._look(row)

    def _advance(self, actions: NDArray[np.intp], live: Mask | None) -> Outcome:
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)
        for row, action in enumerate(actions.tolist()):
            if live is None or live[row]:
                seen, rewards[row], terminated[row], truncated[row], _ = self.envs[row].step(action)
                self._seen[row] = seen["image"]
        return rewards, terminated, truncated

    def _look(self, row: int) -> None:
        self._seen[row] = self.envs[row].seen["image"]
        self._doors[row] = _doors(self.envs[row])

    def _observe(self) -> Grids:
        return self._seen.copy()

    def _distances(self) -> NDArray[np.int64]:
        distances = np.full(self.num_envs, NO_DOOR, dtype=np.int64)
        for row, doors in enumerate(self._doors):
            if len(doors):
                distances[row] = np.abs(doors - np.asarray(self.envs[row].unwrapped.agent_pos)).sum(1).min()
        return distances

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        for each in self.envs:
            each.close()

    def _inner_state(self) -> dict[str, Any]:
        return {"seeds": list(self._seeds), "episodes": [each.state_dict() for each in self.envs]}

    def _load_inner_state(self, state: Mapping[str, Any]) -> None:
        self._seeds = list(state["seeds"])
        for row, episode in enumerate(state["episodes"]):
            self.envs[row].load_state_dict(episode)
            if episode["start"] is not None:
                self._look(row)

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "view": self.view}


class Replayable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose state is how its episode came about.

    Environments keep objects of many kinds (rooms, targets, instructions, obstacles that move), which could be stored
    only by knowing each of them or by pickling. But an episode is a function of the random generator's state at its
    beginning and of the actions since. Those are stored; loading plays them again, and a record of the outcome tells
    whether it is the same.

    Attributes:
        record: what the record is called in a state.
        doubt: what may be wrong where the outcome is another.
    """

    record: ClassVar[str] = "seen"
    doubt: ClassVar[str] = "does all randomness of the environment come from self.np_random?"

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.seen: Any = None
        self._start: Mapping[str, Any] | None = None
        self._actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        generator = self.unwrapped.np_random if seed is None else seeding.np_random(seed)[0]
        self._start, self._actions = generator.bit_generator.state, []
        self.seen, infos = self.env.reset(seed=seed, options=options)
        return self.seen, infos

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        self._actions.append(np.asarray(action).tolist())
        self.seen, *rest = self.env.step(action)
        return (self.seen, *rest)

    def state_dict(self) -> dict[str, Any]:
        """How the episode came about, and a record of where it stands."""
        record = None if self._start is None else self._record()
        return {"start": self._start, "actions": list(self._actions), self.record: record}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Play the episode of a state again; if it comes out differently, that is a StateError."""
        if state["start"] is None:
            self.seen, self._start, self._actions = None, None, []
            return
        self.unwrapped.np_random.bit_generator.state = state["start"]
        self.reset()
        for action in state["actions"]:
            self.step(np.asarray(action) if isinstance(action, list) else action)
        if self._record() != state[self.record]:
            raise StateError(f"expected the episode to come out as it was saved, got another one; {self.doubt}")

    def _record(self) -> Any:
        return np.asarray(self.seen).tolist()


class ReplayableGrid(Replayable):
    """One of Farama's environments, with a fingerprint of its grid as the record."""

    record = "fingerprint"
    doubt = "the state is from another version of minigrid, or the environment was changed from outside"

    def _record(self) -> str:
        world: Any = self.unwrapped
        facts = (
            world.np_random.bit_generator.state,
            [int(each) for each in world.agent_pos],
            int(world.agent_dir),
            int(world.step_count),
            None if world.carrying is None else [int(code) for code in world.carrying.encode()],
            str(world.mission),
        )
        return hashlib.sha256(world.grid.encode().tobytes() + repr(facts).encode()).hexdigest()


def minigrid_ids() -> list[str]:
    """The ids of all environments that the installed minigrid registers.

    Raises:
        MissingExtraError: it is not installed.
    """
    _minigrid()
    registered = gymnasium.registry.values()
    return sorted(spec.id for spec in registered if str(spec.entry_point).startswith("minigrid."))


def _minigrid() -> Any:
    """The package, which registers its environments."""
    return import_extra("minigrid.wrappers", "rl")


def _make(env_id: str, view: str) -> Any:
    wrappers = _minigrid()
    env = gymnasium.make(env_id, disable_env_checker=True)
    return ReplayableGrid(wrappers.FullyObsWrapper(env) if view == "full" else env)


def _doors(env: Any) -> NDArray[np.intp]:
    """Columns and rows of the doors [doors, 2]; they stay where they are during an episode."""
    return np.argwhere(env.unwrapped.grid.encode()[..., 0] == Thing.DOOR)
