"""The vector wrapper: rewards in the infos, true transitions, and the task's statistics as they were."""

from __future__ import annotations

import copy
import dataclasses
import io
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from headway.errors import EnvError, MethodError, StateError
from headway.integrations.gymnasium import IntrinsicRewardWrapper
from headway.rl.config import PPOConfig
from headway.rl.envs.make import make_env
from headway.rl.learning import advantages
from headway.rl.methods import make_reward
from headway.rl.ppo import PPO
from headway.rl.reward import IntrinsicReward
from headway.signals import NormAll
from tests.integrations.worlds import CHOICES, SMALL, Clock, Known, assert_within_episodes

MODES = list(AutoresetMode)
STEPS = 40


def clocks(mode: AutoresetMode = AutoresetMode.SAME_STEP, count: int = 3, kind: Any = SyncVectorEnv) -> Any:
    return kind([lambda name=name: Clock(name, length=3 + name) for name in range(count)], autoreset_mode=mode)


def own(**changes: Any) -> IntrinsicReward:
    """A reward as a user makes it."""
    reward = make_reward("icm+gmc", Clock().observation_space, CHOICES, dataclasses.replace(SMALL, **changes))
    assert reward is not None
    return reward


def play(env: Any, steps: int = STEPS, reset: bool = True, seed: int = 0) -> list[tuple[Any, ...]]:
    """Random steps: (obs acted on, rewards, terminated, truncated, infos) of each."""
    rng = np.random.default_rng(seed)
    obs = env.reset(seed=0)[0] if reset else None
    history = []
    for _ in range(steps):
        following, rewards, terminated, truncated, infos = env.step(rng.integers(0, 3, env.num_envs))
        history.append((obs, rewards, terminated, truncated, infos))
        obs = following
        ended = terminated | truncated
        if env.metadata["autoreset_mode"] == AutoresetMode.DISABLED and ended.any():
            obs, _ = env.reset(options={"reset_mask": ended})
    return history


def column(history: list[tuple[Any, ...]], key: str) -> np.ndarray:
    return np.stack([step[-1][key] for step in history])


# Rewards


@pytest.mark.parametrize("mode", MODES)
def test_the_rewards_are_those_of_the_true_transitions(mode: AutoresetMode) -> None:
    reward = Known()
    history = play(IntrinsicRewardWrapper(clocks(mode), reward, coefficient=0.5, normalise=False))
    raw, valid = column(history, "intrinsic_reward"), column(history, "_intrinsic_reward")
    for batch in reward.paid_for:
        assert_within_episodes(batch)
    obs = np.stack([step[0] for step in history])
    steps = obs[..., 2]
    theory = np.where(valid, 2 * steps + 0.5 * (steps + 1) + obs[..., 0], 0)
    assert np.array_equal(raw, theory)
    assert np.array_equal(column(history, "scaled_intrinsic_reward"), 0.5 * theory)
    assert np.array_equal(column(history, "_scaled_intrinsic_reward"), valid)
    assert valid.all() == (mode != AutoresetMode.NEXT_STEP)


def test_a_reset_of_some_leaves_an_end_elsewhere_as_it_is() -> None:
    reward = Known()
    env = IntrinsicRewardWrapper(clocks(AutoresetMode.NEXT_STEP), reward)
    env.reset(seed=0)
    ended = np.zeros(3, dtype=bool)
    while not ended.any():
        _, _, terminated, truncated, _ = env.step(np.zeros(3, int))
        ended = terminated | truncated
    assert ended.tolist() == [True, False, False]  # the shortest
    env.reset(options={"reset_mask": np.array([False, True, False])})
    *_, infos = env.step(np.zeros(3, int))
    assert infos["_intrinsic_reward"].tolist() == [False, True, True]  # the first one only began its next episode
    assert infos["intrinsic_reward"][0] == 0
    assert_within_episodes(reward.paid_for[-1])


