"""Stable-Baselines3, off-policy: the reward reaches the targets, and the replay buffer keeps the task's rewards."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.dqn import dqn as dqn_module

from headway.errors import EnvError, MethodError
from headway.integrations.sb3 import OffPolicyIntrinsicCallback
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.methods import make_reward
from tests.integrations.sb3_worlds import clocks
from tests.integrations.worlds import CHOICES, FORCES, SMALL, Clock, Known, assert_within_episodes


def agent(kind: Any = DQN, env: Any = None, **options: Any) -> Any:
    actions = FORCES if kind is not DQN else spaces.Discrete(3)
    settings: dict[str, Any] = {"buffer_size": 200, "learning_starts": 8, "batch_size": 8, "gamma": 0.9, "seed": 3}
    settings |= {"train_freq": 4, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}
    if kind is DQN:
        settings["target_update_interval"] = 20
    return kind("MlpPolicy", clocks(actions=actions) if env is None else env, **{**settings, **options})


class Pictures(gymnasium.Env[Any, Any]):
    """Shows pictures of nothing."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Box) -> None:
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(self.observation_space.shape, np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(self.observation_space.shape, np.uint8), 0.0, False, False, {}


def same(one: Any, other: Any) -> bool:
    pairs = zip(one.policy.state_dict().values(), other.policy.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


class Targets:
    """Records what DQN trains towards, and with which samples."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.targets: list[torch.Tensor] = []
        self.samples: list[Any] = []
        self.bootstraps: list[torch.Tensor] = []
        self._loss = dqn_module.F.smooth_l1_loss
        self._sample = ReplayBuffer.sample
        patch.setattr(dqn_module.F, "smooth_l1_loss", self.loss)
        patch.setattr(ReplayBuffer, "sample", lambda *args, **options: self.sample(*args, **options))

    def loss(self, values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.targets.append(targets.clone())
        with torch.no_grad():
            best = self.model.q_net_target(self.samples[-1].next_observations).max(1, keepdim=True).values
        self.bootstraps.append(best)
        return self._loss(values, targets)

    def sample(self, *args: Any, **options: Any) -> Any:
        self.samples.append(self._sample(*args, **options))
        return self.samples[-1]


# The reward arrives


def test_a_known_reward_changes_the_targets_by_its_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, reward, model = Targets(monkeypatch), Known(), agent()
    seen.model = model
    model.learn(80, callback=OffPolicyIntrinsicCallback(reward, coefficient=0.25, normalise=False))
    assert len(seen.targets) >= 9
    for target, samples, best in zip(seen.targets, seen.samples, seen.bootstraps, strict=True):
        plain = samples.rewards + (1 - samples.dones) * 0.9 * best
        own = 0.25 * reward.of(samples.observations, samples.next_observations).reshape(-1, 1)
        torch.testing.assert_close(target - plain, own, rtol=1e-5, atol=1e-5)
        assert (samples.rewards == 1).all()  # what the buffer holds is the task's


def test_truncated_episodes_are_still_bootstrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, model = Targets(monkeypatch), agent()
    seen.model = model
    model.learn(80, callback=OffPolicyIntrinsicCallback(Known(), coefficient=0.0))
    dones = torch.cat([samples.dones.flatten() for samples in seen.samples])
    lasts = torch.cat([samples.next_observations for samples in seen.samples])
    cut = (lasts[:, 1] % 3 == 0) & (lasts[:, 2] == 3)
    assert cut.any()
    assert not dones[cut].any()


@pytest.mark.parametrize("kind", [SAC, TD3])
def test_continuous_control_is_paid_too(kind: Any) -> None:
    reward = Known(FORCES)
    plain = agent(kind).learn(60)
    paid = agent(kind).learn(60, callback=OffPolicyIntrinsicCallback(reward, coefficient=1.0))
    assert reward.paid_for
    assert not same(plain, paid)


def test_samples_are_paid_by_the_predictor_as_it_is_then() -> None:
    model = agent()
    callback = OffPolicyIntrinsicCallback("forward", config=SMALL, normalise=False, coefficient=1.0, update_every=16)
    model.learn(40, callback=callback)
    batch = Transitions(torch.ones(4, 3), torch.zeros(4, dtype=torch.long), torch.ones(4, 3))
    before = callback.reward.rewards(batch)
    model.learn(200, callback=callback, reset_num_timesteps=False)
    assert (callback.reward.rewards(batch) != before).all()


# Goals and hindsight


def flipping(**options: Any) -> Any:
    """DQN that relabels goals."""
    env = BitFlippingEnv(n_bits=5, continuous=False, max_steps=5)
    own = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
    settings = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": own, "learning_starts": 20, "seed": 3}
    return DQN(
        "MultiInputPolicy", env, device="cpu", batch_size=32, policy_kwargs={"net_arch": [8]}, **settings, **options
    )


def test_hindsight_relabels_goals_and_the_bonus_sees_the_observation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The predictor never learns here, so that what a sample was worth can be computed afterwards."""
    seen: list[tuple[Any, Any]] = []
    sample = OffPolicyIntrinsicCallback._reward

    def watched(self: Any, plain: Any, *args: Any, **options: Any) -> Any:
        def kept(*own: Any, **more: Any) -> Any:
            seen.append((plain(*own, **more), None))
            return seen[-1][0]

        paid = sample(self, kept, *args, **options)
        seen[-1] = (seen[-1][0], paid)
        return paid

    monkeypatch.setattr(OffPolicyIntrinsicCallback, "_reward", watched)
    callback = OffPolicyIntrinsicCallback(
        "forward", config=SMALL, coefficient=0.5, normalise=False, update_every=10_000
    )
    flipping().learn(120, callback=callback)
    assert len(seen) > 10
    relabelled = 0
    for plain, paid in seen:
        now, after = plain.observations["observation"], plain.next_observations["observation"]
        own = callback.reward.rewards(Transitions(now, plain.actions.flatten(), after))
        torch.testing.assert_close(paid.rewards - plain.rewards, 0.5 * own.view(-1, 1), rtol=1e-5, atol=1e-6)
        relabelled += int((plain.rewards == 0).sum())  # goals that were reached: hindsight's, in the main
        assert paid.observations is plain.observations
    assert relabelled > 20


@pytest.mark.parametrize("method", ["rnd", "icm+gmc", "counts", "disagreement"])
def test_the_predictor_learns_beside_hindsight_and_resumes(method: str, tmp_path: Path) -> None:
    model = flipping()
    callback = OffPolicyIntrinsicCallback(method, config=SMALL, update_every=16)
    model.learn(80, callback=callback)
    batch = Transitions(torch.zeros(4, 5), torch.zeros(4, dtype=torch.long), torch.ones(4, 5))
    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=model.get_env())
    again = OffPolicyIntrinsicCallback.carried_by(loaded)
    loaded.learn(0, callback=again)
    assert torch.equal(again.reward.rewards(batch), callback.reward.rewards(batch))


def test_the_part_that_the_bonus_sees_is_named_or_asked_for() -> None:
    for key in ("speed", ""):
        with pytest.raises(EnvError, match=rf"key: expected one of .*observation.*got '{key}'"):
            flipping().learn(8, callback=OffPolicyIntrinsicCallback("rnd", key=key))
    with pytest.raises(EnvError, match=r"key: .*got 'observation'"):
        agent().learn(8, callback=OffPolicyIntrinsicCallback("rnd", key="observation"))
    callback = OffPolicyIntrinsicCallback("rnd", key="achieved_goal", config=SMALL)
    flipping().learn(60, callback=callback)


# What the predictor learns from


@pytest.mark.parametrize("train_freq", [1, 4, 7])
def test_the_predictor_learns_from_each_transition_once_in_order(train_freq: int) -> None:
    reward, env = Known(), clocks()
    model = agent(env=env, train_freq=train_freq)
    model.learn(200, callback=OffPolicyIntrinsicCallback(reward, update_every=32))
    obs = torch.cat([batch.obs for batch in reward.shown])
    for batch in reward.shown:
        assert_within_episodes(batch)
        assert len(batch) >= 32
    names = obs[:, 0]
    for name in range(2):
        own = obs[names == name, 1:]
        keys = own[:, 0] * 100 + own[:, 1]
        assert (keys.diff() > 0).all()
        assert own[0].tolist() == [0, 0]
    assert len(obs) > 160


@pytest.mark.parametrize(("train_freq", "learned"), [(20, 10), (30, 10), (40, 10), (5, 10)])
def test_a_rollout_may_be_as_long_as_the_buffer(train_freq: int, learned: int) -> None:
    reward = Known()
    model = agent(buffer_size=20, train_freq=train_freq, learning_starts=0)  # ten rows of two environments
    model.learn(240, callback=OffPolicyIntrinsicCallback(reward, update_every=20))
    assert {len(batch) for batch in reward.shown} == {2 * learned}
    assert len(reward.shown) == 120 // max(train_freq, 10)


def test_a_callback_suits_each_model_that_it_is_given() -> None:
    callback = OffPolicyIntrinsicCallback("icm+gmc", update_every=8)
    images = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    for space, scale in ((images, 1 / 255), (None, 1.0), (images, 1 / 255)):
        policy = {} if space is None else {"policy_kwargs": {"features_extractor_kwargs": {"features_dim": 8}}}
        model = agent() if space is None else DQN("CnnPolicy", Pictures(space), buffer_size=20, device="cpu", **policy)
        callback.init_callback(model)
        assert callback.reward.config.observation_scale == scale
        assert (callback.reward.config.floor, callback.reward.config.floor_unit) == (0.1, "relative")


def test_a_callback_does_not_look_for_transitions_of_one_model_in_the_buffer_of_another() -> None:
    reward = Known()
    callback = OffPolicyIntrinsicCallback(reward, update_every=24)
    agent().learn(16, callback=callback)  # too few to learn from
    agent().learn(40, callback=callback)
    assert [len(batch) for batch in reward.shown] == [24]
    assert_within_episodes(reward.shown[0])


def test_a_small_buffer_is_used_to_the_full() -> None:
    reward = Known()
    agent(buffer_size=20).learn(200, callback=OffPolicyIntrinsicCallback(reward, update_every=1000))
    assert {len(batch) for batch in reward.shown} == {20}


def test_transitions_sampled_stay_within_their_episode() -> None:
    reward = Known()
    agent().learn(200, callback=OffPolicyIntrinsicCallback(reward))
    assert len(reward.paid_for) > 20
    for batch in reward.paid_for:
        assert_within_episodes(batch)


def test_what_is_learned_and_what_is_paid_for_look_alike_under_normalisation() -> None:
    reward = Known()
    agent(env=VecNormalize(clocks(), norm_reward=False)).learn(
        200, callback=OffPolicyIntrinsicCallback(reward, update_every=64)
    )
    for batch in (*reward.shown, *reward.paid_for):
        assert batch.obs[:, 2].abs().max() < 4  # raw steps go up to 5


def test_the_floor_is_that_of_the_predictors_own_batches() -> None:
    callback = OffPolicyIntrinsicCallback("icm+gmc", config=SMALL, update_every=50)
    agent().learn(20, callback=callback)
    assert callback.reward.config.floor == pytest.approx(1e-8 * 50**2)
    assert callback.reward.config.floor_unit == "sample"


def test_a_transition_is_worth_the_same_in_every_sample() -> None:
    callback = OffPolicyIntrinsicCallback("icm+gmc", config=SMALL, update_every=32)
    agent().learn(200, callback=callback)
    obs = torch.rand(20, 3)
    batch = Transitions(obs, torch.arange(20) % 3, obs + 1)
    together = callback.reward.rewards(batch)
    alone = torch.cat([callback.reward.rewards(batch[[i]]) for i in range(20)])
    assert together.min() > 0
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=0)


