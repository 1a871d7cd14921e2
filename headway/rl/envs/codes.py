"""The numbers that MiniGrid writes into its grids: objects, colours, states, directions and actions.

They are Farama's (`minigrid.core.constants`, `minigrid.core.actions`), written down here so that the vectorised
environment and the drawing work without that package. A test compares the two.
"""

from __future__ import annotations

from enum import IntEnum


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
    """The state of a door: the third channel. For the agent that channel is its `Direction`."""

    OPEN = 0
    CLOSED = 1
    LOCKED = 2


class Direction(IntEnum):
    """Where the agent looks; x grows to the right, y downwards."""

    RIGHT = 0
    DOWN = 1
    LEFT = 2
    UP = 3


class Action(IntEnum):
    """What the agent can do."""

    LEFT = 0
    RIGHT = 1
    FORWARD = 2
    PICKUP = 3
    DROP = 4
    TOGGLE = 5
    DONE = 6