@pytest.mark.parametrize("mode", MODES)
def test_added_they_change_advantages_by_their_discounted_sum(mode: AutoresetMode) -> None:
    plain = play(clocks(mode))
    paid = play(IntrinsicRewardWrapper(clocks(mode), Known(), coefficient=0.25, normalise=False, add=True))
    rewards = [np.stack([step[1] for step in history]) for history in (plain, paid)]
    own = column(paid, "scaled_intrinsic_reward")
    assert np.array_equal(rewards[1] - rewards[0], own)
    assert np.array_equal(column(paid, "task_reward"), rewards[0])
    terminated = np.stack([step[2] for step in paid])
    ended = terminated | np.stack([step[3] for step in paid])
    values = np.random.default_rng(1).normal(size=rewards[0].shape)
    before, after = (advantages(each, values, values[::-1], terminated, ended, 0.9, 0.8) for each in rewards)
    for t, n in np.ndindex(*own.shape):
        last = next((k for k in range(t, STEPS) if ended[k, n]), STEPS - 1)
        theory = sum(0.72 ** (k - t) * own[k, n] for k in range(t, last + 1))
        assert after[t, n] - before[t, n] == pytest.approx(theory, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("centre", [True, False])
def test_scaled_rewards_follow_the_statistics_of_the_last_update(centre: bool) -> None:
    class Still(Known):
        def update(self, batch: Any) -> dict[str, float]:
            return {}

    env = IntrinsicRewardWrapper(clocks(), Still(), coefficient=2.0, gamma=0.9, update_every=30, centre=centre)
    history = play(env)
    raw, scaled = column(history, "intrinsic_reward"), column(history, "scaled_intrinsic_reward")
    assert (scaled[:10] == 0).all()  # nothing to normalise with before the first update
    for last in (10, 20, 30):
        mean = raw[:last].mean(0) if centre else 0
        values, now = [], np.zeros(3)
        for start in range(0, last, 10):  # each update centres its own steps with the mean that it leaves
            for row in raw[start : start + 10]:
                now = row - raw[: start + 10].mean(0) if centre else 0.9 * now + row
                values.append(now)
        expected = 2 * (raw[last : last + 10] - mean) / np.std(values) * (0.1 if centre else 1)
        np.testing.assert_allclose(scaled[last : last + 10], expected, rtol=1e-6, atol=1e-12)


def test_rewards_are_computed_when_somebody_looks_and_all_that_wait_at_once() -> None:
    early, late = Known(), Known()
    eager = IntrinsicRewardWrapper(clocks(), early, update_every=60)
    infos = [step[-1] for step in play(IntrinsicRewardWrapper(clocks(), late, update_every=60))]
    assert [len(batch) for batch in late.paid_for] == [60, 60]  # one pass before each update
    rng = np.random.default_rng(0)
    eager.reset(seed=0)
    for info in infos:
        *_, now = eager.step(rng.integers(0, 3, 3))
        assert np.array_equal(now["scaled_intrinsic_reward"], info["scaled_intrinsic_reward"])
    assert [len(batch) for batch in early.paid_for] == [3] * 40


def test_what_is_computed_late_is_used_like_an_array() -> None:
    *_, infos = play(IntrinsicRewardWrapper(clocks(), Known(), normalise=False), 3)[-1]
    pending = infos["intrinsic_reward"]
    array = np.asarray(pending)
    for made in (1 + pending, pending + 1, pending[:], [*pending], pending.copy(), copy.deepcopy(pending)):
        assert np.array_equal(np.asarray(made) - array, np.full(3, made is not pending and np.sum(made) > array.sum()))
    assert (pending.shape, pending.dtype, len(pending), pending.sum()) == ((3,), np.float64, 3, array.sum())
    assert torch.equal(torch.as_tensor(pending), torch.from_numpy(array))
    assert repr(pending) == repr(array)


def test_a_step_is_worth_what_it_is_worth_in_a_batch() -> None:
    env = IntrinsicRewardWrapper(clocks(), "icm+gmc", config=SMALL, update_every=30, normalise=False)
    play(env, 31)  # the predictor has learned after each tenth step, and one more has come
    waiting = env._block.joined()
    together = env.reward.rewards(waiting)
    alone = torch.cat([env.reward.rewards(waiting[[n]]) for n in range(3)])
    assert together.min() > 0
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=0)


@pytest.mark.parametrize("count", [1, 3])
def test_a_reward_of_ones_own_pays_as_the_same_method_by_name(count: int) -> None:
    options: dict[str, Any] = {"update_every": 30, "normalise": False}
    given = IntrinsicRewardWrapper(clocks(count=count), own(floor=9e-6, floor_unit="sample"), **options)
    named = IntrinsicRewardWrapper(clocks(count=count), "icm+gmc", config=SMALL, **options)
    one, other = (column(play(env, 90), "intrinsic_reward") for env in (given, named))
    assert one.max() > 0
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_reward_of_ones_own_whose_floor_depends_on_the_batch_is_refused() -> None:
    message = r"'icm\+gmc' in the unit 'batch'.*update_every=30 is IntrinsicConfig\(floor=9e-06, floor_unit='sample'\)"
    with pytest.raises(MethodError, match=message):
        IntrinsicRewardWrapper(clocks(), own(), update_every=30)
    norms = IntrinsicReward(Known().predictor, NormAll(unit="batch"))
    with pytest.raises(MethodError, match=r"'forward\+norm_all' in the unit 'batch'.*give its signal unit='sample'"):
        IntrinsicRewardWrapper(clocks(), norms)


