"""Rooms of the arena in cells: grids under MiniGrid's rules, and plans that are drawn.

All rooms of a run have one layout; an episode begins where the one before began. `tests/rl/envs/test_grid_rooms.py`
plays the grids beside Farama's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from headway.rl.envs.grid_env import Mask
from headway.rl.envs.grids import EMPTY, HELD, Action, GridWorld, Thing
from headway.rl.envs.layouts import Layout, layout_generator
from headway.rl.envs.rooms import Cells, Floats, Room, Screen
from headway.rl.envs.streams import Rows

DOOR_REACH = 2
"""Steps from the door within which its noise is seen."""


class GridRoom(GridWorld, Room):
    """Rooms with doors, keys, balls and a goal.

    Actions are MiniGrid's; the last one, `done`, is the button. The goal is reached by walking onto it or, where there
    is a ball, by picking that up. The body is the agent's column, row and direction and the state of each door, all
    one-hot, and for each key and ball whether it is carried, and where it lies as shares of width and height.

    It is made as a `Room`, with the layout of all rooms.
    """

    state = ("agent", "direction", "doors", "objects")

    def __init__(self, name: str, num_envs: int, seed: int, screen: Screen, layout: Layout) -> None:
        width, height = layout.codes.shape[:2]
        thing = layout.codes[..., 0].reshape(-1)
        doors, objects = np.flatnonzero(thing == Thing.DOOR), np.flatnonzero(np.isin(thing, (Thing.KEY, Thing.BALL)))
        kinds = layout.codes.reshape(-1, 3)[objects]
        self._make_world(num_envs, width, height, len(doors), kinds)
        self._door_cells[:] = doors
        self._bare = layout.codes.copy()  # without the objects
        self._bare.reshape(-1, 3)[objects] = EMPTY
        self._begins = (layout.agent[0] * height + layout.agent[1], layout.direction, objects)
        self._width, self._height = width, height
        free = thing != Thing.WALL
        free[objects[kinds[:, 0] == Thing.BALL]] = False  # picking a ball up ends the episode: nobody stands there
        self._number = np.cumsum(free) - 1
        body = width + height + 4 + 3 * len(doors) + 3 * len(objects)
        super().__init__(name, num_envs, seed, screen, body, Discrete(len(Action)), layout.max_steps, int(free.sum()))

    def _place(self, rows: Rows) -> None:
        self._codes[rows] = self._bare
        self._agent[rows], self._direction[rows], self._objects[rows] = self._begins
        self._put_objects(rows)

    def _move(self, actions: NDArray[Any]) -> tuple[Mask, Mask]:
        return self._act(actions), actions == Action.DONE

    def _body(self) -> Floats:
        column, row = np.divmod(self._agent, self._height)
        held = self._objects == HELD
        at = np.where(held, 0, self._objects)
        count = self.num_envs
        parts = [np.eye(self._width)[column], np.eye(self._height)[row], np.eye(4)[self._direction]]
        parts += [np.eye(3)[self._doors].reshape(count, -1), held]
        parts += [
            np.where(held, 0, each) for each in (at // self._height / self._width, at % self._height / self._height)
        ]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _cells(self) -> Cells:
        return self._number[self._agent]

    def _load_inner_state(self, state: Mapping[str, Any]) -> None:
        self._codes[:] = self._bare
        super()._load_inner_state(state)
        self._put_objects(np.arange(self.num_envs))


class PlanRoom(Room):
    """Rooms that are drawn: the agent moves from cell to cell, into each direction that the plan has.

    Actions are the moves (left, right, and in a plan of several rows up, down), and last the button. The body is the
    agent's column and row, one-hot.

    It is made as a `Room`, with a plan of letters: # wall, S start, G goal, D door, T near the screen. If `shuffled`,
    the seed decides for each cell which move leads left and which right.
    """

    state = ("cell", "slipped")

    def __init__(
        self,
        name: str,
        num_envs: int,
        seed: int,
        screen: Screen,
        plan: tuple[str, ...],
        max_steps: int,
        shuffled: bool = False,
    ) -> None:
        letters = np.array([list(row) for row in plan])
        height, width = letters.shape
        flat = letters.reshape(-1)
        moves = [-1, 1] + ([-width, width] if height > 3 else [])
        self._moves = np.tile([*moves, 0], (flat.size, 1))  # of each cell
        if shuffled:
            self._moves[:, :2] *= layout_generator(seed).choice([-1, 1], (flat.size, 1))
        self._free = flat != "#"
        self._start, self._goal = int(np.flatnonzero(flat == "S")[0]), int(np.flatnonzero(flat == "G")[0])
        self._zone = _around_door(letters) if screen.kind == "door" else flat == "T"
        self._zone_cells = np.flatnonzero(self._zone)
        self._number = np.cumsum(self._free) - 1  # of each free cell
        row, column = np.divmod(np.arange(flat.size), width)
        self._bodies = np.concatenate([np.eye(width)[column], np.eye(height)[row]], axis=1).astype(np.float32)
        self._bodies = self._bodies[:, self._bodies[self._free].any(axis=0)]  # walls are nowhere
        self._cell = np.full(num_envs, self._start)
        self._slipped = np.zeros(num_envs, dtype=bool)
        actions = Discrete(self._moves.shape[1])
        body, cells = self._bodies.shape[1], int(self._free.sum())
        super().__init__(name, num_envs, seed, screen, body, actions, max_steps, cells)

    def _place(self, rows: Rows) -> None:
        self._cell[rows] = self._start
        self._slipped[rows] = False

    def _move(self, actions: NDArray[Any]) -> tuple[Mask, Mask]:
        pressed = actions == self._moves.shape[1] - 1
        ahead = self._cell + self._moves[self._cell, actions]
        ahead = np.where(self._free[ahead], ahead, self._cell)
        if self._screen.kind == "dynamics":
            self._slipped = self._zone[self._cell] & self._zone[ahead] & ~pressed
            rows = np.flatnonzero(self._slipped)
            if len(rows):
                drawn = self._streams.uniform(rows, 1)[:, 0] * len(self._zone_cells)
                ahead[rows] = self._zone_cells[drawn.astype(np.intp)]
        self._cell = ahead
        return ahead == self._goal, pressed

    def _body(self) -> Floats:
        return self._bodies[self._cell]

    def _cells(self) -> Cells:
        return self._number[self._cell]

    def _near(self) -> Mask:
        return self._zone[self._cell]

    def _noise(self) -> Mask:
        return self._slipped if self._screen.kind == "dynamics" else self._screen.is_on


def _around_door(letters: NDArray[np.str_]) -> Mask:
    """The cells within reach of the door [cells]."""
    row, column = np.argwhere(letters == "D")[0]
    rows, columns = np.indices(letters.shape)
    near: Mask = (np.abs(rows - row) + np.abs(columns - column) <= DOOR_REACH) & (letters != "#")
    return near.reshape(-1)
