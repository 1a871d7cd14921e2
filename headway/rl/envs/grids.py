"""Grids: the numbers that MiniGrid writes into them, its rules, and pictures of them, drawn with NumPy alone.

The numbers are Farama's (`minigrid.core.constants`, `minigrid.core.actions`), written down here so that the vectorised
environments and the drawing work without that package. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.errors import EnvError


class Thing(IntEnum):
    """What is in a cell: the first channel."""

    UNSEEN = 0
    EMPTY = 1
    WALL = 2
    FLOOR = 3
    DOOR = 4
    KEY = 5
    BALL = 6
    BOX = 7
    GOAL = 8
    LAVA = 9
    AGENT = 10


class Colour(IntEnum):
    """What colour it has: the second channel."""

    RED = 0
    GREEN = 1
    BLUE = 2
    PURPLE = 3
    YELLOW = 4
    GREY = 5


class Door(IntEnum):
    """The state of a door: the third channel. For the agent that channel is where it looks: right, down, left, up."""

    OPEN = 0
    CLOSED = 1
    LOCKED = 2


class Action(IntEnum):
    """What the agent can do."""

    LEFT = 0
    RIGHT = 1
    FORWARD = 2
    PICKUP = 3
    DROP = 4
    TOGGLE = 5
    DONE = 6


TURN = np.array([3, 1, 0, 0, 0, 0, 0], dtype=np.intp)
"""Quarters clockwise that each action turns the agent by."""

EMPTY = (int(Thing.EMPTY), 0, 0)
WALL = (int(Thing.WALL), int(Colour.GREY), 0)
GOAL = (int(Thing.GOAL), int(Colour.GREEN), 0)
DOOR = (int(Thing.DOOR), int(Colour.YELLOW), int(Door.LOCKED))
KEY = (int(Thing.KEY), int(Colour.YELLOW), 0)

# Plain integers: to look a member of an enumeration up takes longer than to compare an array with it.
_, _, _FORWARD, _PICKUP, _DROP, _TOGGLE, _ = (int(each) for each in Action)
_EMPTY, _DOOR, _KEY, _BALL, _GOAL = (int(each) for each in (Thing.EMPTY, Thing.DOOR, Thing.KEY, Thing.BALL, Thing.GOAL))
_OPEN, _CLOSED, _LOCKED = (int(each) for each in Door)

HELD = -1
"""Stands for the cell of an object that the agent carries."""


def worth(steps: NDArray[np.int64], max_steps: int) -> NDArray[np.float64]:
    """The reward of reaching the goal after so many steps [N]: 1 - 0.9 t / max_steps."""
    return 1 - 0.9 * (steps / max_steps)


class GridWorld:
    """N grids of one size under MiniGrid's rules: in each an agent, and doors, keys and balls.

    Environments inherit it, and fill the arrays in when an episode begins. Cells are numbered x * height + y.
    """

    def _make_world(self, num_envs: int, width: int, height: int, doors: int, objects: NDArray[np.uint8]) -> None:
        """Make the arrays, for so many doors and for objects with these codes [objects, 3]."""
        self._codes = np.zeros((num_envs, width, height, 3), dtype=np.uint8)  # of the grids, without the agents
        self._by_cell = self._codes.reshape(-1, 3)  # all cells of all grids
        self._numbers = self._codes.reshape(-1)  # code c of cell i of all grids is at 3 i + c
        self._first = np.arange(num_envs) * (width * height)  # of all cells, the first of each grid
        self._ahead = np.array([height, 1, -height, -1])  # by direction
        self._kinds = objects
        self._agent = np.zeros(num_envs, dtype=np.intp)  # the cell that it is in
        self._direction = np.zeros(num_envs, dtype=np.intp)  # where it looks: right, down, left, up
        self._door_cells = np.zeros((num_envs, doors), dtype=np.intp)
        self._objects = np.zeros((num_envs, len(objects)), dtype=np.intp)  # the cell of each; `HELD` if it is carried

    @property
    def _doors(self) -> NDArray[np.intp]:
        """The state of each door [N, doors]."""
        return self._by_cell[self._first[:, None] + self._door_cells, 2].astype(np.intp)

    @_doors.setter
    def _doors(self, states: NDArray[np.intp]) -> None:
        self._by_cell[self._first[:, None] + self._door_cells, 2] = states

    def _put_objects(self, rows: NDArray[np.intp]) -> None:
        """Write those objects of some grids that nobody carries into the codes."""
        for number, kind in enumerate(self._kinds):
            lying = rows[self._objects[rows, number] != HELD]
            self._by_cell[self._first[lying] + self._objects[lying, number]] = kind

    def _act(self, actions: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Act in all grids; tells whose goal is reached [N], by walking onto it or by picking up a ball."""
        ahead = self._agent + self._ahead.take(self._direction)
        cells = self._first + ahead
        thing, state = self._numbers.take(3 * cells), self._numbers.take(3 * cells + 2)
        goes, at_door = actions == _FORWARD, thing == _DOOR
        reached = goes & (thing == _GOAL)
        walks = reached | (goes & ((thing == _EMPTY) | (at_door & (state == _OPEN))))
        held = self._objects == HELD
        picks = (actions == _PICKUP) & ~held.any(axis=1)
        self._direction = (self._direction + TURN.take(actions)) & 3
        self._agent = np.where(walks, ahead, self._agent)
        rows, which = ((self._objects == ahead[:, None]) & picks[:, None]).nonzero()
        if len(rows):
            self._objects[rows, which] = HELD
            self._by_cell[cells[rows]] = EMPTY
            reached[rows] = thing[rows] == _BALL
        rows, which = (held & ((actions == _DROP) & (thing == _EMPTY))[:, None]).nonzero()
        if len(rows):
            self._objects[rows, which] = ahead[rows]
            self._by_cell[cells[rows]] = self._kinds[which]
        rows = ((actions == _TOGGLE) & at_door).nonzero()[0]
        if len(rows):
            self._toggle(cells[rows], held[rows])
        return reached

    def _toggle(self, cells: NDArray[np.intp], held: NDArray[np.bool_]) -> None:
        """Close open doors, open closed ones, and locked ones with a key of their colour."""
        colour, state = self._by_cell[cells, 1], self._by_cell[cells, 2]
        fits = held & (self._kinds[:, 0] == _KEY) & (self._kinds[:, 1] == colour[:, None])
        opens = (state == _CLOSED) | ((state == _LOCKED) & fits.any(axis=1))
        self._by_cell[cells, 2] = np.where(state == _OPEN, _CLOSED, np.where(opens, _OPEN, state))


