"""Levels of Gymnasium vector environments: the level that was chosen is played, and its steps are scored."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

pytest.importorskip("minigrid")

from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

from headway.errors import EnvError, MethodError, SelectionError, StateError
from headway.integrations.gymnasium import IntrinsicRewardWrapper
from headway.integrations.gymnasium_levels import LevelWrapper
from headway.rl import PPO, Episodes, PPOConfig, make_env, make_reward
from headway.selection import PLR, TSCL, LevelSampler
from tests.integrations.worlds import Clock, Known, assert_within_episodes

DISABLED = AutoresetMode.DISABLED
SMALL = PPOConfig(rollout_steps=8, minibatch_size=16, epochs=1, hidden=(8,), channels=(4, 4))


def farama(env_id: str = "MiniGrid-DoorKey-5x5-v0") -> Any:
    return ImgObsWrapper(FullyObsWrapper(gymnasium.make(env_id, max_steps=6)))


def made(kind: str) -> Any:
    if kind == "sync":
        return SyncVectorEnv([farama] * 4, autoreset_mode=DISABLED)
    if kind == "async":
        return AsyncVectorEnv([farama] * 4, autoreset_mode=DISABLED)
    return make_env("MiniGrid-DoorKey-5x5-v0", 4, backend=kind, autoreset_mode="disabled")


def first_grids(kind: str, count: int) -> list[np.ndarray]:
    """What each level begins with, from environments that know of no sampler."""
    if kind == "vector":
        env = make_env("MiniGrid-DoorKey-5x5-v0", count, autoreset_mode="disabled")
        return list(env.reset(seed=list(range(count)))[0])
    env = farama()
    return [env.reset(seed=seed)[0] for seed in range(count)]


# The level that was chosen


@pytest.mark.parametrize("kind", ["sync", "async", "minigrid", "vector"])
def test_an_episode_plays_the_level_that_was_chosen(kind: str) -> None:
    levels = first_grids(kind, 5)
    env = LevelWrapper(made(kind), LevelSampler(5, seed=2))
    obs, infos = env.reset(seed=7)
    ends = 0
    begun = np.ones(4, bool)
    for step in range(40 if kind in ("sync", "async") else 260):
        for row in np.flatnonzero(begun):
            assert np.array_equal(obs[row], levels[infos["level"][row]])
        obs, _, terminated, truncated, infos = env.step(np.full(4, step % 3))
        begun = terminated | truncated
        ends += int(begun.sum())
    env.close()
    assert ends >= 4


def test_levels_of_the_same_seed_are_the_same_in_every_environment() -> None:
    for backend in ("vector", "minigrid"):
        env = make_env("MiniGrid-DoorKey-6x6-v0", 3, backend=backend, noise="door")
        grids = env.reset(seed=[5, 9, 5])[0][..., :3]
        assert np.array_equal(grids[0], grids[2])
        assert not np.array_equal(grids[0], grids[1])
        again = env.reset(seed=[9, None, None], options={"reset_mask": np.array([True, False, False])})[0]
        assert np.array_equal(again[0, ..., :3], grids[1])


class Task(gymnasium.Env[Any, Any]):
    """One step long; shows its level, and pays for it."""

    observation_space = spaces.Box(0, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.task = (options or {}).get("task", 0)
        return np.eye(3, dtype=np.float32)[self.task], {"task": self.task}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Task 0 pays always, task 1 for one action, task 2 by chance."""
        pay = (1.0, float(action), 2.0 * float(self.np_random.integers(2)))[self.task]
        return np.eye(3, dtype=np.float32)[self.task], pay, True, False, {"pay": pay}


TASKS = {"given": {"task": 0}, "learnable": {"task": 1}, "chance": {"task": 2}}


def tasks(sampler: LevelSampler, count: int = 4, **options: Any) -> LevelWrapper:
    return LevelWrapper(SyncVectorEnv([Task] * count, autoreset_mode=DISABLED), sampler, **options)


def test_tasks_are_options() -> None:
    env = tasks(LevelSampler(TASKS, seed=1))
    obs, infos = env.reset(seed=3)
    seen = set()
    for _ in range(20):
        assert np.array_equal(obs.argmax(1), infos["level"])
        assert np.array_equal(infos["task"], infos["level"])
        seen |= set(infos["level"].tolist())
        before = infos["level"]
        obs, rewards, _, _, infos = env.step(np.ones(4, int))
        assert np.array_equal(infos["final_info"]["level"], before)
        assert np.array_equal(infos["final_info"]["pay"], rewards)
        assert np.array_equal(np.stack(infos["final_obs"]).argmax(1), before)
    assert seen == {0, 1, 2}


def test_transitions_are_true_at_the_ends_of_episodes() -> None:
    clocks = SyncVectorEnv([lambda name=name: Clock(name) for name in range(3)], autoreset_mode=DISABLED)
    known = Known()
    env = IntrinsicRewardWrapper(LevelWrapper(clocks, LevelSampler(4)), known, update_every=30, normalise=False)
    episodes = Episodes(env)
    episodes.reset()
    for _ in range(20):
        step = episodes.step(np.zeros(3, int))
        assert step.valid.all()
        assert np.array_equal(step.next_obs[:, 2], step.obs[:, 2] + 1)
        np.testing.assert_allclose(step.infos["intrinsic_reward"], known.of(step.obs, step.next_obs))
    assert len(known.paid_for) > 1
    for batch in known.paid_for:
        assert_within_episodes(batch)


# Scores


