"""Layouts of DoorKey: where the wall, the door, the key and the agent are when an episode begins.

A wall splits the room from top to bottom, with a locked door in it. The agent and the key are to its left, the
goal is in the lower right corner.

    wall       uniform over the columns 2 ... size - 3
    door       uniform over the rows 1 ... size - 3: never in the goal's row
    agent      uniform over the free cells to the left of the wall, in a uniform direction
    key        uniform over those cells but the agent's

This is the distribution of Farama's generator. That one draws cells until a free one is found, which makes the
choice uniform over the free cells; here they are counted and one is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from headway.errors import EnvError
from headway.rl.envs.grids import Colour, Door, Thing
from headway.rl.envs.streams import Rows, Streams

SMALLEST = 5
EMPTY = (int(Thing.EMPTY), 0, 0)
WALL = (int(Thing.WALL), int(Colour.GREY), 0)
GOAL = (int(Thing.GOAL), int(Colour.GREEN), 0)
DOOR = (int(Thing.DOOR), int(Colour.YELLOW), int(Door.LOCKED))
KEY = (int(Thing.KEY), int(Colour.YELLOW), 0)
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
        for each in fields(self):
            values = getattr(self, each.name)
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu" or values.shape != (count,):
                raise EnvError(f"expected integers [{count}] as {each.name} of the layouts, got {_excerpt(values)}")
        inside = {"wall": (2, size - 3), "door": (1, size - 2), "direction": (0, 3)}
        inside |= {"agent_y": (1, size - 2), "key_y": (1, size - 2)}
        for name, (low, high) in inside.items():
            values = getattr(self, name)
            if ((values < low) | (values > high)).any():
                raise EnvError(f"expected {name} of a layout from {low} to {high}, got {_excerpt(values)}")
        for name in ("agent_x", "key_x"):
            values = getattr(self, name)
            if ((values < 1) | (values >= self.wall)).any():
                raise EnvError(f"expected {name} of a layout to the left of the wall, got {_excerpt(values)}")
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


def _excerpt(values: object) -> str:
    text = repr(values)
    return text if len(text) <= 80 else text[:77] + "..."
