"""Trainers of other libraries: with the real library, rewards reach the advantages by what theory says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from headway.integrations.rollouts import RolloutReward
from tests.integrations.worlds import CHOICES, Clock, Known, assert_within_episodes

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
CLOCK = Clock().observation_space


def known(number: int = 1) -> tuple[Known, RolloutReward]:
    reward = Known()
    return reward, RolloutReward(None, reward, coefficient=0.5, normalise=False, spaces=(CLOCK, CHOICES, number))


def theory(obs: Any) -> Any:
    """What `Known` pays for a step of a clock, by the observation before it."""
    return 0.5 * (2 * obs[..., 2] + 0.5 * (obs[..., 2] + 1) + obs[..., 0])


def test_torchrl() -> None:
    pytest.importorskip("torchrl")
    from torchrl.collectors import Collector
    from torchrl.envs import GymWrapper, SerialEnv
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    from headway.integrations.torchrl import IntrinsicRewardTransform

    reward, pay = known(2)
    env = SerialEnv(2, [lambda: GymWrapper(Clock(0)), lambda: GymWrapper(Clock(1))])
    collector = Collector(env, None, frames_per_batch=40, total_frames=40, postproc=IntrinsicRewardTransform(pay))
    (batch,) = list(collector)
    collector.shutdown()
    paid = batch["next", "intrinsic_reward"][..., 0]
    torch.testing.assert_close(paid, theory(batch["observation"]))
    for each in reward.shown:
        assert_within_episodes(each)
    zeros, flags = torch.zeros_like(batch["next", "reward"]), batch["next", "done"]
    task = batch["next", "reward"] - batch["next", "intrinsic_reward"]
    with_, without = (
        generalized_advantage_estimate(0.9, 0.8, zeros, zeros, each, flags, batch["next", "terminated"])[0]
        for each in (batch["next", "reward"], task)
    )
    for n, t in np.ndindex(2, 20):
        last = next((k for k in range(t, 20) if flags[n, k]), 19)
        expected = sum(0.72 ** (k - t) * float(paid[n, k]) for k in range(t, last + 1))
        assert float((with_ - without)[n, t]) == pytest.approx(expected, abs=1e-3)


@pytest.mark.slow  # numba compiles parts of it
def test_tianshou() -> None:
    pytest.importorskip("tianshou")
    from tianshou.algorithm import PPO
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    from headway.integrations.tianshou import pay_intrinsic

    def made() -> PPO:
        torch.manual_seed(0)
        net = Net(state_shape=(3,), hidden_sizes=[8])
        actor = DiscreteActor(preprocess_net=net, action_shape=3)
        critic = DiscreteCritic(preprocess_net=Net(state_shape=(3,), hidden_sizes=[8]))
        policy = ProbabilisticActorPolicy(
            actor=actor,
            dist_fn=lambda logits: torch.distributions.Categorical(logits=logits),
            action_space=CHOICES,
            action_scaling=False,
        )
        return PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3), gamma=0.9, gae_lambda=0.8)

    reward, pay = known()
    plain, paid = made(), pay_intrinsic(made(), pay)
    buffer = VectorReplayBuffer(60, 2)
    collector = Collector(plain, DummyVectorEnv([lambda: Clock(0), lambda: Clock(1)]), buffer)
    collector.reset()
    collector.collect(n_step=40)
    indices = buffer.sample_indices(0)
    one, other = (each._preprocess_batch(buffer[indices], buffer, indices) for each in (plain, paid))
    for each in reward.shown:
        assert_within_episodes(each)
    own = theory(buffer[indices].obs)
    done = buffer[indices].done | np.isin(indices, buffer.unfinished_index())
    change = np.asarray(other.adv) - np.asarray(one.adv)
    for t in range(len(indices)):
        last = next(k for k in range(t, len(indices)) if done[k])
        expected = sum(0.72 ** (k - t) * own[k] for k in range(t, last + 1))
        assert change[t] == pytest.approx(expected, abs=1e-3)
    assert np.array_equal(buffer[indices].rew, np.ones(len(indices)))  # the buffer keeps the task's


def episodes_of_rllib() -> list[Any]:
    """An episode of each of two clocks, the first one cut off."""
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    episodes = []
    for name in range(2):
        clock = Clock(name)
        for _ in range(1 + name):  # the second episode of a clock ends by itself
            obs, _ = clock.reset()
        episode = SingleAgentEpisode(observation_space=CLOCK, action_space=CHOICES)
        episode.add_env_reset(obs)
        while not episode.is_done:
            obs, reward, terminated, truncated, _ = clock.step(1)
            episode.add_env_step(
                obs, 1, reward, terminated=terminated, truncated=truncated, extra_model_outputs={"action_logp": 0.0}
            )
        episodes.append(episode)
    return episodes


def test_rllib() -> None:
    pytest.importorskip("ray.rllib")
    pytest.importorskip("tree")
    from headway.integrations.rllib import IntrinsicRewardConnector

    reward, pay = known()
    episodes = episodes_of_rllib()
    IntrinsicRewardConnector(pay)(rl_module=None, batch={}, episodes=episodes)
    for each in reward.shown:
        assert_within_episodes(each)
    for episode in episodes:
        seen = np.asarray(episode.get_observations())[:-1]
        np.testing.assert_allclose(episode.get_rewards(), 1 + theory(seen), rtol=1e-6)


@pytest.mark.slow
def test_rllib_computes_advantages_from_what_was_paid() -> None:
    pytest.importorskip("ray.rllib")
    pytest.importorskip("tree")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    from headway.integrations.rllib import IntrinsicRewardConnector

    register_env("clock", lambda _: Clock())
    _, pay = known()
    config = (
        PPOConfig()
        .environment("clock")
        .env_runners(num_env_runners=0)
        .training(gamma=0.9, lambda_=0.8, train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .training(learner_connector=lambda *spaces: IntrinsicRewardConnector(pay))
    )
    algorithm = config.build_algo()
    try:
        learner = algorithm.learner_group._learner
        pipeline = learner._learner_connector

        def computed(coefficient: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            pay.coefficient = coefficient
            batch = pipeline(rl_module=learner.module, batch={}, episodes=episodes_of_rllib(), shared_data={})
            own = batch["default_policy"]
            values = learner.module["default_policy"].compute_values(own)
            return tuple(each.detach().numpy() for each in (own["value_targets"], own["advantages"], values))

        (plain, *_), (targets, advantages, values) = computed(0.0), computed(0.5)
        raw = targets - values
        np.testing.assert_allclose(advantages, (raw - raw.mean()) / raw.std(), atol=1e-5)
        start = 0
        for episode in episodes_of_rllib():
            own = theory(np.asarray(episode.get_observations())[:-1])
            for t in range(len(own)):
                expected = sum(0.72 ** (k - t) * own[k] for k in range(t, len(own)))
                assert targets[start + t] - plain[start + t] == pytest.approx(expected, rel=1e-4)
            start += len(own) + 1  # RLlib adds a step to each, for the value of what follows
        algorithm.train()
    finally:
        algorithm.stop()


def test_envpool() -> None:
    envpool = pytest.importorskip("envpool")
    from headway.integrations.envpool import EnvPoolVectorEnv
    from headway.integrations.gymnasium import IntrinsicRewardWrapper
    from headway.rl import PPO, Episodes, PPOConfig, make_reward

    def made() -> Any:
        return EnvPoolVectorEnv(envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=0))

    episodes = Episodes(made())
    episodes.reset()
    ends = 0
    for _ in range(60):
        step = episodes.step(np.ones(3, int))
        moved = np.abs(step.next_obs - step.obs).max(axis=1)
        assert (moved[step.valid] < 1).all()  # a step of the pole, never a jump into the next episode
        ends += int(step.ended.sum())
        assert np.array_equal(~step.valid, step.rewards == 0)  # the pool pays nothing for beginning anew
    assert ends > 3
    env = made()
    assert isinstance(env.single_observation_space, spaces.Box)
    reward = make_reward("icm+gmc", env.single_observation_space, env.single_action_space)
    assert PPO(env, PPOConfig(rollout_steps=16), reward).iterate() is not None
    wrapped = IntrinsicRewardWrapper(made(), "icm", update_every=32)
    wrapped.reset()
    for _ in range(20):
        *_, infos = wrapped.step(np.ones(3, int))
    assert infos["intrinsic_reward"].shape == (3,)