def test_a_reward_of_ones_own_pays_samples_as_it_learned() -> None:
    def worth(method: Any, **options: Any) -> torch.Tensor:
        callback = OffPolicyIntrinsicCallback(method, update_every=32, **options)
        agent().learn(200, callback=callback)
        obs = torch.arange(60.0).reshape(20, 3) / 60
        return callback.reward.rewards(Transitions(obs, torch.arange(20) % 3, obs + 1))

    def own(**changes: Any) -> Any:
        return make_reward("icm+gmc", Clock().observation_space, CHOICES, dataclasses.replace(SMALL, **changes))

    with pytest.raises(MethodError, match=r"IntrinsicConfig\(floor=1.024e-05, floor_unit='sample'\)"):
        worth(own())
    given = worth(own(floor=1.024e-5, floor_unit="sample"))
    assert given.min() > 0
    torch.testing.assert_close(given, worth("icm+gmc", config=SMALL), rtol=1e-4, atol=0)


# Nothing else changes


@pytest.mark.parametrize("kind", [DQN, SAC])
def test_paid_with_nothing_the_agent_is_the_plain_one_to_the_bit(kind: Any) -> None:
    callback = OffPolicyIntrinsicCallback("icm+gmc", coefficient=0.0, config=SMALL, update_every=16)
    plain = agent(kind).learn(120)  # its random numbers are seeded when it is made
    paid = agent(kind).learn(120, callback=callback)
    assert same(plain, paid)