def test_the_predictor_learns_from_every_transition_once() -> None:
    class Counting(Known):
        def update(self, batch: Any) -> dict[str, float]:
            self.shown.append(batch)
            return {"predictor_loss": 1.0}

    reward = Counting()
    env = IntrinsicRewardWrapper(clocks(AutoresetMode.NEXT_STEP), reward, update_every=20)
    valid = column(play(env, 60), "_intrinsic_reward")
    learned = torch.cat([batch.obs for batch in reward.shown])
    assert [len(batch) >= 20 for batch in reward.shown] == [True] * len(reward.shown)
    assert len(torch.unique(learned, dim=0)) == len(learned)
    assert valid.sum() - 20 < len(learned) <= valid.sum()
    assert env.metrics == {"predictor_loss": 1.0}


def test_processes_of_their_own_work() -> None:
    env = IntrinsicRewardWrapper(clocks(count=2, kind=AsyncVectorEnv), "icm", config=SMALL)
    assert (column(play(env, 8), "intrinsic_reward") > 0).all()
    env.close()


# The task


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("inside", [True, False])
def test_the_tasks_episode_statistics_are_untouched(mode: AutoresetMode, inside: bool) -> None:
    def statistics(env: Any) -> list[Any]:
        found = []
        for step in play(env):
            infos = step[-1]
            if "episode" in infos:
                mask = infos["_episode"]
                found.append((infos["episode"]["r"][mask].tolist(), infos["episode"]["l"][mask].tolist()))
        return found

    plain = statistics(RecordEpisodeStatistics(clocks(mode)))
    if inside:
        paid = statistics(IntrinsicRewardWrapper(RecordEpisodeStatistics(clocks(mode)), Known(), add=True))
    else:
        paid = statistics(RecordEpisodeStatistics(IntrinsicRewardWrapper(clocks(mode), Known())))
    assert len(plain) > 10
    assert plain == paid


@pytest.mark.parametrize("mode", MODES)
def test_all_but_the_infos_is_as_without_the_wrapper(mode: AutoresetMode) -> None:
    plain, paid = play(clocks(mode)), play(IntrinsicRewardWrapper(clocks(mode), Known()))
    for before, after in zip(plain, paid, strict=True):
        for one, other in zip(before[:-1], after[:-1], strict=True):
            assert np.array_equal(one, other)
        assert set(before[-1]) == {key for key in after[-1] if "intrinsic" not in key}


# State


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_saved_and_resumed_equals_uninterrupted(mode: AutoresetMode) -> None:
    def wrapped(env: Any, seed: int) -> IntrinsicRewardWrapper:
        return IntrinsicRewardWrapper(env, "icm+gmc", config=SMALL, update_every=32, seed=seed)

    whole = wrapped(clocks(mode), 0)
    play(whole, 50)
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    resumed = wrapped(copy.deepcopy(whole.env), 9)
    file.seek(0)
    resumed.load_state_dict(torch.load(file))
    for key in ("intrinsic_reward", "scaled_intrinsic_reward"):
        one, other = (column(play(env, 60, reset=False, seed=1), key) for env in (whole, resumed))
        assert np.array_equal(one, other)
        assert (one != 0).any()


def test_the_state_of_other_environments_is_refused() -> None:
    state = IntrinsicRewardWrapper(clocks(), "icm", config=SMALL).state_dict()
    with pytest.raises(StateError, match="expected the state of 2 environments, got that of 3"):
        IntrinsicRewardWrapper(clocks(count=2), "icm", config=SMALL).load_state_dict(state)


def agent(env: Any, seed: int = 0) -> PPO:
    wrapped = IntrinsicRewardWrapper(env, "icm+gmc", config=SMALL, add=True, update_every=32, coefficient=5.0)
    return PPO(wrapped, PPOConfig(rollout_steps=16, epochs=1, channels=(4,), hidden=(8,)), seed=seed)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_an_agent_over_the_wrapper_resumes_with_its_environment(mode: str) -> None:
    def doorkey() -> Any:
        return make_env("MiniGrid-DoorKey-5x5-v0", num_envs=4, autoreset_mode=mode, noise="door")

    whole, resumed = agent(doorkey()), agent(doorkey(), seed=5)
    for _ in range(3):
        whole.iterate()
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file))
    for _ in range(3):
        one, other = whole.iterate(), resumed.iterate()
        assert one is not None
        assert other is not None
        np.testing.assert_equal(one, other)