def test_the_steps_of_a_level_are_its_score() -> None:
    sampler = LevelSampler(TASKS, PLR(1.0, "proportional"), seed=1)
    env = tasks(sampler)
    _, infos = env.reset()
    env.step(np.zeros(4, int))  # not scored
    levels, scores = [], np.random.default_rng(0).random((5, 4))
    infos = {"level": env._level.copy()}
    for _ in range(5):
        levels.append(infos["level"])
        *_, infos = env.step(np.zeros(4, int))
    env.update(torch.from_numpy(scores))
    played = np.stack(levels)
    for number, name in enumerate(TASKS):
        own = scores[played == number]
        assert sampler.mixture.scores[name] == (pytest.approx(own.mean()) if len(own) else None)
    with pytest.raises(SelectionError, match=r"expected scores \[T, 4\] of up to 0 steps since the last update, got"):
        env.update(scores)


def test_returns_are_learning_progress() -> None:
    sampler = LevelSampler(TASKS, TSCL(window=4), seed=1)
    env = tasks(sampler, score="return")
    env.reset()
    for _ in range(30):
        env.step(np.ones(4, int))
    assert sampler.mixture.scores["given"] == sampler.mixture.scores["learnable"] == 1
    assert sampler.mixture.shares.argmax() == 2  # the others' returns have no slope
    with pytest.raises(SelectionError, match="the wrapper scores levels by 'return'"):
        env.update(np.zeros((1, 4)))


@pytest.mark.slow
def test_levels_that_ppo_has_learned_lose_share() -> None:
    """Two levels are learned in a few rollouts; in the third advantages stay, as it pays by chance."""
    torch.set_num_threads(1)
    sampler = LevelSampler(TASKS, PLR(1.0, "proportional"), staleness=0.1, smoothing=0.5)
    env = tasks(sampler, 8)
    rates = {"policy_learning_rate": 1e-2, "value_learning_rate": 1e-2}
    config = PPOConfig(rollout_steps=16, minibatch_size=32, hidden=(16,), entropy_weight=0.0, **rates)
    ppo = PPO(env, config, on_rollout=lambda advantages, bonus: env.update(abs(advantages)))
    shares = []
    for _ in range(60):
        ppo.iterate()
        shares.append(sampler.probabilities())
    early, late = torch.stack(shares[:3]).mean(0), torch.stack(shares[-10:]).mean(0)
    assert (late[:2] < 0.5 * early[:2]).all(), (early, late)
    assert late[2] > 0.7


def test_a_world_models_bonus_reaches_the_levels() -> None:
    sampler = LevelSampler(50)
    env = LevelWrapper(make_env("MiniGrid-DoorKey-5x5-v0", 4, autoreset_mode="disabled"), sampler)
    reward = make_reward("forward+gmc", env.single_observation_space, env.single_action_space)
    told: list[tuple[np.ndarray, np.ndarray]] = []

    def on_rollout(advantages: np.ndarray, bonus: np.ndarray) -> None:
        told.append((env._level.copy(), bonus))
        env.update(bonus)

    ppo = PPO(env, SMALL, reward, on_rollout=on_rollout)
    for _ in range(3):
        ppo.iterate()
    level, bonus = told[-1]
    assert (bonus > 0).all()  # raw, not centred
    for number in set(level.tolist()):  # no episode ended
        expected = bonus[:, level == number].mean()
        assert sampler.mixture.scores[str(number)] == pytest.approx(expected)


# State


@pytest.mark.parametrize("backend", ["vector", "minigrid"])
def test_saved_and_resumed_equals_uninterrupted(backend: str) -> None:
    torch.set_num_threads(1)

    def start(seed: int) -> PPO:
        inner = make_env("MiniGrid-Empty-5x5-v0", 3, backend="minigrid", autoreset_mode="disabled")
        if backend == "vector":
            inner = make_env("MiniGrid-DoorKey-5x5-v0", 3, autoreset_mode="disabled")
        env = LevelWrapper(inner, LevelSampler(20))
        return PPO(env, SMALL, seed=seed, on_rollout=lambda advantages, _: env.update(abs(advantages)))

    one, other = start(0), start(5)
    for _ in range(12):
        one.iterate()
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for _ in range(20):
        first, second = one.iterate(), other.iterate()
        assert first is not None
        np.testing.assert_equal(first, second)
        assert torch.equal(one.env.sampler.probabilities(), other.env.sampler.probabilities())
    assert one.env.sampler._drawn > 3  # episodes ended


def test_a_state_in_the_midst_of_a_rollout_knows_what_was_played() -> None:
    one, other = (tasks(LevelSampler(TASKS, seed=1)) for _ in range(2))
    one.reset(), other.reset()
    for _ in range(3):
        one.step(np.zeros(4, int))
    state = one.state_dict()
    assert state["env"] is None
    assert not one.carries_environment
    other.load_state_dict(state)
    for each in (one, other):
        each.update(np.arange(12.0).reshape(3, 4))
    assert torch.equal(one.sampler.probabilities(), other.sampler.probabilities())
    with pytest.raises(StateError, match="expected the state of 2 environments, got that of 4"):
        tasks(LevelSampler(TASKS, seed=1), 2).load_state_dict(state)


# Misuse


def test_misuse_is_told() -> None:
    with pytest.raises(EnvError, match="got NEXT_STEP"):
        LevelWrapper(SyncVectorEnv([Task]), LevelSampler(3))
    with pytest.raises(MethodError, match="got 'regret'"):
        tasks(LevelSampler(TASKS), score="regret")
    env = tasks(LevelSampler(TASKS))
    env.reset()
    env.step(np.zeros(4, int))
    with pytest.raises(SelectionError, match=r"got \[1, 3\]"):
        env.update(np.zeros((1, 3)))
