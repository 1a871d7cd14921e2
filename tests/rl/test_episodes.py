"""Transitions across the ends of episodes, under all three autoreset modes of Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from headway.errors import EnvError, StateError
from headway.rl.episodes import Episodes, Step, Transitions, autoreset_mode, with_last_observations

MODES = list(AutoresetMode)


class Clock(gymnasium.Env):
    """Shows [number, episode, time, action before]; ends after `length` steps, in turn for good and by being cut."""

    observation_space = spaces.Box(-1, 1000, (4,), np.float32)
    action_space = spaces.Discrete(100)

    def __init__(self, number: int, length: int) -> None:
        self.number, self.length, self.episode = number, length, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.observe(-1), {"clock": 0}

    def observe(self, action: int) -> np.ndarray:
        return np.array([self.number, self.episode, self.time, action], dtype=np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.time < self.length, "stepped after its end"
        self.time += 1
        over = self.time == self.length
        for_good = over and self.episode % 2 == 0
        return self.observe(int(action)), float(self.time), for_good, over and not for_good, {"clock": self.time}


LENGTHS = (3, 1, 4)


def clocks(mode: AutoresetMode, kind: Any = SyncVectorEnv, **options: Any) -> Any:
    makers = [lambda n=n, length=length: Clock(n, length) for n, length in enumerate(LENGTHS)]
    return kind(makers, autoreset_mode=mode, **options)


def play(env: Any, steps: int) -> list[Step]:
    episodes = Episodes(env)
    obs = episodes.reset(seed=0)
    history = []
    for time in range(steps):
        actions = 10 * np.arange(3) + time
        history.append(episodes.step(actions))
        assert history[-1].obs is obs
        obs = episodes.obs
    return history


def valid_transitions(history: list[Step], number: int) -> list[tuple[Any, ...]]:
    """(obs, action, reward, next_obs, terminated, truncated, clock) of one environment."""
    return [
        (
            step.obs[number].tolist(),
            int(step.actions[number]),
            float(step.rewards[number]),
            step.next_obs[number].tolist(),
            bool(step.terminated[number]),
            bool(step.truncated[number]),
            int(step.info("clock")[number]),
        )
        for step in history
        if step.valid[number]
    ]


def truth(number: int, actions: list[int]) -> list[tuple[Any, ...]]:
    """What happens in one environment, by a plain loop."""
    env, rows = Clock(number, LENGTHS[number]), []
    obs, _ = env.reset()
    for action in actions:
        following, reward, terminated, truncated, info = env.step(action)
        rows.append((obs.tolist(), action, reward, following.tolist(), terminated, truncated, info["clock"]))
        obs = env.reset()[0] if terminated or truncated else following
    return rows


@pytest.mark.parametrize("options", [{}, {"copy": False}], ids=["copies", "one buffer"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_transitions_are_those_of_a_plain_loop(mode: AutoresetMode, options: dict[str, Any]) -> None:
    history = play(clocks(mode, **options), 12)
    for number in range(3):
        found = valid_transitions(history, number)
        assert found == truth(number, [row[1] for row in found])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_which_steps_are_transitions(mode: AutoresetMode) -> None:
    valid = np.stack([step.valid for step in play(clocks(mode), 12)])
    if mode is AutoresetMode.NEXT_STEP:  # after n steps, one that only begins the next episode
        for number, length in enumerate(LENGTHS):
            assert valid[:, number].tolist() == [time % (length + 1) != length for time in range(12)]
    else:
        assert valid.all()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_processes_give_the_same(mode: AutoresetMode) -> None:
    env = clocks(mode, AsyncVectorEnv, shared_memory=True)
    try:
        history = play(env, 8)
    finally:
        env.close()
    for number in range(3):
        found = valid_transitions(history, number)
        assert found == truth(number, [row[1] for row in found])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_both_ends_are_told_apart(mode: AutoresetMode) -> None:
    ends = [
        (bool(step.terminated[1]), bool(step.truncated[1]), bool(step.ended[1]))
        for step in play(clocks(mode), 8)
        if step.valid[1]
    ]
    expected = [(True, False, True), (False, True, True)] * 4
    assert ends == expected[: len(ends)]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_state_resumes(mode: AutoresetMode) -> None:
    env = clocks(mode)
    episodes = Episodes(env)
    episodes.reset(seed=0)
    for time in range(3):
        episodes.step(np.full(3, time))
    again = Episodes(env)  # the same environment, which is where it was
    again.load_state_dict(episodes.state_dict())
    step = again.step(np.full(3, 9))
    expected = mode is not AutoresetMode.NEXT_STEP
    assert step.valid.tolist() == [expected, expected, True]
    assert np.array_equal(step.obs, episodes.obs)


def test_a_state_of_other_environments() -> None:
    episodes = Episodes(clocks(AutoresetMode.NEXT_STEP))
    with pytest.raises(StateError, match=r"got \[2, 4\]"):
        episodes.load_state_dict({"obs": np.zeros((2, 4)), "over": np.zeros(2, dtype=bool)})


def test_reset_comes_first() -> None:
    with pytest.raises(StateError, match=r"call reset\(\) first"):
        Episodes(clocks(AutoresetMode.NEXT_STEP)).step(np.zeros(3, dtype=int))


def test_an_environment_has_to_say_how_it_begins_anew() -> None:
    env = clocks(AutoresetMode.NEXT_STEP)
    env.metadata = {}
    with pytest.raises(EnvError, match="got None"):
        autoreset_mode(env)
    with pytest.raises(EnvError, match="got Clock"):
        Episodes(Clock(0, 3))


def test_observations_that_are_no_arrays_are_refused() -> None:
    class Words(Clock):
        observation_space = spaces.Text(3)

    with pytest.raises(EnvError, match=r"got Text.*FlattenObservation"):
        Episodes(SyncVectorEnv([lambda: Words(0, 3)]))


def test_a_last_observation_that_is_missing() -> None:
    obs, ended = np.zeros((2, 3)), np.array([False, True])
    with pytest.raises(EnvError, match="SAME_STEP"):
        with_last_observations(obs, ended, {})
    with pytest.raises(EnvError, match="environment 1"):
        with_last_observations(obs, ended, {"final_obs": np.array([None, None], dtype=object)})
    whole = with_last_observations(obs, ended, {"final_obs": np.ones((2, 3))})  # as one array
    assert whole.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert not obs.any()


def test_an_info_that_nobody_gives() -> None:
    step = play(clocks(AutoresetMode.SAME_STEP), 1)[0]
    assert step.info("noise").tolist() == [0, 0, 0]


def test_the_transitions_of_a_rollout_are_in_the_order_of_time() -> None:
    obs = np.arange(6.0).reshape(3, 2, 1)
    valid = np.array([[True, False], [True, True], [False, True]])
    ended = np.array([[True, False], [False, True], [False, False]])
    parts = {"obs": obs, "actions": np.zeros((3, 2)), "next_obs": obs + 1}
    batch = Transitions.of_rollout(valid, **parts, ended=ended)
    assert batch.obs.flatten().tolist() == [0.0, 2.0, 3.0, 5.0]
    assert (batch.envs.tolist(), batch.ended.tolist()) == ([0, 0, 1, 1], [True, False, True, False])
    every = Transitions.of_rollout(**parts)
    assert (len(every), every.envs) == (6, None)
