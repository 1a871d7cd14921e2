"""The rooms of the arena by name: grids under MiniGrid's rules, a house with a television, a chain, continuous ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from headway.errors import EnvError, check_known
from headway.rl.envs.grid_env import check_num_envs, check_seed
from headway.rl.envs.grid_rooms import GridRoom, PlanRoom
from headway.rl.envs.layouts import Layout, doorkey, keycorridor, multiroom
from headway.rl.envs.rooms import SCREENS, Pendulum, PointMass, Room, Screen

TELEVISION = "-tv"
"""The end of the name of a room with a television, which is a remote control."""
HOUSE = (
    "#################",
    "#S......#.......#",
    "#.......#.......#",
    "#.......#.......#",
    "#.......#.......#",
    "#...............#",
    "#.......#.......#",
    "#.......#.......#",
    "###.#########D###",
    "#TTTTTTT#.......#",
    "#TTTTTTT#.......#",
    "#TTTTTTT#.......#",
    "#TTTTTTT#.......#",
    "#TTTTTTT#.......#",
    "#TTTTTTT#.......#",
    "#TTTTTTT#......G#",
    "#################",
)
"""Four rooms: from the start (S) through the door (D) to the goal (G); the television (T) is in a dead end."""
HOUSE_STEPS = 100
CHAIN_CELLS, CHAIN_STEPS = 50, 100
CHAIN = ("#" * (CHAIN_CELLS + 2), f"#S{'.' * (CHAIN_CELLS - 2)}G#", "#" * (CHAIN_CELLS + 2))
"""A corridor with the goal at its other end. In each cell it is drawn which of the two moves leads on, so that no
policy that does the same everywhere gets far."""


def _grid(draw: Callable[[int], Layout], name: str, num_envs: int, seed: int, screen: Screen) -> Room:
    return GridRoom(name, num_envs, seed, screen, draw(seed))


_TASKS: dict[str, Callable[[str, int, int, Screen], Room]] = {
    **{f"doorkey-{size}": partial(_grid, partial(doorkey, size)) for size in (5, 6, 7, 8)},
    "keycorridor": partial(_grid, keycorridor),
    "multiroom": partial(_grid, multiroom),
    "chain": partial(PlanRoom, plan=CHAIN, max_steps=CHAIN_STEPS, shuffled=True),
    "pointmass": PointMass,
    "pendulum": Pendulum,
}
ROOMS = (*(f"house-{kind}" for kind in SCREENS), *(name + end for name in _TASKS for end in ("", TELEVISION)))
"""All rooms: the house with each television, and each task with and without a remote control."""


def make_room(name: str, num_envs: int = 1, seed: int = 0, images: NDArray[np.float32] | None = None) -> Room:
    """Make rooms that are stepped together, of a name out of `ROOMS`; the one with digits needs images [any, 16].

    The seed decides the layout, if the room draws one, and all noise.
    """
    check_known("a room", [name], ROOMS, EnvError)
    num_envs, seed = check_num_envs(num_envs), check_seed(seed)
    if name.startswith("house-"):
        screen = Screen(name.removeprefix("house-"), num_envs, images)
        return PlanRoom(name, num_envs, seed, screen, HOUSE, HOUSE_STEPS)
    screen = Screen("remote" if name.endswith(TELEVISION) else "none", num_envs)
    return _TASKS[name.removesuffix(TELEVISION)](name, num_envs, seed, screen)
