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
from headway.rl.envs.grid_env import RESET_OPTIONS, Grids, GridVectorEnv, Mask, Outcome, check_num_envs
from headway.rl.envs.grids import TURN, Action, Colour, Door, Thing
from headway.rl.envs.layouts import DOOR, EMPTY, KEY, SMALLEST, Layouts, draw_layouts, draw_rooms
from headway.rl.envs.streams import Rows

SIZES = {f"MiniGrid-DoorKey-{size}x{size}-v0": size for size in (5, 6, 8, 16)}
CARRIED = -1
"""Stands for the key's cell while the agent has the key."""

# Plain integers: to look a member of an enumeration up takes longer than to compare an array with it.
_, _, _FORWARD, _PICKUP, _DROP, _TOGGLE, _ = (int(each) for each in Action)
_EMPTY, _DOOR, _KEY, _GOAL = (int(each) for each in (Thing.EMPTY, Thing.DOOR, Thing.KEY, Thing.GOAL))
_AGENT, _RED = int(Thing.AGENT), int(Colour.RED)
_OPEN, _CLOSED, _LOCKED = (int(each) for each in Door)

_STATE = ("wall", "door", "door_state", "key", "agent", "direction")


class DoorKeyVectorEnv(GridVectorEnv):
    """N rooms with a key, a locked door and a goal.

    A cell is numbered x * size + y. The state of a room is the column of its wall, the cells of door, key and agent,
    the state of the door and the agent's direction; the grid of codes without the agent is kept beside it.

    Reaching the goal at step t gives 1 - 0.9 t / max_steps, and everything else nothing. An episode is truncated
    after max_steps = 10 size^2 steps.

    Args:
        size: of a room, with its outer walls.
        num_envs: how many rooms.
        seed: decides every layout.
        autoreset_mode: what happens when an episode ends.
    """

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
        cells = size * size
        self._ahead = np.array([size, 1, -size, -1])  # by direction: right, down, left, up
        self._room = np.arange(num_envs) * cells  # where a room begins in an array of all cells
        place = np.arange(cells)
        across = np.abs(place[:, None] // size - place // size)
        self._between = (across + np.abs(place[:, None] % size - place % size)).reshape(-1)
        self._wall, self._door, self._door_state, self._key, self._agent, self._direction = (
            np.zeros(num_envs, dtype=np.intp) for _ in _STATE
        )
        self._grids = np.zeros((num_envs, size, size, 3), dtype=np.uint8)
        self._codes = self._grids.reshape(-1)  # code c of cell i of all cells is at 3 i + c
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
        begun = (self._door_state != _LOCKED) | (self._key == CARRIED)
        if begun.any():
            raise EnvError(f"expected locked doors and keys on the floor, got {int(begun.sum())} rooms without")
        size = self.size
        return Layouts(
            wall=self._wall.copy(),
            door=self._door % size,
            agent_x=self._agent // size,
            agent_y=self._agent % size,
            direction=self._direction.copy(),
            key_x=self._key // size,
            key_y=self._key % size,
        )

    def _reset_options(self) -> tuple[str, ...]:
        return (*RESET_OPTIONS, "layouts")

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
        self._door[rows] = layouts.wall * self.size + layouts.door
        self._door_state[rows] = _LOCKED
        self._key[rows] = layouts.key_x * self.size + layouts.key_y
        self._agent[rows] = layouts.agent_x * self.size + layouts.agent_y
        self._direction[rows] = layouts.direction
        self._draw(rows)

    def _draw(self, rows: Rows) -> None:
        """Make the grids of some rooms from their state."""
        self._grids[rows] = draw_rooms(self.size, self._wall[rows])
        self._write(self._room[rows] + self._door[rows], DOOR)
        self._codes[3 * (self._room[rows] + self._door[rows]) + 2] = self._door_state[rows]
        lying = rows[self._key[rows] != CARRIED]
        self._write(self._room[lying] + self._key[lying], KEY)

    def _write(self, cells: NDArray[np.intp], code: tuple[int, int, int]) -> None:
        """Put a code into some of all cells."""
        at = 3 * cells
        for channel, value in enumerate(code):
            self._codes[at + channel] = value

    def _advance(self, actions: NDArray[np.intp], live: Mask | None) -> Outcome:
        ahead = self._agent + self._ahead.take(self._direction)
        thing = self._codes.take(3 * (self._room + ahead))
        at_door = thing == _DOOR
        arrives = (actions == _FORWARD) & (thing == _GOAL)
        steps = (thing == _EMPTY) | (at_door & (self._door_state == _OPEN))
        steps = (steps & (actions == _FORWARD)) | arrives
        self._direction = (self._direction + TURN.take(actions)) & 3
        self._pick_up((actions == _PICKUP) & (thing == _KEY))
        self._drop((actions == _DROP) & (thing == _EMPTY), ahead)
        self._toggle((actions == _TOGGLE) & at_door)
        self._agent = np.where(steps, ahead, self._agent)
        rewards = np.where(arrives, 1 - 0.9 * (self._lengths / self.max_steps), 0.0)
        return rewards, arrives, self._lengths >= self.max_steps

    def _pick_up(self, where: Mask) -> None:
        """Take the key; there is one key, so hands are free wherever one lies."""
        rows = where.nonzero()[0]
        if len(rows):
            self._write(self._room[rows] + self._key[rows], EMPTY)
            self._key[rows] = CARRIED

    def _drop(self, where: Mask, ahead: NDArray[np.intp]) -> None:
        """Put the key down, where the agent has it."""
        rows = (where & (self._key == CARRIED)).nonzero()[0]
        if len(rows):
            self._key[rows] = ahead[rows]
            self._write(self._room[rows] + self._key[rows], KEY)

    def _toggle(self, where: Mask) -> None:
        """Open a closed door, close an open one, open a locked one with the key."""
        rows = (where & ((self._door_state != _LOCKED) | (self._key == CARRIED))).nonzero()[0]
        if len(rows):
            state = np.where(self._door_state[rows] == _OPEN, _CLOSED, _OPEN)
            self._door_state[rows] = state
            self._codes[3 * (self._room[rows] + self._door[rows]) + 2] = state

    def _observe(self) -> Grids:
        seen = self._grids.copy()
        codes = seen.reshape(-1)
        at = 3 * (self._room + self._agent)
        codes[at] = _AGENT
        codes[at + 1] = _RED
        codes[at + 2] = self._direction
        return seen

    def _distances(self) -> NDArray[np.int64]:
        return self._between.take(self._agent * (self.size * self.size) + self._door)

    def _inner_state(self) -> dict[str, Any]:
        state = {name: getattr(self, f"_{name}").tolist() for name in _STATE}
        return {**state, "streams": self._streams.state_dict()}

    def _load_inner_state(self, state: Mapping[str, Any]) -> None:
        for name in _STATE:
            setattr(self, f"_{name}", np.array(state[name], dtype=np.intp))
        self._streams.load_state_dict(state["streams"])
        if self._started:
            self._draw(np.arange(self.num_envs))
