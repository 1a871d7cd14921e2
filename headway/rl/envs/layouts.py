"""Layouts: where everything is when an episode of DoorKey begins, and in the grid rooms of the arena.

In DoorKey a wall splits the room from top to bottom, with a locked door in it. The agent and the key are to its left,
the goal is in the lower right corner.

    wall       uniform over the columns 2 ... size - 3
    door       uniform over the rows 1 ... size - 3: never in the goal's row
    agent      uniform over the free cells to the left of the wall, in a uniform direction
    key        uniform over those cells but the agent's

This is the distribution of Farama's generator, which draws cells until a free one is found. The layouts of the arena
are drawn as Farama's generators draw theirs, one for all rooms of a run.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.errors import EnvError
from headway.rl.envs.grids import DOOR, EMPTY, GOAL, KEY, WALL, Colour, Door, Thing
from headway.rl.envs.streams import Rows, Streams

SMALLEST = 5
LAYOUT_STREAM = 1
"""The purpose of the stream that a layout of the arena is drawn from."""
MULTI_ROOMS, MULTI_SIZE, MULTI_SIDE, MULTI_TRIES = 4, 5, 25, 8
"""MultiRoom-N4-S5: rooms, their longest side with walls, the side of the grid, ways that are tried from a room."""
Integers = NDArray[np.intp]


@dataclass(frozen=True)
class Layouts:
    """Layouts of n rooms of the same size. Columns (x) and rows (y) count from the upper left corner.

    Attributes:
        wall: column of the wall and of the door [n].
        door: row of the door [n].
        agent_x: column of the agent [n].
        agent_y: row of the agent [n].
        direction: where the agent looks [n]: right, down, left, up.
        key_x: column of the key [n].
        key_y: row of the key [n].
    """

    wall: Integers
    door: Integers
    agent_x: Integers
    agent_y: Integers
    direction: Integers
    key_x: Integers
    key_y: Integers

    def __len__(self) -> int:
        """The number of rooms."""
        return len(self.wall)

    def check(self, size: int, count: int) -> None:
        """Check that these are `count` layouts that DoorKey can have in rooms of a size.

        Raises:
            EnvError: they are not.
        """
        left, inner = (1, self.wall - 1), (1, size - 2)  # of the wall
        ranges: dict[str, tuple[int, Any]] = {"wall": (2, size - 3), "door": inner, "direction": (0, 3)}
        ranges |= {"agent_x": left, "agent_y": inner, "key_x": left, "key_y": inner}
        for name, (low, high) in ranges.items():
            values = getattr(self, name)
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu" or values.shape != (count,):
                raise EnvError(f"expected integers [{count}] as {name} of the layouts, got {reprlib.repr(values)}")
            if ((values < low) | (values > high)).any():
                raise EnvError(f"expected {name} of a layout from {low} to {high}, got {reprlib.repr(values)}")
        if ((self.agent_x == self.key_x) & (self.agent_y == self.key_y)).any():
            raise EnvError("expected the agent and the key in different cells, got both in one")


def draw_layouts(size: int, streams: Streams, rows: Rows) -> Layouts:
    """Draw a layout for some environments, in rooms of a size with their outer walls; five numbers for each."""
    wall, door, agent, direction, key = streams.uniform(rows, 5).T
    inner = size - 2
    column = 2 + _scaled(wall, size - 4)
    free = (column - 1) * inner
    agent_cell = _scaled(agent, free)
    key_cell = _scaled(key, free - 1)
    key_cell += key_cell >= agent_cell  # the agent's cell is left out
    return Layouts(
        wall=column,
        door=1 + _scaled(door, size - 3),
        agent_x=1 + agent_cell // inner,
        agent_y=1 + agent_cell % inner,
        direction=_scaled(direction, 4),
        key_x=1 + key_cell // inner,
        key_y=1 + key_cell % inner,
    )


def draw_rooms(size: int, walls: Integers) -> NDArray[np.uint8]:
    """Grids [n, size, size, 3] with a wall in these columns [n] and the goal, without door, key and agent.

    The first axis of a grid is x.
    """
    grids = np.empty((len(walls), size, size, 3), dtype=np.uint8)
    grids[:] = EMPTY
    for edge in (0, size - 1):
        grids[:, edge] = WALL
        grids[:, :, edge] = WALL
    grids[np.arange(len(walls)), walls] = WALL
    grids[:, size - 2, size - 2] = GOAL
    return grids


def _scaled(uniform: NDArray[np.float64], count: int | Integers) -> Integers:
    """Uniform numbers in [0, 1) as integers from 0 to count - 1."""
    return (uniform * count).astype(np.intp)


@dataclass(frozen=True, eq=False)
class Layout:
    """Where everything is when an episode begins."""

    codes: NDArray[np.uint8]  # the grid [width, height, 3] without the agent, as MiniGrid encodes it
    agent: tuple[int, int]  # the agent's column and row
    direction: int  # where it looks: right, down, left, up
    max_steps: int  # after which an episode is truncated


def layout_generator(seed: int) -> np.random.Generator:
    """Draws the layout of a room of the arena."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(LAYOUT_STREAM,)))


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
    choose = layout_generator(seed)
    locked, ball, other = choose.permutation(len(Colour))[:3]
    codes = np.empty((7, 3, 3), dtype=np.uint8)
    codes[:] = WALL
    codes[[1, 3], 1] = EMPTY
    codes[1, 1] = (Thing.KEY, locked, 0)
    codes[2, 1] = (Thing.DOOR, other, Door.CLOSED)
    codes[4, 1] = (Thing.DOOR, locked, Door.LOCKED)
    codes[5, 1] = (Thing.BALL, ball, 0)
    return Layout(codes, (3, 1), int(choose.integers(4)), 30 * 3**2)


class _Box(NamedTuple):
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
    choose = layout_generator(seed)
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
