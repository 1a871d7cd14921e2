"""Grid rooms of the arena: DoorKey, KeyCorridor and MultiRoom under MiniGrid's rules, with compact observations.

All rooms of a run have one layout, which is drawn from its seed as Farama's generators draw theirs; an episode begins
where the one before began. `tests/rl/envs/test_grid_rooms.py` plays them beside Farama's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from headway.rl.envs.grid_env import Mask
from headway.rl.envs.grids import TURN, Action, Colour, Door, Thing
from headway.rl.envs.layouts import DOOR, EMPTY, GOAL, KEY, WALL, draw_layouts, draw_rooms
from headway.rl.envs.rooms import LAYOUT_STREAM, Cells, Floats, Room, Screen
from headway.rl.envs.streams import Rows, Streams

HELD = -1
"""Stands for the cell of an object that the agent carries."""
MULTI_ROOMS, MULTI_SIZE, MULTI_SIDE, MULTI_TRIES = 4, 5, 25, 8
"""MultiRoom-N4-S5: rooms, their longest side with walls, the side of the grid, ways that are tried from a room."""

_, _, _FORWARD, _PICKUP, _DROP, _TOGGLE, _DONE = (int(each) for each in Action)
_FLOOR, _WALL, _DOOR, _GOAL = range(4)


@dataclass(frozen=True, eq=False)
class Layout:
    """Where everything is when an episode begins.

    Attributes:
        codes: the grid [width, height, 3] without the agent, as MiniGrid encodes it.
        agent: the agent's column and row.
        direction: where it looks: right, down, left, up.
        max_steps: after which an episode is truncated.
    """

    codes: NDArray[np.uint8]
    agent: tuple[int, int]
    direction: int
    max_steps: int


class GridRoom(Room):
    """Rooms with doors, keys, balls and a goal.

    Actions are MiniGrid's; the last one, `done`, is the button. The goal is reached by walking onto it or, where there
    is a ball, by picking that up. The body is the agent's column, row and direction and the state of each door, all
    one-hot, and for each key and ball whether it is carried, and where it lies as shares of width and height.

    It is made as a `Room`, with the layout of all rooms.
    """

    state = ("agent", "direction", "doors", "objects")

    def __init__(self, name: str, num_envs: int, seed: int, screen: Screen, layout: Layout) -> None:
        width, height = layout.codes.shape[:2]
        thing, colour, state = layout.codes.reshape(-1, 3).astype(np.intp).T
        self._width, self._height, self._layout = width, height, layout
        self._ground = np.full(len(thing), _FLOOR)
        for kind, code in ((_WALL, Thing.WALL), (_DOOR, Thing.DOOR), (_GOAL, Thing.GOAL)):
            self._ground[thing == code] = kind
        doors, objects = np.flatnonzero(thing == Thing.DOOR), np.flatnonzero(np.isin(thing, (Thing.KEY, Thing.BALL)))
        self._door_number = np.zeros(len(thing), dtype=np.intp)
        self._door_number[doors] = np.arange(len(doors))
        self._door_colours, self._object_colours = colour[doors], colour[objects]
        self._is_ball = thing[objects] == Thing.BALL
        self._first = (layout.agent[0] * height + layout.agent[1], layout.direction, state[doors], objects)
        self._ahead = np.array([height, 1, -height, -1])  # by direction: right, down, left, up
        self._rows = np.arange(num_envs)
        self._agent, self._direction = (np.zeros(num_envs, dtype=np.intp) for _ in range(2))
        self._doors = np.zeros((num_envs, len(doors)), dtype=np.intp)
        self._objects = np.zeros((num_envs, len(objects)), dtype=np.intp)
        free = self._ground != _WALL
        free[objects[self._is_ball]] = False  # picking a ball up ends the episode, so nobody stands there
        self._number = np.cumsum(free) - 1
        body = width + height + 4 + 3 * len(doors) + 3 * len(objects)
        super().__init__(name, num_envs, seed, screen, body, Discrete(len(Action)), layout.max_steps, int(free.sum()))

    def _place(self, rows: Rows) -> None:
        self._agent[rows], self._direction[rows], self._doors[rows], self._objects[rows] = self._first

    def _move(self, actions: NDArray[Any]) -> tuple[Mask, Mask]:
        ahead = self._agent + self._ahead[self._direction]
        ground, door = self._ground[ahead], self._door_number[ahead]
        there = self._objects == ahead[:, None]
        is_free = ~there.any(axis=1)
        at_door = ground == _DOOR
        is_open = at_door & (self._door_state(door) == Door.OPEN)
        walks = (actions == _FORWARD) & is_free & ((ground == _FLOOR) | (ground == _GOAL) | is_open)
        held = self._objects == HELD
        is_holding = held.any(axis=1)
        self._direction = (self._direction + TURN[actions]) & 3
        taken = there & ((actions == _PICKUP) & ~is_holding)[:, None]
        put = held & ((actions == _DROP) & is_free & (ground == _FLOOR))[:, None]
        self._toggle(np.flatnonzero((actions == _TOGGLE) & at_door), door, held)
        self._objects = np.where(taken, HELD, np.where(put, ahead[:, None], self._objects))
        self._agent = np.where(walks, ahead, self._agent)
        reached = (walks & (ground == _GOAL)) | (taken & self._is_ball).any(axis=1)
        return reached, actions == _DONE

    def _door_state(self, door: Cells) -> Cells:
        """The state of one door in each room [N]; that of nothing if there are no doors."""
        return self._doors[self._rows, door] if self._doors.shape[1] else door

    def _toggle(self, rows: Rows, door: Cells, held: Mask) -> None:
        """Open closed doors, close open ones, open locked ones with a key of their colour."""
        if not len(rows):
            return
        own = door[rows]
        fits = held[rows] & ~self._is_ball & (self._object_colours == self._door_colours[own][:, None])
        before = self._doors[rows, own]
        opened = np.where(fits.any(axis=1), int(Door.OPEN), before)
        after = np.where(before == Door.LOCKED, opened, np.where(before == Door.OPEN, int(Door.CLOSED), int(Door.OPEN)))
        self._doors[rows, own] = after

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


def doorkey(size: int, seed: int) -> Layout:
    """DoorKey: fetch the key, unlock the door, walk to the goal; as `DoorKeyVectorEnv` draws it."""
    drawn = draw_layouts(size, Streams(1, seed, LAYOUT_STREAM), np.arange(1))
    codes = draw_rooms(size, drawn.wall)[0]
    codes[drawn.wall[0], drawn.door[0]] = DOOR
    codes[drawn.key_x[0], drawn.key_y[0]] = KEY
    agent = int(drawn.agent_x[0]), int(drawn.agent_y[0])
    return Layout(codes, agent, int(drawn.direction[0]), 10 * size**2)


def keycorridor(seed: int) -> Layout:
    """KeyCorridor-S3R1: three rooms of one cell in a row. The key is on the left, the ball behind a locked door."""
    choose = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(LAYOUT_STREAM,)))
    locked, ball, other = choose.permutation(len(Colour))[:3]
    codes = np.empty((7, 3, 3), dtype=np.uint8)
    codes[:] = WALL
    codes[[1, 3], 1] = EMPTY
    codes[1, 1] = (Thing.KEY, locked, 0)
    codes[2, 1] = (Thing.DOOR, other, Door.CLOSED)
    codes[4, 1] = (Thing.DOOR, locked, Door.LOCKED)
    codes[5, 1] = (Thing.BALL, ball, 0)
    return Layout(codes, (3, 1), int(choose.integers(4)), 30 * 3**2)


@dataclass(frozen=True)
class _Box:
    """A room of MultiRoom: its upper left corner, its size with walls, and the door by which it is entered."""

    x: int
    y: int
    width: int
    height: int
    door: tuple[int, int]

    def touches(self, other: _Box) -> bool:
        """Whether the two share a cell."""
        across = self.x < other.x + other.width and other.x < self.x + self.width
        return across and self.y < other.y + other.height and other.y < self.y + self.height


def multiroom(seed: int) -> Layout:
    """MultiRoom-N4-S5: four rooms in a winding row with a closed door between each two, the goal in the last."""
    choose = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(LAYOUT_STREAM,)))
    boxes: list[_Box] = []
    while len(boxes) < MULTI_ROOMS:
        first = int(choose.integers(MULTI_SIDE - 2)), int(choose.integers(MULTI_SIDE - 2))
        found = _row_of_rooms([], 2, first, choose)
        boxes = found if found and len(found) > len(boxes) else boxes
    codes = np.empty((MULTI_SIDE, MULTI_SIDE, 3), dtype=np.uint8)
    codes[:] = WALL
    for box in boxes:
        codes[box.x + 1 : box.x + box.width - 1, box.y + 1 : box.y + box.height - 1] = EMPTY
    colour = -1
    for box in boxes[1:]:  # no door has the colour of the one before
        colour = int(choose.choice([each for each in range(len(Colour)) if each != colour]))
        codes[box.door] = (Thing.DOOR, colour, Door.CLOSED)
    agent, goal = (_inside(box, choose) for box in (boxes[0], boxes[-1]))
    codes[goal] = GOAL
    low_x, low_y = min(box.x for box in boxes), min(box.y for box in boxes)
    high_x, high_y = max(box.x + box.width for box in boxes), max(box.y + box.height for box in boxes)
    cut = codes[low_x:high_x, low_y:high_y]  # walls alone are left out, so that observations are short
    start = agent[0] - low_x, agent[1] - low_y
    return Layout(cut, start, int(choose.integers(4)), 20 * MULTI_ROOMS)


def _inside(box: _Box, choose: np.random.Generator) -> tuple[int, int]:
    """A cell within the walls of a room."""
    x, y = box.x + choose.integers(1, box.width - 1), box.y + choose.integers(1, box.height - 1)
    return int(x), int(y)


def _row_of_rooms(
    before: list[_Box], wall: int, door: tuple[int, int], choose: np.random.Generator
) -> list[_Box] | None:
    """Rooms before, one that is entered by a door in this wall of it (right, lower, left, upper), and those after it.

    Returns:
        as many as fit; None if not even this one does.
    """
    width, height = (int(choose.integers(4, MULTI_SIZE + 1)) for _ in range(2))
    x, y = door
    if before and wall in (0, 2):
        x, y = (x - width + 1 if wall == 0 else x), int(choose.integers(y - height + 2, y))
    elif before:
        x, y = int(choose.integers(x - width + 2, x)), (y - height + 1 if wall == 1 else y)
    box = _Box(x, y, width, height, door)
    if x < 0 or y < 0 or x + width > MULTI_SIDE or y + height >= MULTI_SIDE:
        return None
    if any(box.touches(each) for each in before[:-1]):  # the one before shares a wall with it
        return None
    found = [*before, box]
    if len(found) == MULTI_ROOMS:
        return found
    for _ in range(MULTI_TRIES):
        out = int(choose.choice([each for each in range(4) if each != wall]))
        along = int(choose.integers(1, (height if out in (0, 2) else width) - 1))
        ends = {0: (x + width - 1, y + along), 1: (x + along, y + height - 1), 2: (x, y + along), 3: (x + along, y)}
        x_out, y_out = (int(each) for each in ends[out])
        following = _row_of_rooms(found, (out + 2) % 4, (x_out, y_out), choose)
        if following:
            return following
    return found