def test_the_buffer_is_left_as_it_was() -> None:
    model = agent()
    model.learn(60, callback=OffPolicyIntrinsicCallback(Known(), coefficient=5.0))
    assert "sample" not in vars(model.replay_buffer)
    assert (model.replay_buffer.rewards[: model.replay_buffer.pos] == 1).all()
    pickle.dumps(model.replay_buffer)
    assert all(episode["r"] == episode["l"] for episode in model.ep_info_buffer)


def test_broken_off_while_it_trains_the_buffer_is_saved_as_it_was_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    model, reward = agent(), Known()
    monkeypatch.setattr(dqn_module.F, "smooth_l1_loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.learn(60, callback=OffPolicyIntrinsicCallback(reward, coefficient=5.0))
    assert len(reward.paid_for) == 1
    model.save_replay_buffer(tmp_path / "buffer")
    again = agent()
    again.load_replay_buffer(tmp_path / "buffer")
    for buffer in (again.replay_buffer, copy.deepcopy(model.replay_buffer)):
        assert np.array_equal(buffer.observations, model.replay_buffer.observations)
        assert buffer.sample.__self__ is buffer
        assert (buffer.sample(8).rewards == 1).all()
    assert len(reward.paid_for) == 1


# Saved and loaded


@pytest.mark.parametrize("steps", [60, 100])  # with transitions that wait, more or less of them
def test_saved_and_resumed_equals_uninterrupted(steps: int, tmp_path: Path) -> None:
    whole = agent()
    callback = OffPolicyIntrinsicCallback("icm+gmc", coefficient=2.0, config=SMALL, update_every=48)
    whole.learn(steps, callback=callback)
    whole.save(tmp_path / "agent")
    whole.save_replay_buffer(tmp_path / "buffer")
    env = copy.deepcopy(whole.get_env())
    numpy_state, torch_state = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    whole.action_space.seed(5)
    whole.learn(150, callback=callback, reset_num_timesteps=False)

    resumed = DQN.load(tmp_path / "agent", env, device="cpu", force_reset=False)
    resumed.load_replay_buffer(tmp_path / "buffer")
    np.random.set_state(numpy_state)  # noqa: NPY002
    torch.set_rng_state(torch_state)
    resumed.action_space.seed(5)
    resumed.learn(150, callback=OffPolicyIntrinsicCallback.carried_by(resumed), reset_num_timesteps=False)
    assert same(whole, resumed)


def test_resuming_without_the_replay_buffer_works(tmp_path: Path) -> None:
    model = agent()
    model.learn(60, callback=OffPolicyIntrinsicCallback("icm+gmc", config=SMALL, update_every=100))
    model.save(tmp_path / "agent")
    again = DQN.load(tmp_path / "agent", clocks(), device="cpu")
    callback = OffPolicyIntrinsicCallback.carried_by(again)
    assert callback.update_every == 100
    again.learn(250, callback=callback, reset_num_timesteps=False)


# Misuse


def test_an_on_policy_algorithm_is_refused() -> None:
    with pytest.raises(MethodError, match="got PPO"):
        PPO("MlpPolicy", Clock(), n_steps=8, batch_size=8).learn(5, callback=OffPolicyIntrinsicCallback("icm"))


@pytest.mark.skipif("n_steps" not in inspect.signature(DQN).parameters, reason="came with Stable-Baselines3 2.7")
def test_several_steps_at_once_are_refused() -> None:
    with pytest.raises(MethodError, match=r"n_steps=3; use n_steps=1"):
        agent(n_steps=3).learn(5, callback=OffPolicyIntrinsicCallback("icm"))


def test_a_buffer_that_loses_last_observations_is_refused() -> None:
    options = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    with pytest.raises(MethodError, match="expected optimize_memory_usage=False"):
        agent(**options).learn(5, callback=OffPolicyIntrinsicCallback("icm"))


def test_an_update_every_no_step_is_refused() -> None:
    with pytest.raises(MethodError, match=r"update_every: .*got 0"):
        OffPolicyIntrinsicCallback("icm", update_every=0)


def test_make_reward_is_what_the_callback_uses() -> None:
    callback = OffPolicyIntrinsicCallback("icm+gmc", config=SMALL, seed=7, update_every=10_000)
    model = agent()
    model.learn(4, callback=callback)
    config = IntrinsicConfig(features=5, hidden=8, rnd_features=6, floor=1e-8 * 10_000**2, floor_unit="sample")
    own = make_reward("icm+gmc", model.observation_space, model.action_space, config, seed=7)
    for one, other in zip(own.predictor.parameters(), callback.reward.predictor.parameters(), strict=True):
        assert torch.equal(one, other)
