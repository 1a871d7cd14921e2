"""The distribution of layouts: against the exact law, and against layouts that Farama's generator draws."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from minigrid.envs import DoorKeyEnv
from scipy import stats

from headway.errors import EnvError
from headway.rl.envs.layouts import Layouts, draw_layouts, draw_rooms
from headway.rl.envs.streams import Streams

SIZES = (5, 6, 8, 16)
LEVEL = 1e-3
"""Seeds are fixed, so a test that passes once always does; a wrong distribution is far below this."""


class OnlyTheLayout(DoorKeyEnv):
    def gen_obs(self) -> dict[str, object]:
        return {}


def ours(size: int, count: int, seed: int = 0) -> Layouts:
    """Layouts of 500 streams, several from each."""
    streams, rows = Streams(500, seed, 0), np.arange(500)
    drawn = [draw_layouts(size, streams, rows) for _ in range(count // 500)]
    return Layouts(*(np.concatenate([getattr(each, part.name) for each in drawn]) for part in fields(Layouts)))


def farama(size: int, count: int) -> Layouts:
    """Layouts of Farama's generator."""
    env = OnlyTheLayout(size=size)
    rows = []
    for index in range(count):
        env.reset(seed=12345 if index == 0 else None)
        things = {
            each.type: each.cur_pos for each in env.grid.grid if each is not None and each.type in ("door", "key")
        }
        rows.append((*things["door"], *env.agent_pos, env.agent_dir, *things["key"]))
    return Layouts(*np.array(rows).T)


def column(layouts: Layouts, *names: str) -> list[tuple[int, ...]]:
    return list(zip(*(getattr(layouts, name).tolist() for name in names), strict=True))


def exact(size: int, names: Sequence[str]) -> dict[Hashable, float]:
    """The probabilities that follow from the rules, by listing all layouts."""
    law: Counter[Hashable] = Counter()
    inner, walls = range(1, size - 1), range(2, size - 2)
    for wall in walls:
        cells = list(itertools.product(range(1, wall), inner))
        doors = range(1, size - 2) if "door" in names else [0]
        directions = range(4) if "direction" in names else [0]
        keyed = any(name.startswith("key") for name in names)
        for agent in cells:
            keys = [cell for cell in cells if cell != agent] if keyed else [(0, 0)]
            share = 1 / (len(walls) * len(cells) * len(keys) * len(doors) * len(directions))
            for key, door, direction in itertools.product(keys, doors, directions):
                every = dict(
                    zip([each.name for each in fields(Layouts)], (wall, door, *agent, direction, *key), strict=True)
                )
                law[tuple(every[name] for name in names)] += share
    return law


JOINT = ["wall", "door", "agent_x", "agent_y", "direction", "key_x", "key_y"]


@pytest.mark.parametrize(
    ("size", "names"),
    [
        (5, JOINT),
        (6, JOINT),
        (8, ["wall", "agent_x", "agent_y", "key_x", "key_y"]),
        (8, ["wall", "door", "direction"]),
        (8, ["door", "agent_x", "agent_y"]),
        (16, ["wall", "agent_x", "agent_y"]),
        (16, ["wall", "door", "direction"]),
        (16, ["key_x", "key_y"]),
    ],
)
def test_layouts_follow_the_exact_law(size: int, names: list[str]) -> None:
    count = 200_000
    law = exact(size, names)
    assert sum(law.values()) == pytest.approx(1)
    found = Counter(column(ours(size, count), *names))
    assert set(found) <= set(law)
    expected = np.array([law[each] * count for each in law])
    observed = np.array([found[each] for each in law])
    assert expected.min() > 5
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > LEVEL


@pytest.mark.parametrize("size", SIZES)
def test_layouts_are_distributed_as_farama_draws_them(size: int) -> None:
    theirs, mine = farama(size, 3000), ours(size, 30_000, seed=1)
    for names in (("wall", "door"), ("agent_x", "agent_y"), ("key_x", "key_y"), ("direction",), ("wall", "agent_x")):
        assert same_distribution(column(theirs, *names), column(mine, *names)) > LEVEL, names
    apart = [
        [(kx - ax, ky - ay) for ax, ay, kx, ky in column(each, "agent_x", "agent_y", "key_x", "key_y")]
        for each in (theirs, mine)
    ]
    assert same_distribution(*apart) > LEVEL


def same_distribution(first: list[tuple[int, ...]], second: list[tuple[int, ...]]) -> float:
    """The p-value of the chi-square test that two samples have one distribution; rare values are taken together."""
    counts = Counter(first), Counter(second)
    table = np.array([[each[value] for each in counts] for value in sorted(set(first) | set(second))])
    expected = table.sum(1) * len(first) / (len(first) + len(second))
    rare = expected < 5
    table = np.vstack([table[~rare], table[rare].sum(0)]) if rare.any() else table
    table = table[table.sum(1) > 0]
    return float(stats.chi2_contingency(table).pvalue) if len(table) > 1 else 1.0


def test_the_test_would_notice_a_difference() -> None:
    theirs, mine = farama(6, 3000), ours(6, 30_000)
    wrong = replace(mine, key_y=np.where(mine.key_y == 1, 2, mine.key_y))
    assert same_distribution(column(theirs, "key_x", "key_y"), column(wrong, "key_x", "key_y")) < 1e-9


def test_layouts_of_one_environment_and_of_neighbours_are_independent() -> None:
    streams = Streams(1000, 0, 0)
    rows = np.arange(1000)
    doors = np.array([draw_layouts(8, streams, rows).door for _ in range(60)])
    for first, second in ((doors[:-1], doors[1:]), (doors[:, :-1], doors[:, 1:])):
        table = np.zeros((6, 6))
        np.add.at(table, (first.reshape(-1), second.reshape(-1)), 1)
        assert stats.chi2_contingency(table[1:, 1:]).pvalue > LEVEL


def test_rooms_have_walls_and_a_goal() -> None:
    (room,) = draw_rooms(5, np.array([2]))
    picture = ["".join(" .#"[code] if code < 3 else "G" for code in row) for row in room[..., 0].T]
    assert picture == ["#####", "#.#.#", "#.#.#", "#.#G#", "#####"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wall": np.array([1])}, "wall of a layout from 2 to 3, got array"),
        ({"door": np.array([0])}, "door of a layout from 1 to 4"),
        ({"key_x": np.array([2])}, "key_x of a layout from 1 to "),
        ({"agent_y": np.array([5])}, "agent_y of a layout from 1 to 4"),
        ({"key_y": np.array([1])}, "in different cells, got both in one"),
        ({"direction": np.array([4])}, "direction of a layout from 0 to 3"),
        ({"door": np.array([1, 2])}, r"integers \[1\] as door"),
        ({"door": np.array([1.0])}, r"integers \[1\] as door"),
        ({"door": [1]}, r"integers \[1\] as door"),
    ],
)
def test_an_impossible_layout_is_refused(change: dict[str, object], message: str) -> None:
    one = np.array([1])
    good = Layouts(one + 1, one, one, one, one, one, one + 1)
    good.check(6, 1)
    with pytest.raises(EnvError, match=message):
        replace(good, **change).check(6, 1)
