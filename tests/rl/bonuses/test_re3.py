"""RE3 against distances by hand."""

from __future__ import annotations

import torch
from gymnasium import spaces

from headway.rl import IntrinsicConfig, MemoryReward, Transitions, make_reward
from tests.rl.batches import DISCRETE, VECTOR, transitions

SMALL = IntrinsicConfig(features=4, hidden=8)


def made(observations: spaces.Space = VECTOR, **options: int) -> MemoryReward:
    reward = make_reward("re3", observations, DISCRETE, SMALL, **options)
    assert isinstance(reward, MemoryReward)
    return reward


def distances(reward: MemoryReward, one: Transitions, other: Transitions) -> torch.Tensor:
    """Between features, sorted for each of the first."""
    with torch.no_grad():
        ours, theirs = (reward.memory.encoder(each.next_obs) for each in (one, other))
    return (ours[:, None] - theirs).square().sum(2).sqrt().sort(1).values


def test_a_reward_is_the_logarithm_of_the_distance_to_the_kth_neighbour() -> None:
    reward, first, second = made(neighbours=2), transitions(10), transitions(6, seed=1)
    assert not reward.rewards(first).any()  # nothing is stored
    stored = reward.rewards_and_update(first).rewards
    torch.testing.assert_close(stored, (1 + distances(reward, first, first)[:, 2]).log())  # itself left out
    torch.testing.assert_close(reward.rewards(second), (1 + distances(reward, second, first)[:, 1]).log())


def test_the_newest_are_stored() -> None:
    reward, batch = made(neighbours=1, capacity=4), transitions(11)
    reward.update(batch[:3])
    reward.update(batch[3:])
    other = transitions(5, seed=1)
    torch.testing.assert_close(reward.rewards(other), (1 + distances(reward, other, batch[7:])[:, 0]).log())
    reward.update(batch[:1])
    kept = torch.cat([batch.next_obs[8:], batch.next_obs[:1]])
    wanted = distances(reward, other, Transitions(kept, batch.actions[:4], kept))[:, 0]
    torch.testing.assert_close(reward.rewards(other), (1 + wanted).log())


def test_what_comes_often_is_worth_nothing_and_what_is_far_most() -> None:
    reward = made(neighbours=3)
    obs = torch.cat([torch.zeros(20, 6), torch.randn(5, 6, generator=torch.Generator().manual_seed(0))])
    rewards = reward.rewards_and_update(Transitions(obs, torch.zeros(25, dtype=torch.long), obs)).rewards
    assert not rewards[:20].any()
    assert (rewards[20:] > 0).all()
