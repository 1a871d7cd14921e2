"""E3B against matrices that are inverted step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headway.rl import IntrinsicConfig, MemoryReward, Transitions, make_reward
from headway.rl.bonuses import episodic
from tests.rl.batches import DISCRETE, VECTOR
from tests.rl.bonuses.test_every_bonus import episodes

SMALL = IntrinsicConfig(features=4, hidden=8, normalise_observations=False)


def made(**options: float) -> MemoryReward:
    reward = make_reward("e3b", VECTOR, DISCRETE, SMALL, **options)
    assert isinstance(reward, MemoryReward)
    return reward


def one_by_one(reward: MemoryReward, batch: Transitions, ridge: float) -> torch.Tensor:
    assert batch.envs is not None
    assert batch.ended is not None
    with torch.no_grad():
        features = reward.memory.icm.encode(batch)[1].double()
    matrices: dict[int, torch.Tensor] = {}
    bonuses = []
    for row, env, ended in zip(features, batch.envs.tolist(), batch.ended.tolist(), strict=True):
        matrix = matrices.get(env, ridge * torch.eye(4, dtype=torch.float64))
        bonuses.append(row @ torch.linalg.inv(matrix) @ row)
        matrices[env] = matrix + torch.outer(row, row)
        if ended:
            del matrices[env]
    return torch.stack(bonuses).float()


@pytest.mark.parametrize("chunk", [2, 256])
def test_bonuses_are_those_of_inverted_matrices(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodic, "CHUNK", chunk)
    reward, batch = made(ridge=0.3), episodes(60)
    wanted = one_by_one(reward, batch, 0.3)
    torch.testing.assert_close(reward.rewards(batch), wanted)
    torch.testing.assert_close(reward.rewards_and_update(batch).rewards, wanted)


def test_episodes_go_on_from_rollout_to_rollout() -> None:
    whole, parts, batch = made(), made(), episodes(60)
    parts.memory.remember(batch[:25])
    torch.testing.assert_close(whole.rewards(batch)[25:], parts.rewards(batch[25:]))


def test_repeats_are_worth_less_until_the_episode_ends() -> None:
    same = np.tile(np.random.default_rng(0).normal(size=(1, 6)).astype(np.float32), (8, 1))
    ended = np.arange(8) == 3
    batch = Transitions(same, np.zeros(8, np.int64), same, ended=ended, envs=np.zeros(8, np.int64))
    rewards = made().rewards(batch)
    assert (rewards[:4].diff() < 0).all()
    torch.testing.assert_close(rewards[4:], rewards[:4])
    first = rewards[0]
    torch.testing.assert_close(rewards[:4], first / (1 + torch.arange(4) * first))  # of a single direction


def test_environments_do_not_share_a_memory_and_a_reset_clears_it() -> None:
    one = Transitions(np.ones((1, 6), np.float32), [0], np.ones((1, 6), np.float32), ended=[False], envs=[0])
    other = Transitions(one.obs, one.actions, one.next_obs, ended=one.ended, envs=[1])
    reward = made()
    fresh = reward.rewards(one)
    reward.memory.remember(one)
    assert reward.rewards(one) < fresh
    assert torch.equal(reward.rewards(other), fresh)
    reward.end_episodes([0])
    assert torch.equal(reward.rewards(one), fresh)
