"""Noise near doors, on both backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from headway.errors import EnvError
from headway.rl import make_env
from headway.rl.envs.doorkey_env import DoorKeyVectorEnv
from headway.rl.envs.noise import DoorNoise, GridNoise
from tests.rl.envs.play import DONE, FORWARD, LEFT, PICKUP, TOGGLE
from tests.rl.envs.test_doorkey_env import HAND, SOLUTION

ID = "MiniGrid-DoorKey-5x5-v0"


def distance_from(grid: np.ndarray, door: tuple[int, int]) -> int:
    (agent,) = np.argwhere(grid[..., 0] == 10)
    return int(np.abs(agent - door).sum())


@pytest.mark.parametrize("backend", ["vector", "minigrid"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_noise_is_on_exactly_within_distance_one_of_the_door(backend: str, mode: str) -> None:
    env = make_env(ID, 3, noise="door", backend=backend, seed=4, autoreset_mode=mode)
    obs, infos = env.reset()
    doors: list[Any] = [None] * 3
    rng = np.random.default_rng(0)
    seen: list[float] = []
    for _ in range(600):
        assert obs.dtype == np.float32
        assert obs.shape == (3, 5, 5, 4)
        assert env.observation_space.contains(obs)
        for lane in range(3):
            visible = np.argwhere(obs[lane, ..., 0] == 4)
            doors[lane] = tuple(visible[0]) if len(visible) else doors[lane]
            near = distance_from(obs[lane], doors[lane]) <= 1
            assert infos["noise_on"][lane] == near
            assert (obs[lane, ..., 3] != 0).all() if near else (obs[lane, ..., 3] == 0).all()
            seen += obs[lane, ..., 3].reshape(-1).tolist() if near else []
        obs, *_, infos = env.step(rng.choice([0, 1, 2, 2, 3, 5], 3))
    assert len(set(seen)) > 0.999 * len(seen) > 1000, "new in every observation"
    assert stats.kstest(seen, "norm").pvalue > 1e-3


def test_by_hand_from_the_first_observation_on() -> None:
    env = DoorNoise(DoorKeyVectorEnv(5))
    on = [bool(env.reset(options={"layouts": HAND})[1]["noise_on"][0])]
    on += [bool(env.step(np.array([action]))[-1]["noise_on"][0]) for action in SOLUTION[:-1]]
    # Before the door from the second observation on, through it, and beside it behind; the goal is two away.
    assert on == [False, True, True, True, True, True, True, True]


def test_the_last_observation_of_an_episode_has_noise_of_its_own() -> None:
    env = DoorNoise(DoorKeyVectorEnv(5, 2))
    far = [np.concatenate([part, part]) for part in vars(HAND).values()]
    env.reset(options={"layouts": type(HAND)(*far)})
    env.step(np.array([FORWARD, LEFT]))  # the first is beside the door now, the second is not
    for _ in range(248):
        obs, *_ = env.step(np.array([DONE, DONE]))
    obs, _, _, truncated, infos = env.step(np.array([DONE, DONE]))
    assert truncated.all()
    assert infos["final_info"]["noise_on"].tolist() == [True, False]
    assert infos["final_info"]["_noise_on"].tolist() == [True, True]
    last = np.stack(infos["final_obs"].tolist())
    assert last.dtype == np.float32
    assert last.shape == (2, 5, 5, 4)
    assert (last[0, ..., 3] != 0).all()
    assert (last[1, ..., 3] == 0).all()
    assert np.array_equal(last[0, ..., :3], last[0, ..., :3].astype(int))
    if infos["noise_on"][0]:
        assert not np.array_equal(obs[0, ..., 3], last[0, ..., 3])


def test_a_partial_reset_leaves_the_others_their_noise() -> None:
    env = DoorNoise(DoorKeyVectorEnv(5, 2))
    both = [np.concatenate([part, part]) for part in vars(HAND).values()]
    env.reset(options={"layouts": type(HAND)(*both)})
    obs, *_ = env.step(np.array([FORWARD, FORWARD]))
    assert (obs[..., 3] != 0).all()
    after, infos = env.reset(options={"reset_mask": np.array([True, False]), "layouts": HAND})
    assert infos["noise_on"].tolist() == [False, True]
    assert (after[0, ..., 3] == 0).all()
    assert np.array_equal(after[1], obs[1])


def test_the_noise_changes_nothing_else() -> None:
    plain, noisy = make_env(ID, 4, seed=1), make_env(ID, 4, noise="door", seed=1)
    a, b = plain.reset()[0], noisy.reset()[0]
    rng = np.random.default_rng(0)
    for _ in range(300):
        assert np.array_equal(a, b[..., :3])
        actions = rng.integers(0, 7, 4)
        (a, *rest_a, infos_a), (b, *rest_b, infos_b) = plain.step(actions), noisy.step(actions)
        assert all(np.array_equal(x, y) for x, y in zip(rest_a, rest_b, strict=True))
        assert set(infos_a) == set(infos_b)


def test_noise_of_one_environment_does_not_depend_on_the_others_and_seeds_decide_it() -> None:
    def play(count: int, seed: int | None) -> np.ndarray:
        env = make_env(ID, count, noise="door", seed=7)
        env.reset(seed=seed)
        rng = np.random.default_rng(0)
        return np.stack([env.step(rng.choice([0, 1, 2, 2], 6)[:count])[0][:2] for _ in range(200)])

    few = play(2, None)
    assert (few[..., 3] != 0).any()
    assert np.array_equal(few, play(6, None))
    assert np.array_equal(few, play(2, 7))
    assert not np.array_equal(few, play(2, 8))


def test_without_noise_the_channel_is_optional_and_zero() -> None:
    env = make_env(ID, 2, noise_channel=True)
    obs, infos = env.reset()
    assert (obs.dtype, obs.shape) == (np.float32, (2, 5, 5, 4))
    for _ in range(300):
        assert (obs[..., 3] == 0).all()
        assert infos["noise_on"].tolist() == [False, False]
        obs, _, terminated, truncated, infos = env.step(env.action_space.sample())
        if (terminated | truncated).any():
            assert infos["final_obs"][np.argmax(terminated | truncated)].shape == (5, 5, 4)
            assert not infos["final_info"]["noise_on"].any()
    obs, infos = make_env(ID, 2).reset()
    assert (obs.dtype, obs.shape) == (np.uint8, (2, 5, 5, 3))
    assert infos["noise_on"].tolist() == [False, False]


def test_partial_view_uses_the_true_distance() -> None:
    env = make_env(ID, 2, noise="door", backend="minigrid", view="partial", seed=1)
    obs, infos = env.reset()
    rng = np.random.default_rng(0)
    loud = 0
    for _ in range(200):
        assert obs.shape == (2, 7, 7, 4)
        grids = env.env.grids()
        for lane in range(2):
            world = env.env.envs[lane].unwrapped
            (door,) = [each.cur_pos for each in world.grid.grid if each is not None and each.type == "door"]
            near = distance_from(grids[lane], door) <= 1
            assert infos["noise_on"][lane] == near
            assert (obs[lane, ..., 3] != 0).all() == near
            loud += near
        obs, *_, infos = env.step(rng.choice([0, 1, 2, 2], 2))
    assert loud > 20


def test_the_nearest_of_several_doors_counts() -> None:
    env = make_env("MiniGrid-MultiRoom-N4-S5", 2, noise="door", backend="minigrid", seed=1)
    _, infos = env.reset()
    for lane in range(2):
        world = env.env.envs[lane].unwrapped
        things = {(x, y): world.grid.get(x, y) for x in range(world.width) for y in range(world.height)}
        doors = [place for place, each in things.items() if each is not None and each.type == "door"]
        assert len(doors) > 1
        nearest = min(abs(x - world.agent_pos[0]) + abs(y - world.agent_pos[1]) for x, y in doors)
        assert infos["door_distance"][lane] == nearest


def test_an_environment_without_a_door_is_refused() -> None:
    with pytest.raises(EnvError, match="with a door for door noise, got MiniGrid-Empty-5x5-v0; use noise='none'"):
        make_env("MiniGrid-Empty-5x5-v0", noise="door", backend="minigrid")
    obs, infos = make_env("MiniGrid-Empty-5x5-v0", 2, backend="minigrid").reset()
    assert (infos["door_distance"] > 10**6).all()
    assert obs.shape == (2, 5, 5, 3)


def test_wrappers_need_grid_environments() -> None:
    with pytest.raises(EnvError, match="got int"):
        GridNoise(3)  # type: ignore[arg-type]


def test_pictures_show_the_noise() -> None:
    env = DoorNoise(DoorKeyVectorEnv(5))
    env.reset(options={"layouts": HAND})
    (quiet,) = env.render()
    assert np.array_equal(quiet, env.env.render()[0])
    env.step(np.array([FORWARD]))
    (loud,) = env.render()
    assert not np.array_equal(loud, env.env.render()[0])
    for action in (PICKUP, LEFT, TOGGLE):
        env.step(np.array([action]))
    assert env.render()[0].shape == (80, 80, 3)
