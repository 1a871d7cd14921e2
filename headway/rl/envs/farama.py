"""Farama's own MiniGrid environments behind the same interface: any id, seen in full or in part."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from headway.errors import EnvError, MissingExtraError, StateError
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
        self.envs = [Replayable(_make(env_id, view)) for _ in range(check_num_envs(num_envs))]
        first = self.envs[0]
        self._has_door: bool | None = None
        self._seeds: list[int | None] = [None] * num_envs
        shape = first.env.observation_space["image"].shape[:2]
        self._seen = np.zeros((num_envs, *shape, 3), dtype=np.uint8)
        self._doors: list[NDArray[np.intp]] = [np.zeros((0, 2), dtype=np.intp)] * num_envs
        super().__init__(env_id, num_envs, shape, int(first.env.action_space.n), seed, autoreset_mode)

    @property
    def has_door(self) -> bool:
        """Whether a door was found in one of a few layouts, looked at in an environment apart."""
        if self._has_door is None:
            probe = Replayable(_make(self.env_id, self.view))
            self._has_door = any(_has_door(probe, seed) for seed in range(PROBES))
            probe.env.close()
        return self._has_door

    def grids(self) -> Grids:
        """The whole grids with the agent in them [N, width, height, 3]."""
        return np.stack([_whole_grid(each) for each in self.envs])

    def _seed(self, seed: int, rows: Rows) -> None:
        for row in rows.tolist():
            self._seeds[row] = int(child(seed, row, OWN_STREAM).generate_state(1, np.uint64)[0])

    def _seed_level(self, level: int, row: int) -> None:
        self._seeds[row] = level  # as Farama's own reset(seed=level)

    def _restart(self, rows: Rows, options: Mapping[str, Any]) -> None:
        for row in rows.tolist():
            self._seen[row] = self.envs[row].reset(self._seeds[row])
            self._seeds[row] = None  # the next reset goes on with the stream
            self._doors[row] = _doors(self.envs[row])

    def _advance(self, actions: NDArray[np.intp], live: Mask | None) -> Outcome:
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)
        for row, action in enumerate(actions.tolist()):
            if live is None or live[row]:
                self._seen[row], rewards[row], terminated[row], truncated[row] = self.envs[row].step(action)
        return rewards, terminated, truncated

    def _observe(self) -> Grids:
        return self._seen.copy()

    def _distances(self) -> NDArray[np.int64]:
        distances = np.full(self.num_envs, NO_DOOR, dtype=np.int64)
        for row, doors in enumerate(self._doors):
            if len(doors):
                distances[row] = np.abs(doors - np.asarray(self.envs[row].world.agent_pos)).sum(1).min()
        return distances

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        for each in self.envs:
            each.env.close()

    def _inner_state(self) -> dict[str, Any]:
        return {"seeds": list(self._seeds), "episodes": [each.state_dict() for each in self.envs]}

    def _load_inner_state(self, state: Mapping[str, Any]) -> None:
        self._seeds = list(state["seeds"])
        for row, episode in enumerate(state["episodes"]):
            image = self.envs[row].load_state_dict(episode)
            if image is not None:
                self._seen[row] = image
                self._doors[row] = _doors(self.envs[row])

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "view": self.view}


class Replayable:
    """A MiniGrid environment whose state is how its episode came about.

    The environments keep objects of many kinds (rooms, targets, instructions, obstacles that move), which could be
    stored only by knowing each of them or by pickling. But an episode is a function of the random generator's state
    at its beginning and of the actions since. Those are stored; loading plays them again, and a fingerprint of
    the outcome tells whether it is the same.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.world = env.unwrapped
        self._start: Mapping[str, Any] | None = None
        self._actions: list[int] = []

    def reset(self, seed: int | None) -> Grids:
        """Begin an episode and return its first image."""
        generator = self.world.np_random if seed is None else seeding.np_random(seed)[0]
        self._start = generator.bit_generator.state
        self._actions = []
        image: Grids = self.env.reset(seed=seed)[0]["image"]
        return image

    def step(self, action: int) -> tuple[Grids, float, bool, bool]:
        """Act; return the image, the reward, and whether the episode terminated or was truncated."""
        self._actions.append(action)
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return observation["image"], float(reward), bool(terminated), bool(truncated)

    def state_dict(self) -> dict[str, Any]:
        """How the episode came about, and a fingerprint of where it stands."""
        fingerprint = None if self._start is None else self._fingerprint()
        return {"start": self._start, "actions": list(self._actions), "fingerprint": fingerprint}

    def load_state_dict(self, state: Mapping[str, Any]) -> Grids | None:
        """Play the episode of a state again; return the last image, or None if no episode had begun.

        Raises:
            StateError: it comes out differently.
        """
        if state["start"] is None:
            self._start, self._actions = None, []
            return None
        self.world.np_random.bit_generator.state = state["start"]
        image = self.reset(None)
        for action in state["actions"]:
            image = self.step(action)[0]
        if self._fingerprint() != state["fingerprint"]:
            raise StateError(
                "expected the episode to come out as it was saved, got another one; "
                "the state is from another version of minigrid, or the environment was changed from outside"
            )
        return image

    def _fingerprint(self) -> str:
        carrying = self.world.carrying
        facts = (
            self.world.np_random.bit_generator.state,
            [int(each) for each in self.world.agent_pos],
            int(self.world.agent_dir),
            int(self.world.step_count),
            None if carrying is None else [int(code) for code in carrying.encode()],
            str(self.world.mission),
        )
        return hashlib.sha256(self.world.grid.encode().tobytes() + repr(facts).encode()).hexdigest()


def minigrid_ids() -> list[str]:
    """The ids of all environments that the installed minigrid registers.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import minigrid  # noqa: F401  (registers them)
    except ImportError:
        raise MissingExtraError("minigrid", "rl") from None
    registered = gymnasium.registry.values()
    return sorted(spec.id for spec in registered if str(spec.entry_point).startswith("minigrid."))


def _make(env_id: str, view: str) -> Any:
    try:
        from minigrid.wrappers import FullyObsWrapper
    except ImportError:
        raise MissingExtraError("minigrid", "rl") from None
    env = gymnasium.make(env_id, disable_env_checker=True)
    return FullyObsWrapper(env) if view == "full" else env


def _whole_grid(env: Replayable) -> Grids:
    """The grid with the agent in it [width, height, 3], whatever the agent sees of it."""
    grid: Grids = env.world.grid.encode()
    x, y = env.world.agent_pos
    grid[x, y] = (Thing.AGENT, Colour.RED, env.world.agent_dir)
    return grid


def _has_door(env: Replayable, seed: int) -> bool:
    env.reset(seed)
    return len(_doors(env)) > 0


def _doors(env: Replayable) -> NDArray[np.intp]:
    """Columns and rows of the doors [doors, 2]; they stay where they are during an episode."""
    return np.argwhere(env.world.grid.encode()[..., 0] == Thing.DOOR)
