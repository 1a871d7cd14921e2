"""Grid rooms beside Farama's own environments: the same layout, the same actions, the same outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.rl.envs.grid_rooms import GridRoom
from headway.rl.envs.grids import Thing
from headway.rl.envs.layouts import Layout, keycorridor, multiroom
from headway.rl.envs.rooms import Screen

IDS = ("MiniGrid-DoorKey-5x5-v0", "MiniGrid-KeyCorridorS3R1-v0", "MiniGrid-MultiRoom-N4-S5-v1")


def farama(env_id: str, seed: int) -> tuple[Any, GridRoom]:
    """Farama's environment, and ours with its layout."""
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("minigrid")
    env = gymnasium.make(env_id).unwrapped
    env.reset(seed=seed)
    position = tuple(int(each) for each in env.agent_pos)
    layout = Layout(env.grid.encode(), position, int(env.agent_dir), env.max_steps)
    return env, GridRoom(env_id, 1, 0, Screen("none", 1), layout)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("seed", range(4))
def test_the_rules_are_those_of_farama(env_id: str, seed: int) -> None:
    theirs, ours = farama(env_id, seed)
    ours.reset()
    generator = np.random.default_rng(seed)
    chances = np.array([2, 2, 4, 2, 1, 3, 0]) / 14
    for _ in range(theirs.max_steps):
        action = int(generator.choice(7, p=chances))
        _, reward, terminated, truncated, _ = theirs.step(action)
        _, rewards, ended, cut, _ = ours.step(np.array([action]))
        assert (rewards[0], ended[0]) == (pytest.approx(reward), terminated)
        assert cut[0] == truncated
        if terminated or truncated:
            break
        assert tuple(int(each) for each in theirs.agent_pos) == tuple(divmod(int(ours._agent[0]), ours._height))
        assert theirs.agent_dir == ours._direction[0]
        codes = theirs.grid.encode().reshape(-1, 3)
        assert codes[codes[:, 0] == Thing.DOOR, 2].tolist() == ours._doors[0].tolist()
        lying = np.flatnonzero(np.isin(codes[:, 0], (Thing.KEY, Thing.BALL)))
        assert sorted(ours._objects[0][ours._objects[0] >= 0]) == lying.tolist()
        assert (theirs.carrying is not None) == (ours._objects[0] == -1).any()


def test_the_ball_of_the_corridor_can_be_fetched() -> None:
    layout = keycorridor(0)
    env = GridRoom("keycorridor", 1, 0, Screen("none", 1), Layout(layout.codes, layout.agent, 2, layout.max_steps))
    env.reset()
    right, forward, pick, drop, toggle = range(1, 6)
    way = [toggle, forward, pick, right, right, forward, toggle, forward, right, right, drop, right, right, pick]
    for action in way:
        _, rewards, terminated, _, _ = env.step(np.array([action]))
    assert terminated[0]
    assert rewards[0] == pytest.approx(1 - 0.9 * len(way) / env.max_steps)


@pytest.mark.parametrize("seed", range(20))
def test_four_rooms_are_joined_by_three_doors(seed: int) -> None:
    layout = multiroom(seed)
    thing = layout.codes[..., 0]
    assert (thing == Thing.DOOR).sum() == 3
    assert (thing == Thing.GOAL).sum() == 1
    seen, todo = {layout.agent}, [layout.agent]
    while todo:
        x, y = todo.pop()
        for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if cell not in seen and thing[cell] != Thing.WALL:
                seen.add(cell)
                todo.append(cell)
    assert len(seen) == (thing != Thing.WALL).sum()
