"""The vectorised DoorKey by itself: its rules on a room known by hand, episodes in every autoreset mode, seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from headway.errors import EnvError
from headway.rl.envs.doorkey_env import DoorKeyVectorEnv
from headway.rl.envs.layouts import Layouts
from tests.rl.envs.play import DONE, DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE, Solver

# A room of 5x5: wall in column 2, door in row 2, agent at (1, 1) looking down, key at (1, 3).
HAND = Layouts(*(np.array([value]) for value in (2, 2, 1, 1, 1, 1, 3)))
SOLUTION = [FORWARD, PICKUP, LEFT, TOGGLE, FORWARD, FORWARD, RIGHT, FORWARD]


def hand(mode: AutoresetMode = AutoresetMode.DISABLED) -> DoorKeyVectorEnv:
    env = DoorKeyVectorEnv(5, autoreset_mode=mode)
    env.reset(options={"layouts": HAND})
    return env


def act(env: DoorKeyVectorEnv, *actions: int) -> Any:
    for action in actions:
        outcome = env.step(np.array([action]))
    return outcome


def test_first_observation() -> None:
    (grid,) = hand().grids()
    assert grid[1, 1].tolist() == [10, 0, 1]
    assert grid[1, 3].tolist() == [5, 4, 0]
    assert grid[2, 2].tolist() == [4, 4, 2]
    assert grid[3, 3].tolist() == [8, 1, 0]
    assert grid[2, 1].tolist() == [2, 5, 0]
    assert grid[3, 1].tolist() == [1, 0, 0]


def test_the_solution_is_paid_by_its_length() -> None:
    env = hand()
    *_, infos = act(env, *SOLUTION[:-1])
    assert "episode_return" not in infos
    obs, rewards, terminated, truncated, infos = act(env, SOLUTION[-1])
    assert rewards.tolist() == [1 - 0.9 * (8 / 250)]
    assert (terminated.tolist(), truncated.tolist()) == ([True], [False])
    assert infos["episode_length"].tolist() == [8]
    assert infos["episode_return"].tolist() == rewards.tolist()
    assert obs[0, 3, 3].tolist() == [10, 0, 1]


def test_key_and_door() -> None:
    env = hand()
    key, door = (0, 1, 3), (0, 2, 2)
    assert act(env, FORWARD, LEFT, TOGGLE)[0][door].tolist() == [4, 4, 2], "locked without the key"
    assert act(env, FORWARD)[0][0, 1, 2].tolist() == [10, 0, 0], "a locked door is in the way"
    assert act(env, RIGHT, PICKUP)[0][key].tolist() == [1, 0, 0]
    assert act(env, DROP)[0][key].tolist() == [5, 4, 0]
    assert act(env, FORWARD)[0][0, 1, 2].tolist() == [10, 0, 1], "the key is in the way"
    obs = act(env, PICKUP, LEFT, DROP)[0]
    assert obs[door].tolist() == [4, 4, 2], "nothing can be dropped on a door"
    assert act(env, TOGGLE)[0][door].tolist() == [4, 4, 0]
    assert act(env, DROP)[0][door].tolist() == [4, 4, 0]
    assert act(env, TOGGLE)[0][door].tolist() == [4, 4, 1]
    assert act(env, FORWARD)[0][0, 1, 2].tolist() == [10, 0, 0], "a closed door is in the way"
    assert act(env, RIGHT, DROP, LEFT, TOGGLE)[0][door].tolist() == [4, 4, 0], "unlocked, it needs no key"
    assert act(env, FORWARD)[0][door].tolist() == [10, 0, 0]
    assert act(env, DONE, FORWARD)[0][door].tolist() == [4, 4, 0]


def test_an_episode_is_truncated_at_its_limit() -> None:
    env = hand()
    *_, truncated, _ = act(env, *[DONE] * 249)
    assert not truncated.any()
    _, rewards, terminated, truncated, _ = act(env, DONE)
    assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == ([0.0], [False], [True])


def test_the_goal_in_the_last_step_terminates_and_truncates() -> None:
    env = hand()
    act(env, *[DONE] * 242)
    _, rewards, terminated, truncated, _ = act(env, *SOLUTION)
    assert rewards.tolist() == [1 - 0.9 * (250 / 250)]
    assert (terminated.tolist(), truncated.tolist()) == ([True], [True])


def test_door_distance() -> None:
    env = hand()
    assert env.reset(options={"layouts": HAND})[1]["door_distance"].tolist() == [2]
    assert act(env, FORWARD)[-1]["door_distance"].tolist() == [1]
    assert act(env, PICKUP, LEFT, TOGGLE, FORWARD)[-1]["door_distance"].tolist() == [0]
    assert act(env, FORWARD)[-1]["door_distance"].tolist() == [1]


def test_same_step_gives_the_last_observation_and_begins_anew() -> None:
    env = hand(AutoresetMode.SAME_STEP)
    act(env, *SOLUTION[:-1])
    obs, _, terminated, _, infos = act(env, SOLUTION[-1])
    assert terminated.tolist() == [True]
    assert infos["final_obs"][0][3, 3].tolist() == [10, 0, 1]
    assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == [True]
    assert infos["final_info"]["door_distance"].tolist() == [2]
    assert obs[0, 3, 3].tolist() == [8, 1, 0]
    assert (obs[0, ..., 0] == 5).sum() == 1
    *_, infos = act(env, DONE)
    assert not {"final_obs", "final_info", "episode_return"} & set(infos)


def test_next_step_begins_anew_with_the_step_after() -> None:
    env = hand(AutoresetMode.NEXT_STEP)
    obs, _, terminated, _, infos = act(env, *SOLUTION)
    assert terminated.tolist() == [True]
    assert obs[0, 3, 3].tolist() == [10, 0, 1]
    assert "final_obs" not in infos
    first, rewards, terminated, truncated, infos = act(env, FORWARD)
    assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == ([0.0], [False], [False])
    assert "episode_return" not in infos
    assert np.array_equal(first, env.grids())
    assert env._lengths.tolist() == [0]


def test_disabled_waits_for_a_reset() -> None:
    env = hand()
    act(env, *SOLUTION)
    with pytest.raises(EnvError, match=r"got 1 that are over, and autoreset is disabled; call reset\(options"):
        act(env, DONE)
    env.reset(options={"reset_mask": np.array([True])})
    act(env, DONE)


Transition = tuple[bytes, float, bool, bool, bytes, int]


def transitions(mode: AutoresetMode, count: int) -> list[list[Transition]]:
    """What really happened in each of four environments under a mode, with half of the play solving the room."""
    env = DoorKeyVectorEnv(5, 4, seed=3, autoreset_mode=mode)
    rngs = [np.random.default_rng(lane) for lane in range(4)]
    found: list[list[Transition]] = [[] for _ in range(4)]
    obs, _ = env.reset()
    idle = np.zeros(4, dtype=bool)
    while min(map(len, found)) < count:
        actions = [DONE] * 4
        for lane in np.flatnonzero(~idle):
            solving = rngs[lane].random() < 0.5
            actions[lane] = Solver().act(obs[lane]) if solving else int(rngs[lane].integers(7))
        after, rewards, terminated, truncated, infos = env.step(np.array(actions))
        over = terminated | truncated
        for lane in np.flatnonzero(~idle):
            last = after[lane] if not over[lane] or mode is not AutoresetMode.SAME_STEP else infos["final_obs"][lane]
            distance = infos["final_info"] if over[lane] and mode is AutoresetMode.SAME_STEP else infos
            found[lane].append(
                (
                    obs[lane].tobytes(),
                    float(rewards[lane]),
                    bool(terminated[lane]),
                    bool(truncated[lane]),
                    last.tobytes(),
                    int(distance["door_distance"][lane]),
                )
            )
        idle = over if mode is AutoresetMode.NEXT_STEP else idle
        obs = after
        if mode is AutoresetMode.DISABLED and over.any():
            obs, _ = env.reset(options={"reset_mask": over})
    return [each[:count] for each in found]


def test_the_same_happens_in_every_mode() -> None:
    same, following, disabled = (transitions(mode, 400) for mode in (*_MODES,))
    assert same == following == disabled
    assert sum(terminated for lane in same for _, _, terminated, *_ in lane) > 20


_MODES = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_episode_statistics_agree_with_gymnasium(mode: AutoresetMode) -> None:
    env = RecordEpisodeStatistics(DoorKeyVectorEnv(5, 8, autoreset_mode=mode))
    obs, _ = env.reset()
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(400):
        solving = rng.random(8) < 0.3
        actions = np.where(solving, [Solver().act(each) if (each[..., 0] == 8).any() else 0 for each in obs], 6)
        obs, *_, infos = env.step(actions)
        if "episode" in infos:
            ends += 1
            assert np.array_equal(infos["episode"]["l"], infos["episode_length"])
            assert np.allclose(infos["episode"]["r"], infos["episode_return"])
            assert np.array_equal(infos["_episode"], infos["_episode_return"])
        else:
            assert "episode_return" not in infos
    assert ends > 20


def test_an_environment_does_not_depend_on_how_many_others_there_are() -> None:
    few, many = (DoorKeyVectorEnv(6, count, seed=5) for count in (2, 9))
    assert np.array_equal(few.reset()[0], many.reset()[0][:2])
    rng = np.random.default_rng(0)
    for _ in range(800):
        actions = rng.integers(0, 7, 9)
        assert np.array_equal(few.step(actions[:2])[0], many.step(actions)[0][:2])


def test_seeds() -> None:
    env = DoorKeyVectorEnv(8, 4, seed=1)
    first, second = env.reset()[0], env.reset()[0]
    assert not np.array_equal(first, second), "a reset without a seed goes on"
    assert np.array_equal(env.reset(seed=1)[0], first)
    assert np.array_equal(env.reset()[0], second)
    assert not np.array_equal(env.reset(seed=2)[0], first)
    mask = np.array([False, True, False, True])
    before = env.grids()
    after, _ = env.reset(seed=1, options={"reset_mask": mask})
    assert np.array_equal(after[mask], first[mask])
    assert np.array_equal(after[~mask], before[~mask])


def test_layouts_can_be_carried_over() -> None:
    one, other = DoorKeyVectorEnv(8, 5, seed=1), DoorKeyVectorEnv(8, 5, seed=2)
    obs, _ = one.reset()
    assert np.array_equal(other.reset(options={"layouts": one.layouts()})[0], obs)
    env = hand()
    act(env, FORWARD, PICKUP)
    with pytest.raises(EnvError, match="keys on the floor, got 1 rooms without"):
        env.layouts()


def test_returned_arrays_are_not_used_again() -> None:
    env = DoorKeyVectorEnv(5, 2)
    kept = [env.reset()[0]]
    copies = [kept[0].copy()]
    for action in (FORWARD, LEFT, RIGHT):
        obs, *rest, infos = env.step(np.full(2, action))
        kept += [obs, *rest, infos["door_distance"]]
        copies += [each.copy() for each in kept[len(copies) :]]
    for each in kept:
        each[...] = 0
    assert env.grids().any()
    assert len(copies) == len(kept)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(2, dtype=int), r"actions of shape \[3\], one for each environment, got \[2\]"),
        (np.zeros((3, 1), dtype=int), r"got \[3, 1\]"),
        (0, r"got \[\]"),
        (np.array([0, 7, 1]), "actions from 0 to 6, got 7"),
        (np.array([0, -1, 1]), "got -1"),
        (np.zeros(3), "integer actions, got float64"),
        (np.zeros(3, dtype=bool), "integer actions, got bool"),
    ],
)
def test_wrong_actions_are_refused(actions: Any, message: str) -> None:
    env = DoorKeyVectorEnv(5, 3)
    env.reset()
    with pytest.raises(EnvError, match=message):
        env.step(actions)


def test_actions_may_be_lists_and_small_integers() -> None:
    found = []
    for actions in ([0, 1, 2], np.array([0, 1, 2], dtype=np.uint8), np.array([0, 1, 2])):
        env = DoorKeyVectorEnv(5, 3)
        env.reset(seed=0)
        found.append(env.step(actions)[0].copy())
    assert np.array_equal(found[0], found[2])
    assert np.array_equal(found[1], found[2])


def test_steps_before_the_first_reset_are_refused() -> None:
    with pytest.raises(EnvError, match=r"call reset\(\) first"):
        DoorKeyVectorEnv(5, 3).step(np.zeros(3, dtype=int))
    with pytest.raises(EnvError, match="first reset of all environments"):
        DoorKeyVectorEnv(5, 2).reset(options={"reset_mask": np.array([True, False])})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": 1}, "reset options among reset_mask, layouts, got mask"),
        ({"reset_mask": [True, False]}, r"boolean array \[2\], got list"),
        ({"reset_mask": np.array([1, 0])}, r"boolean array \[2\], got int64 \[2\]"),
        ({"reset_mask": np.array([True])}, r"boolean array \[2\], got bool \[1\]"),
        ({"reset_mask": np.array([False, False])}, "at least one environment"),
        ({"layouts": 3}, "to be Layouts, got int"),
        ({"layouts": HAND}, r"integers \[2\]"),
    ],
)
def test_wrong_reset_options_are_refused(options: dict[str, Any], message: str) -> None:
    env = DoorKeyVectorEnv(5, 2)
    env.reset()
    with pytest.raises(EnvError, match=message):
        env.reset(options=options)


def test_a_room_needs_space_for_a_wall() -> None:
    with pytest.raises(EnvError, match="size of 5 or more, got 4"):
        DoorKeyVectorEnv(4)
    with pytest.raises(EnvError, match="seed to be an integer of 0 or more, got -1"):
        DoorKeyVectorEnv(5, seed=-1)


def test_other_sizes_work_too() -> None:
    env = DoorKeyVectorEnv(11, 2)
    obs, _ = env.reset()
    assert obs.shape == (2, 11, 11, 3)
    assert env.max_steps == 1210
    assert env.observation_space.contains(obs)
    assert repr(env) == "DoorKeyVectorEnv(MiniGrid-DoorKey-11x11-v0, num_envs=2)"
