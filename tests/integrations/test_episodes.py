"""Bonuses of single episodes in adapters: they are told where episodes end, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from headway.errors import MethodError
from headway.integrations.gymnasium import IntrinsicRewardWrapper
from headway.integrations.rlexplore import KEYS, RLeXploreReward
from headway.integrations.rollouts import RolloutReward
from headway.rl import Episodes, Reward, Transitions, make_reward
from tests.integrations.worlds import CHOICES, SMALL, Clock

ENVS, STEPS = 2, 24
PLAIN: dict[str, Any] = {"coefficient": 1.0, "normalise": False, "config": SMALL}


def clocks(mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Any:
    return SyncVectorEnv([lambda name=name: Clock(name, length=3 + name) for name in range(ENVS)], autoreset_mode=mode)


def steps(mode: AutoresetMode, count: int = STEPS) -> list[Any]:
    episodes = Episodes(clocks(mode))
    episodes.reset(seed=0)
    return [episodes.step(np.zeros(ENVS, np.int64)) for _ in range(count)]


def wanted(mode: AutoresetMode, method: str = "e3b", count: int = STEPS) -> np.ndarray:
    """The rewards of all steps [T, N], from transitions that say everything; zero where there was none."""
    done = steps(mode, count)
    obs, actions, following, terminated, truncated, valid = (
        np.stack([getattr(step, name) for step in done])
        for name in ("obs", "actions", "next_obs", "terminated", "truncated", "valid")
    )
    envs = np.broadcast_to(np.arange(ENVS), valid.shape)
    batch = Transitions(
        obs[valid], actions[valid], following[valid], ended=(terminated | truncated)[valid], envs=envs[valid]
    )
    rewards = np.zeros(valid.shape)
    rewards[valid] = reward(method).rewards(batch).numpy()
    return rewards


def reward(method: str = "e3b") -> Reward:
    made = make_reward(method, Clock().observation_space, CHOICES, SMALL)
    assert made is not None
    return made


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("method", ["e3b", "ride"])
@pytest.mark.parametrize("looks", ["at each step", "at the end"])
def test_the_wrapper_follows_episodes_however_often_somebody_looks(
    mode: AutoresetMode, method: str, looks: str
) -> None:
    env = IntrinsicRewardWrapper(clocks(mode), method, update_every=1000, **PLAIN)
    env.reset(seed=0)
    pending = []
    for _ in range(STEPS):
        infos = env.step(np.zeros(ENVS, np.int64))[-1]
        pending.append(np.asarray(infos["intrinsic_reward"]) if looks == "at each step" else infos["intrinsic_reward"])
    np.testing.assert_allclose(np.stack([np.asarray(each) for each in pending]), wanted(mode, method), rtol=1e-5)


@pytest.mark.parametrize("update_every", [1000, 2 * ENVS])
def test_a_reset_of_the_wrapper_ends_episodes(update_every: int) -> None:
    env = IntrinsicRewardWrapper(clocks(), "ride", update_every=update_every, **PLAIN)
    for _ in range(2):
        env.reset(seed=0)
        for _ in range(2):
            env.step(np.zeros(ENVS, np.int64))
    env.reset(seed=0)
    block = env._block
    block.settle() if block._steps else None
    memory: Any = env.reward.bonus
    if update_every == 1000:
        memory.remember(block.joined())
    assert not memory._episodes


def test_rollouts_say_where_episodes_end() -> None:
    done = steps(AutoresetMode.NEXT_STEP)
    obs, actions, following = (
        np.stack([getattr(step, name) for step in done]) for name in ("obs", "actions", "next_obs")
    )
    ended = np.stack([step.terminated | step.truncated for step in done])
    dones = np.concatenate([np.zeros((1, ENVS), bool), ended])
    last = following[-1]
    pay = RolloutReward(clocks(), "e3b", **PLAIN)
    with pytest.raises(MethodError, match="next_done"):
        pay(obs, actions, dones[:-1], last)
    np.testing.assert_allclose(
        pay(obs, actions, dones[:-1], last, dones[-1]), wanted(AutoresetMode.NEXT_STEP), rtol=1e-5
    )
    with pytest.raises(MethodError, match="NEXT_STEP"):
        RolloutReward(clocks(AutoresetMode.SAME_STEP), "e3b", **PLAIN)(obs, actions, dones[:-1], last, dones[-1])
    with pytest.raises(MethodError, match="envs and ended"):
        pay.pay(obs, actions, following)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_rlexplores_samples_say_where_episodes_end(mode: AutoresetMode) -> None:
    done = steps(mode)
    names = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
    samples = {
        key: torch.as_tensor(np.stack([getattr(step, name) for step in done]))
        for key, name in zip(KEYS, names, strict=True)
    }
    plain: dict[str, Any] = {"rwd_norm_type": "none", "obs_norm_type": "none", "method": "e3b", "config": SMALL}
    irs = RLeXploreReward(clocks(mode), **plain)
    np.testing.assert_allclose(irs.compute(samples, sync=False), wanted(mode), rtol=1e-5)
    with pytest.raises(MethodError, match="true_next_observations"):
        RLeXploreReward(clocks(mode), true_next_observations=False, **plain)


def test_stable_baselines_rollouts_have_episodes_and_replay_buffers_do_not() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from headway.integrations.sb3 import OffPolicyIntrinsicCallback, OnPolicyIntrinsicCallback
    from tests.integrations import sb3_worlds

    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 0}
    callback = OnPolicyIntrinsicCallback("ngu", config=SMALL)
    sb3.PPO("MlpPolicy", sb3_worlds.clocks(), n_steps=16, batch_size=16, n_epochs=1, **small).learn(64, callback)
    assert callback.reward is not None
    assert callback.reward.is_episodic
    with pytest.raises(MethodError, match="replay buffer"):
        sb3.DQN("MlpPolicy", sb3_worlds.clocks(), learning_starts=4, buffer_size=50, **small).learn(
            8, callback=OffPolicyIntrinsicCallback("e3b", config=SMALL)
        )
