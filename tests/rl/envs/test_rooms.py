"""Rooms of the arena: their plans, their televisions, and their states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.errors import EnvError
from headway.rl.envs.make_room import ROOMS, make_room
from headway.rl.envs.rooms import PIXELS

IMAGES = np.linspace(-1, 1, 5 * PIXELS, dtype=np.float32).reshape(5, PIXELS)


def actions(env: Any, generator: np.random.Generator) -> Any:
    space = env.single_action_space
    if hasattr(space, "n"):
        return generator.integers(space.n, size=env.num_envs)
    return generator.normal(size=(env.num_envs, *space.shape))


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_goes_on_exactly_from_a_state(name: str) -> None:
    env, other = (make_room(name, 3, seed=1, images=IMAGES) for _ in range(2))
    env.reset(seed=2)
    generator = np.random.default_rng(0)
    for _ in range(130):
        env.step(actions(env, generator))
    other.load_state_dict(env.state_dict())
    for _ in range(130):
        chosen = actions(env, generator)
        first, second = env.step(chosen), other.step(chosen)
        for one, two in zip(first[:4], second[:4], strict=True):
            np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(first[4]["noise_on"], second[4]["noise_on"])
    assert env.state_dict() == other.state_dict()


@pytest.mark.parametrize("name", ROOMS)
def test_what_happens_in_a_room_does_not_depend_on_the_others(name: str) -> None:
    few, many = (make_room(name, count, seed=1, images=IMAGES) for count in (2, 5))
    few.reset(seed=2)
    many.reset(seed=2)
    generator = np.random.default_rng(0)
    for _ in range(120):
        chosen = actions(many, generator)
        np.testing.assert_array_equal(few.step(chosen[:2])[0], many.step(chosen)[0][:2])


@pytest.mark.parametrize("name", ROOMS)
def test_the_screen_is_dark_where_no_noise_is_reported(name: str) -> None:
    env = make_room(name, 8, seed=1, images=IMAGES)
    env.reset(seed=2)
    generator = np.random.default_rng(0)
    seen = 0
    for _ in range(200):
        obs, _, _, _, infos = env.step(actions(env, generator))
        lit = (obs[:, -PIXELS:] != 0).any(axis=1)
        if name != "house-dynamics":
            np.testing.assert_array_equal(lit, infos["noise_on"])
        seen += infos["noise_on"].sum()
    if name.endswith("-tv") or name == "house-remote":
        assert seen
    elif name == "house-none" or not name.startswith("house-"):
        assert not seen


def walk(env: Any, moves: str) -> tuple[Any, ...]:
    keys = {"l": 0, "r": 1, "u": 2, "d": 3, "b": 4}
    for move in moves:
        found = env.step(np.array([keys[move]]))
    return found


def test_the_way_through_the_house() -> None:
    env = make_room("house-none")
    env.reset()
    *_, rewards, terminated, _, _ = walk(env, "d" * 4 + "r" * 12 + "d" * 10 + "r" * 2)
    assert terminated[0]
    assert rewards[0] == pytest.approx(1 - 0.9 * 28 / env.max_steps)
    assert env.goals == 1
    assert env.first_goal == 28


def test_the_button_works_near_the_screen_only() -> None:
    env = make_room("house-button")
    env.reset()
    assert not walk(env, "b")[-1]["noise_on"][0]
    walk(env, "rr" + "d" * 8)
    first = walk(env, "b")
    second = walk(env, "b")
    assert first[-1]["noise_on"][0]
    assert (first[0][0, -PIXELS:] != second[0][0, -PIXELS:]).all()
    assert not walk(env, "r")[-1]["noise_on"][0]


def test_noise_on_the_way_is_near_the_door() -> None:
    env = make_room("house-door")
    env.reset()
    assert not walk(env, "d" * 4 + "r" * 12)[-1]["noise_on"][0]
    assert all(walk(env, "d")[-1]["noise_on"][0] for _ in range(5))
    assert not walk(env, "d")[-1]["noise_on"][0]


def test_slow_noise_changes_a_little_and_sticky_noise_stays() -> None:
    env = make_room("house-slow")
    env.reset()
    first = walk(env, "rr" + "d" * 8)[0][0, -PIXELS:]
    second = walk(env, "d")[0][0, -PIXELS:]
    assert np.abs(second - first).mean() < 0.5 * np.abs(first).mean()
    env = make_room("house-sticky")
    env.reset()
    first = walk(env, "rr" + "d" * 8 + "b")[0][0, -PIXELS:]
    np.testing.assert_array_equal(walk(env, "u" * 5)[0][0, -PIXELS:], first)


def test_digits_are_images_and_random_moves_stay_in_the_zone() -> None:
    env = make_room("house-digits", images=IMAGES)
    env.reset()
    shown = walk(env, "rr" + "d" * 8)[0][0, -PIXELS:]
    assert any((shown == image).all() for image in IMAGES)
    env = make_room("house-dynamics")
    env.reset()
    walk(env, "rr" + "d" * 8)
    places = set()
    for _ in range(30):
        assert walk(env, "d")[-1]["noise_on"][0]
        places.add(int(env._cell[0]))
    assert len(places) > 10
    assert all(env._zone[cell] for cell in places)


def test_the_chain_needs_another_action_in_each_cell() -> None:
    env = make_room("chain", seed=5)
    env.reset()
    total = 0
    while not env.goals:
        on = np.flatnonzero(env._moves[env._cell[0]] == 1)
        env.step(on[:1])
        total += 1
    assert total == 49
    assert len(set(env._moves[:, 0].tolist())) == 2


def test_unknown_rooms_list_what_there_is() -> None:
    with pytest.raises(EnvError, match=r"house-none.*pendulum-tv.*got 'haus'"):
        make_room("haus")
    with pytest.raises(EnvError, match=r"expected images of shape \[any, 16\]"):
        make_room("house-digits")
