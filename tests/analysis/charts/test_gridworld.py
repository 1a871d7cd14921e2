from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import Polygon, Rectangle

from headway.analysis.charts import exploration as gw
from headway.errors import FigureError
from tests.analysis.charts.panels import new_axes


def empty(width: int = 5, height: int = 4) -> np.ndarray:
    grid = np.zeros((width, height, 3), int)
    grid[..., 0] = gw.EMPTY
    return grid


def tiles(ax: object, colour: str) -> set[tuple[float, float]]:
    from matplotlib.colors import to_rgba

    found = [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_width() == 1]
    return {patch.get_xy() for patch in found if patch.get_facecolor() == to_rgba(colour)}


def test_walls_and_goal_are_where_the_codes_say() -> None:
    grid = empty()
    grid[0, 2] = (gw.WALL, 5, 0)
    grid[3, 1] = (gw.GOAL, 1, 0)
    ax = gw.draw_gridworld(new_axes(), grid)
    assert tiles(ax, gw.WALL_COLOUR) == {(0, 2)}
    assert tiles(ax, gw.COLOURS[1]) == {(3, 1)}
    assert len(tiles(ax, gw.FLOOR)) == 18
    assert ax.get_xlim() == (0, 5)
    assert ax.get_ylim() == (4, 0)  # row 0 is at the top


@pytest.mark.parametrize(("direction", "tip"), [(0, (0.38, 0)), (1, (0, 0.38)), (2, (-0.38, 0)), (3, (0, -0.38))])
def test_the_agent_points_where_it_looks(direction: int, tip: tuple[float, float]) -> None:
    grid = empty()
    grid[2, 1] = (gw.AGENT, 0, direction)
    ax = gw.draw_gridworld(new_axes(), grid)
    (agent,) = [patch for patch in ax.patches if isinstance(patch, Polygon) and not isinstance(patch, Rectangle)]
    assert agent.get_xy()[0] == pytest.approx((2.5 + tip[0], 1.5 + tip[1]))


def test_the_outline_is_around_the_free_tiles_next_to_the_door() -> None:
    grid = gw.example_doorkey(8)
    codes = grid[..., :3].astype(int)
    assert gw.trigger_tiles(codes) == {(3, 3), (4, 3), (5, 3)}
    drawn = gw.draw_gridworld(new_axes(), grid)
    edges = {(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in drawn.lines}
    assert ((3, 3), (3, 4)) in edges
    assert len(edges) == 8
    assert not gw.draw_gridworld(new_axes(), grid, trigger=False).lines


def test_a_door_at_the_border_has_tiles_inside_only() -> None:
    grid = empty()
    grid[0, 0] = (gw.DOOR, 4, gw.OPEN)
    assert gw.trigger_tiles(grid) == {(0, 0), (1, 0), (0, 1)}


def test_noise_is_a_square_on_every_tile_as_grey_as_it_is_loud() -> None:
    grid = np.concatenate([empty(2, 1), np.zeros((2, 1, 1))], 2).astype(float)
    grid[0, 0, 3], grid[1, 0, 3] = gw.LOUDEST, -9
    ax = gw.draw_gridworld(new_axes(), grid)
    squares = {
        round(patch.get_x()): patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_width() == 0.6
    }
    assert squares[0].get_facecolor() == (0, 0, 0, 1)
    assert squares[1].get_facecolor() == (1, 1, 1, 1)
    grid[..., 3] = 0
    assert not [patch for patch in gw.draw_gridworld(new_axes(), grid).patches if patch.get_width() == 0.6]


@pytest.mark.parametrize("kind", [gw.DOOR, gw.KEY, gw.BALL, gw.BOX, gw.AGENT])
def test_every_object_adds_something_to_its_tile(kind: int) -> None:
    grid = empty()
    grid[1, 1] = (kind, 4, gw.CLOSED)
    plain = gw.draw_gridworld(new_axes(), empty(), trigger=False)
    drawn = gw.draw_gridworld(new_axes(), grid, trigger=False)
    assert len(drawn.patches) > len(plain.patches)


@pytest.mark.parametrize("size", [5, 6, 8, 16])
def test_the_example_can_be_solved(size: int) -> None:
    for noise in (None, np.random.default_rng(0)):
        grid = gw.example_doorkey(size, noise=noise)
        kinds = grid[..., 0].astype(int)
        for kind in (gw.DOOR, gw.KEY, gw.GOAL, gw.AGENT):
            assert (kinds == kind).sum() == 1
        wall = np.argwhere(kinds == gw.DOOR)[0][0]
        assert np.argwhere(kinds == gw.KEY)[0][0] < wall > np.argwhere(kinds == gw.AGENT)[0][0]
        assert np.argwhere(kinds == gw.GOAL)[0][0] > wall
        assert (kinds[wall] == gw.WALL).sum() == size - 1
        agent = tuple(map(int, np.argwhere(kinds == gw.AGENT)[0]))
        assert (agent in gw.trigger_tiles(grid)) == (noise is not None) == bool(grid[..., 3].any())


def test_the_codes_are_those_of_the_environments() -> None:
    pytest.importorskip("gymnasium")
    codes = pytest.importorskip("headway.rl.envs.grids")
    for name in ("EMPTY", "WALL", "DOOR", "KEY", "BALL", "BOX", "GOAL", "LAVA", "AGENT"):
        assert getattr(codes.Thing, name) == getattr(gw, name)
    for name in ("OPEN", "CLOSED", "LOCKED"):
        assert getattr(codes.Door, name) == getattr(gw, name)
    assert len(gw.COLOURS) == len(codes.Colour)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(FigureError, match=r"got \[8, 8\]"):
        gw.draw_gridworld(new_axes(), np.zeros((8, 8)))
    with pytest.raises(FigureError, match="got 4"):
        gw.example_doorkey(4)
