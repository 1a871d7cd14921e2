"""Pictures of grids."""

from __future__ import annotations

import numpy as np
import pytest

from headway.errors import EnvError
from headway.rl.envs.grids import COLOURS, GROUND, STRANGE, Thing, render_grid


def grid(*cells: tuple[int, int, int]) -> np.ndarray:
    """A grid of one row."""
    return np.array(cells, dtype=np.uint8)[:, None]


def test_columns_and_rows_are_where_they_should_be() -> None:
    codes = np.full((3, 2, 3), (Thing.EMPTY, 0, 0))
    codes[2, 1] = (Thing.GOAL, 1, 0)  # third column, second row
    picture = render_grid(codes, tile=10)
    assert picture.shape == (20, 30, 3)
    assert picture.dtype == np.uint8
    assert picture[15, 25].tolist() == list(COLOURS[1])
    assert picture[5, 25].tolist() == picture[15, 5].tolist() == list(GROUND)


def test_things_colours_and_states_look_different() -> None:
    drawn = {}
    for thing in Thing:
        coloured = thing not in (Thing.UNSEEN, Thing.EMPTY, Thing.LAVA)
        states = {Thing.DOOR: 3, Thing.AGENT: 4}.get(thing, 1)
        for colour in range(6 if coloured else 1):
            for state in range(states):
                drawn[thing, colour, state] = render_grid(grid((thing, colour, state)), 12).tobytes()
    assert len(set(drawn.values())) == len(drawn) == 3 + 6 * (6 + 3 + 4)


@pytest.mark.parametrize(("direction", "tip"), [(0, (16, 24)), (1, (24, 16)), (2, (16, 7)), (3, (7, 16))])
def test_the_agent_points_where_it_looks(direction: int, tip: tuple[int, int]) -> None:
    picture = render_grid(grid((Thing.AGENT, 0, direction)), 32)
    red = list(COLOURS[0])
    assert picture[16, 16].tolist() == red
    assert picture[tip].tolist() == red
    beside = (tip[0] + 6, tip[1]) if direction % 2 == 0 else (tip[0], tip[1] + 6)
    assert picture[beside].tolist() == list(GROUND)


def test_noise_is_a_speckle_from_black_to_white() -> None:
    cells = np.repeat(grid((Thing.EMPTY, 0, 0)), 4, axis=0).astype(np.float32)
    noise = np.array([-9.0, 0.0, 0.001, 9.0], dtype=np.float32)[:, None, None]
    picture = render_grid(np.concatenate([cells, noise], axis=2), 16)
    greys = [set(map(tuple, picture[:, 16 * i : 16 * i + 16].reshape(-1, 3).tolist())) for i in range(4)]
    plain = set(map(tuple, render_grid(grid((Thing.EMPTY, 0, 0)), 16).reshape(-1, 3).tolist()))
    assert greys[1] == plain
    assert (0, 0, 0) in greys[0] - plain
    assert (127, 127, 127) in greys[2] - plain
    assert (255, 255, 255) in greys[3] - plain
    assert GROUND in greys[0] & greys[2] & greys[3], "what is under the noise can be seen"


def test_noise_of_another_size_is_stretched() -> None:
    cells = np.full((4, 4, 3), (Thing.EMPTY, 0, 0))
    noise = np.array([[9.0, 0.0], [0.0, 0.0]])
    picture = render_grid(cells, 8, noise=noise)
    plain = render_grid(cells, 8)
    changed = (picture != plain).any(axis=2)
    assert changed[:16, :16].any()
    assert not changed[16:].any()
    assert not changed[:, 16:].any()


def test_an_unknown_code_stands_out() -> None:
    assert render_grid(grid((77, 0, 0)), 8)[4, 4].tolist() == list(STRANGE)
    assert render_grid(grid((Thing.GOAL, 9, 0)), 8)[4, 4].tolist() == list(STRANGE)


def test_a_picture_may_be_changed() -> None:
    first = render_grid(grid((Thing.GOAL, 1, 0)), 8)
    first[:] = 0
    assert render_grid(grid((Thing.GOAL, 1, 0)), 8).any()


def test_what_is_no_grid_is_refused() -> None:
    with pytest.raises(EnvError, match=r"got \[2, 5, 5, 3\]"):
        render_grid(np.zeros((2, 5, 5, 3)))
    with pytest.raises(EnvError, match="tiles of 4 pixels or more, got 2"):
        render_grid(np.zeros((5, 5, 3)), tile=2)
