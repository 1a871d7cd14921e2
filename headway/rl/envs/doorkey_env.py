"""DoorKey over arrays: any number of rooms, one step of all of them in a few dozen array operations.

The agent fetches the key, unlocks the door and walks to the goal. Rules, rewards, limits and layouts are those of
Farama's `MiniGrid-DoorKey-NxN-v0`; `tests/rl/envs/test_doorkey_farama.py` plays both side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from headway.errors import EnvError
from headway.rl.envs.grid_env import Grids, GridVectorEnv, Mask, Outcome, check_num_envs
from headway.rl.envs.grids import DOOR, HELD, KEY, Action, Colour, Door, GridWorld, Thing, worth
from headway.rl.envs.layouts import SMALLEST, Layouts, draw_layouts, draw_rooms
from headway.rl.envs.streams import Rows

SIZES = {f"MiniGrid-DoorKey-{size}x{size}-v0": size for size in (5, 6, 8, 16)}


class DoorKeyVectorEnv(GridWorld, GridVectorEnv):
    """N rooms with a key, a locked door and a goal.

    The state of a room is the column of its wall, the cells of door, key and agent, the state of the door and the
    agent's direction.

    Reaching the goal at step t gives 1 - 0.9 t / max_steps, and everything else nothing. An episode is truncated
    after max_steps = 10 size^2 steps.

    Args:
        size: of a room, with its outer walls.
        num_envs: how many rooms.
        seed: decides every layout.
        autoreset_mode: what happens when an episode ends.
    """

    reset_options = ("reset_mask", "layouts")

    def __init__(
        self,
        size: int,
        num_envs: int = 1,
        seed: int = 0,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        if size < SMALLEST:
            raise EnvError(f"expected a size of {SMALLEST} or more, got {size}: there is no room for a wall")
        num_envs = check_num_envs(num_envs)
        self.size, self.max_steps = size, 10 * size**2
        self._make_world(num_envs, size, size, doors=1, objects=np.array([KEY], dtype=np.uint8))
        self._wall = np.zeros(num_envs, dtype=np.intp)
        place = np.arange(size * size)
        across = np.abs(place[:, None] // size - place // size)
        self._between = (across + np.abs(place[:, None] % size - place % size)).reshape(-1)
        super().__init__(
            f"MiniGrid-DoorKey-{size}x{size}-v0", num_envs, (size, size), len(Action), seed, autoreset_mode
        )

    @property
    def has_door(self) -> bool:
        """Every room has one."""
        return True

    def grids(self) -> Grids:
        """The grids with the agent in them [N, size, size, 3]."""
        return self._observe()

    def layouts(self) -> Layouts:
        """Where everything is now [N], as if episodes began like this: to be given to `reset` of another environment.

        Raises:
            EnvError: somewhere the door is not locked or the key is carried, which no layout can say.
        """
        size, (key,) = self.size, self._objects.T
        begun = (self._doors[:, 0] != Door.LOCKED) | (key == HELD)
        if begun.any():
            raise EnvError(f"expected locked doors and keys on the floor, got {int(begun.sum())} rooms without")
        return Layouts(
            wall=self._wall.copy(),
            door=self._door_cells[:, 0] % size,
            agent_x=self._agent // size,
            agent_y=self._agent % size,
            direction=self._direction.copy(),
            key_x=key // size,
            key_y=key % size,
        )

    def _seed_level(self, level: int, row: int) -> None:
        self._streams.seed(level, np.array([row]), index=0)

    def _restart(self, rows: Rows, options: Mapping[str, Any]) -> None:
        layouts = options.get("layouts")
        if layouts is None:
            layouts = draw_layouts(self.size, self._streams, rows)
        elif isinstance(layouts, Layouts):
            layouts.check(self.size, len(rows))
        else:
            raise EnvError(f"expected options['layouts'] to be Layouts, got {type(layouts).__name__}")
        self._wall[rows] = layouts.wall
        self._door_cells[rows, 0] = layouts.wall * self.size + layouts.door
        self._objects[rows, 0] = layouts.key_x * self.size + layouts.key_y
        self._agent[rows] = layouts.agent_x * self.size + layouts.agent_y
        self._direction[rows] = layouts.direction
        self._draw(rows)

    def _draw(self, rows: Rows) -> None:
        """Make the grids of some rooms, with locked doors."""
        self._codes[rows] = draw_rooms(self.size, self._wall[rows])
        self._by_cell[self._first[rows] + self._door_cells[rows, 0]] = DOOR
        self._put_objects(rows)

    def _advance(self, actions: NDArray[np.intp], live: Mask | None) -> Outcome:
        reached = self._act(actions)
        rewards = np.where(reached, worth(self._lengths, self.max_steps), 0.0)
        return rewards, reached, self._lengths >= self.max_steps

    def _observe(self) -> Grids:
        seen = self._codes.copy()
        codes = seen.reshape(-1)
        at = 3 * (self._first + self._agent)
        codes[at] = int(Thing.AGENT)
        codes[at + 1] = int(Colour.RED)
        codes[at + 2] = self._direction
        return seen

    def _distances(self) -> NDArray[np.int64]:
        return self._between.take(self._agent * (self.size * self.size) + self._door_cells[:, 0])

    def _inner_state(self) -> dict[str, Any]:
        state = {
            "wall": self._wall,
            "door": self._door_cells[:, 0],
            "door_state": self._doors[:, 0],
            "key": self._objects[:, 0],
            "agent": self._agent,
            "direction": self._direction,
        }
        return {**{name: values.tolist() for name, values in state.items()}, "streams": self._streams.state_dict()}

    def _load_inner_state(self, state: Mapping[str, Any]) -> None:
        self._wall, self._agent, self._direction = (
            np.array(state[name], dtype=np.intp) for name in ("wall", "agent", "direction")
        )
        self._door_cells[:, 0], self._objects[:, 0] = state["door"], state["key"]
        self._streams.load_state_dict(state["streams"])
        if self._started:
            self._draw(np.arange(self.num_envs))
            self._doors = np.array(state["door_state"])[:, None]