Picture = NDArray[np.uint8]
Shape = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]]
"""Tells of points (x and y from 0 to 1, y downwards) whether they are inside."""

SMALLEST_TILE = 4
SMOOTH = 4
"""Points per pixel and direction that a shape is sampled at."""

COLOURS: dict[int, tuple[int, int, int]] = {
    Colour.RED: (226, 70, 60),
    Colour.GREEN: (74, 176, 92),
    Colour.BLUE: (66, 118, 222),
    Colour.PURPLE: (150, 88, 196),
    Colour.YELLOW: (240, 196, 40),
    Colour.GREY: (126, 132, 142),
}
STRANGE = (255, 0, 255)
GROUND, LINE, UNSEEN, LAVA, DARK = (24, 26, 32), (44, 48, 56), (8, 8, 10), (232, 110, 32), (14, 15, 19)
NOISE_RANGE = 2.5
"""Noise of this size is black or white."""


def render_grid(obs: NDArray[Any], tile: int = 16, noise: NDArray[Any] | None = None) -> Picture:
    """Draw a grid.

    Args:
        obs: the codes of a grid [width, height, 3]; a fourth channel is drawn as noise.
        tile: width and height of a cell in pixels.
        noise: draw this [any width, any height] over the grid instead, stretched to its size.

    Returns:
        the picture [height * tile, width * tile, 3]. Noise is a speckle over the cells, from black (-2.5 or less) to
        white; where it is exactly zero, there is none.

    Raises:
        EnvError: the observation is not a grid, or the tiles are too small.
    """
    obs = np.asarray(obs)
    if obs.ndim != 3 or obs.shape[2] not in (3, 4):
        raise EnvError(f"expected a grid of shape [width, height, 3 or 4], got {list(obs.shape)}; draw one at a time")
    if tile < SMALLEST_TILE:
        raise EnvError(f"expected tiles of {SMALLEST_TILE} pixels or more, got {tile}")
    width, height = obs.shape[:2]
    codes = obs[..., :3].astype(int).reshape(-1, 3).tolist()
    tiles = np.stack([_tile(*code, tile) for code in codes]).reshape(width, height, tile, tile, 3)
    if noise is None and obs.shape[2] == 4:
        noise = obs[..., 3]
    if noise is not None:
        noise = np.asarray(noise)
        columns, rows = np.arange(width) * noise.shape[0] // width, np.arange(height) * noise.shape[1] // height
        tiles = _speckled(tiles, noise[columns[:, None], rows])
    return tiles.transpose(1, 2, 0, 3, 4).reshape(height * tile, width * tile, 3)