def test_an_agent_whose_environment_has_no_state_cannot_be_saved() -> None:
    for env in (clocks(), RecordEpisodeStatistics(clocks()), IntrinsicRewardWrapper(clocks(), Known())):
        with pytest.raises(StateError, match=r"expected an environment with state_dict\(\)"):
            agent(env).state_dict()


def test_a_state_without_the_environment_is_refused_where_there_is_one() -> None:
    doorkey = make_env("MiniGrid-DoorKey-5x5-v0", num_envs=3)
    with_one, without = IntrinsicRewardWrapper(doorkey, "icm"), IntrinsicRewardWrapper(clocks(), "icm")
    with pytest.raises(StateError, match="expected a state with that of the environment, got one without it"):
        with_one.load_state_dict(without.state_dict())
    with pytest.raises(StateError, match="expected a state without that of the environment, got one with it"):
        without.load_state_dict(with_one.state_dict())


# Misuse


def test_a_single_environment_is_refused() -> None:
    with pytest.raises(EnvError, match="expected a vector environment"):
        IntrinsicRewardWrapper(Clock())


class Parts(Clock):
    """A clock that shows a dictionary."""

    def __init__(self, name: int, length: int) -> None:
        super().__init__(name, length=length)
        whole = self.observation_space
        self.observation_space = spaces.Dict(
            {"b": spaces.Box(-1e3, 1e3, (1,), np.float32), "a": spaces.Box(-1e3, 1e3, (2,), np.float32)}
        )
        assert whole.shape == (3,)

    def look(self) -> Any:
        seen = super().look()
        return {"b": seen[2:], "a": seen[:2]}


@pytest.mark.parametrize("mode", MODES)
def test_observations_of_several_parts_are_paid_as_their_row_is(mode: AutoresetMode) -> None:
    parts = SyncVectorEnv([lambda name=name: Parts(name, 3 + name) for name in range(3)], autoreset_mode=mode)
    one, other = (
        column(play(IntrinsicRewardWrapper(env, Known(), normalise=False)), "intrinsic_reward")
        for env in (parts, clocks(mode))
    )
    assert np.array_equal(one, other)
    env = IntrinsicRewardWrapper(parts, "icm+gmc", update_every=30)
    assert np.asarray(play(env, 40)[-1][-1]["intrinsic_reward"]).min() > 0


def test_observations_that_are_no_arrays_are_refused() -> None:
    class Words(Clock):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Text(3)

    with pytest.raises(EnvError, match=r"got Text.*FlattenObservation"):
        IntrinsicRewardWrapper(SyncVectorEnv([Words], autoreset_mode=AutoresetMode.SAME_STEP))


def test_images_that_look_like_channels_first_need_a_config() -> None:
    class Frames(Clock):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Box(0, 255, (4, 30, 30), np.uint8)

    with pytest.raises(EnvError, match=r"shape \[4, 30, 30\].*use IntrinsicConfig\(channels_first=True\)"):
        IntrinsicRewardWrapper(SyncVectorEnv([Frames]))
    IntrinsicRewardWrapper(SyncVectorEnv([Frames]), config=dataclasses.replace(SMALL, channels_first=True))


def test_a_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(StateError, match="call reset"):
        IntrinsicRewardWrapper(clocks(), Known()).step(np.zeros(3, int))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "ppo"}, "expected a method with an intrinsic reward"),
        ({"update_every": 0}, "update_every: expected at least 1"),
        ({"coefficient": float("inf")}, "coefficient: expected a finite number"),
        ({"coefficient": "0.1"}, "coefficient: expected a finite number, got '0.1'"),
    ],
)
def test_settings_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MethodError, match=message):
        IntrinsicRewardWrapper(clocks(), **options)


def test_registered_environments_work() -> None:
    env = IntrinsicRewardWrapper(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"), "rnd", config=SMALL)
    env.reset(seed=0)
    *_, infos = env.step(env.action_space.sample())
    assert infos["intrinsic_reward"].shape == (2,)
    assert infos["intrinsic_reward"].dtype == np.float64