def _speckled(tiles: Picture, noise: NDArray[Any]) -> Picture:
    """Replace a third of the pixels, in diagonals, by the grey that stands for each cell's noise."""
    side = tiles.shape[2]
    block = max(1, side // 8)
    at = np.arange(side) // block
    board = (at[:, None] + at) % 3 == 0
    level = np.clip((noise / NOISE_RANGE + 1) * 127.5, 0, 255).astype(np.uint8)
    covered = board & (noise != 0)[..., None, None]
    return np.where(covered[..., None], level[..., None, None, None], tiles)


@lru_cache(maxsize=4096)
def _tile(thing: int, colour: int, state: int, tile: int) -> Picture:
    """One cell [tile, tile, 3], on ground with a line at its upper and left edge; a pixel is the mean of its points."""
    points = tile * SMOOTH
    at = (np.arange(points) + 0.5) / points
    x, y = np.meshgrid(at, at)
    picture = np.full((points, points, 3), GROUND, dtype=np.float64)
    paint = np.array(COLOURS.get(colour, STRANGE))
    for shape, other, share in (*_EDGES, *_layers(thing, state)):
        picture[shape(x, y)] = (paint + (np.array(other) - paint) * share).round()
    return picture.reshape(tile, SMOOTH, tile, SMOOTH, 3).mean(axis=(1, 3)).round().astype(np.uint8)


def _layers(thing: int, state: int) -> list[Layer]:
    """What is drawn for a thing in a state, from the ground up; an unknown one is pink, so as not to be overlooked."""
    if thing == Thing.AGENT:
        return [Layer(_arrow(state))]
    if thing == Thing.DOOR:
        return _DOORS.get(state, _DOORS[Door.CLOSED])
    return _THINGS.get(thing, [Layer(_ALL, STRANGE, 1)])


class Layer(NamedTuple):
    """A shape in the colour of the thing, mixed with a share of another one."""

    shape: Shape
    other: tuple[int, int, int] = GROUND
    share: float = 0


def _rectangle(left: float, right: float, top: float, bottom: float) -> Shape:
    return lambda x, y: (x >= left) & (x <= right) & (y >= top) & (y <= bottom)


def _disc(x0: float, y0: float, radius: float) -> Shape:
    return lambda x, y: (x - x0) ** 2 + (y - y0) ** 2 <= radius**2


def _wave(middle: float) -> Shape:
    return lambda x, y: np.abs(y - middle - 0.05 * np.sin(4 * np.pi * x)) < 0.03


def _arrow(direction: int) -> Shape:
    """A triangle that points to the right, turned clockwise by quarters."""

    def inside(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
        for _ in range(direction % 4):
            x, y = y, 1 - x  # turn the points back instead
        return (x >= 0.14) & (np.abs(y - 0.5) <= 0.36 * (0.88 - x) / 0.74)

    return inside


_ALL, _CELL = _rectangle(0, 1, 0, 1), _rectangle(0.04, 1, 0.04, 1)
_EDGES = [Layer(_rectangle(0, 0.04, 0, 1), LINE, 1), Layer(_rectangle(0, 1, 0, 0.04), LINE, 1)]
_THINGS: dict[int, list[Layer]] = {
    Thing.UNSEEN: [Layer(_ALL, UNSEEN, 1)],
    Thing.EMPTY: [],
    Thing.WALL: [Layer(_ALL), Layer(_rectangle(0.04, 0.96, 0.04, 0.96), DARK, 0.25)],
    Thing.FLOOR: [Layer(_CELL, GROUND, 0.6)],
    Thing.GOAL: [Layer(_CELL)],
    Thing.LAVA: [Layer(_CELL, LAVA, 1), *(Layer(_wave(middle), DARK, 1) for middle in (0.3, 0.5, 0.7))],
    Thing.KEY: [
        Layer(_disc(0.5, 0.28, 0.2)),
        Layer(_disc(0.5, 0.28, 0.08), GROUND, 1),
        Layer(_rectangle(0.43, 0.57, 0.4, 0.9)),
        Layer(_rectangle(0.57, 0.74, 0.62, 0.71)),
        Layer(_rectangle(0.57, 0.74, 0.8, 0.89)),
    ],
    Thing.BALL: [Layer(_disc(0.5, 0.5, 0.32))],
    Thing.BOX: [
        Layer(_rectangle(0.12, 0.88, 0.12, 0.88)),
        Layer(_rectangle(0.22, 0.78, 0.22, 0.78), GROUND, 1),
        Layer(_rectangle(0.22, 0.78, 0.45, 0.55)),
    ],
}
_DOORS: dict[int, list[Layer]] = {
    # open: only its frame, and the door itself seen from the side
    Door.OPEN: [Layer(_rectangle(*sides)) for sides in ((0, 1, 0, 0.1), (0, 1, 0.9, 1), (0, 0.14, 0, 1))],
    Door.CLOSED: [
        Layer(_ALL),
        Layer(_rectangle(0.1, 0.9, 0.1, 0.9), GROUND, 1),
        Layer(_rectangle(0.2, 0.8, 0.2, 0.8), DARK, 0.5),
        Layer(_disc(0.68, 0.5, 0.09)),
    ],
    Door.LOCKED: [
        Layer(_ALL),
        Layer(_rectangle(0.1, 0.9, 0.1, 0.9), DARK, 0.5),
        Layer(_disc(0.5, 0.42, 0.15), DARK, 1),
        Layer(_rectangle(0.43, 0.57, 0.42, 0.75), DARK, 1),
    ],
}
