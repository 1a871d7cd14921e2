"""Disagreement against a calculation by hand; and it forgets about noise, which the prediction error never does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from headway.rl import IntrinsicConfig, IntrinsicReward, Transitions, make_reward
from tests.rl.batches import DISCRETE, VECTOR, transitions

SMALL = IntrinsicConfig(features=3, hidden=4, normalise_observations=False)


def made(method: str, config: IntrinsicConfig = SMALL, **options: int) -> IntrinsicReward:
    reward = make_reward(method, VECTOR, DISCRETE, config, **options)
    assert isinstance(reward, IntrinsicReward)
    return reward


def test_the_reward_is_the_variance_over_members_and_the_loss_their_mean_error() -> None:
    reward, batch = made("disagreement", members=3), transitions(5)
    bonus = reward.predictor
    with torch.no_grad():
        before, after = bonus.encoder(batch.obs), bonus.encoder(batch.next_obs)
        inputs = torch.cat([before, torch.eye(3)[batch.actions]], 1)
        guesses = torch.stack([member(inputs) for member in bonus.scored.members])  # [3, 5, 3]
    variance = ((guesses - guesses.mean(0)) ** 2).mean(0)
    torch.testing.assert_close(reward.rewards(batch), variance.mean(1))
    loss = bonus.predict(batch, train=True).losses
    torch.testing.assert_close(loss, ((guesses - after) ** 2).mean((0, 2)))


def test_only_the_ensemble_learns() -> None:
    reward = made("disagreement")
    fixed = [each.clone() for each in reward.predictor.encoder.parameters()]
    reward.update(transitions(32))
    assert all(map(torch.equal, fixed, reward.predictor.encoder.parameters()))


@pytest.mark.slow
def test_noise_is_worth_little_in_the_end_and_the_unknown_stays_worth_more() -> None:
    """Two actions: 0 leads to noise, 1 to a fixed place. Action 2 is never taken."""
    space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    config = IntrinsicConfig(features=8, hidden=32, learning_rate=3e-3)
    rewards = {name: make_reward(name, space, spaces.Discrete(3), config) for name in ("disagreement", "forward")}
    rng = np.random.default_rng(0)

    def batch(actions: np.ndarray) -> Transitions:
        here = np.ones((len(actions), 4), np.float32)
        there = np.where(actions[:, None] == 0, rng.normal(size=(len(actions), 4)), 0.5).astype(np.float32)
        return Transitions(here, actions, there)

    first = {}
    for step in range(60):
        both = batch(rng.integers(0, 2, 256))
        for name, reward in rewards.items():
            assert reward is not None
            if not step:
                first[name] = reward.rewards(both)[both.actions == 0].mean()
            reward.update(both)
    for name, left in (("disagreement", 0.05), ("forward", 0.5)):
        reward = rewards[name]
        assert reward is not None
        noise, known, unknown = (reward.rewards(batch(np.full(256, action))).mean() for action in range(3))
        assert noise > left * first[name] if name == "forward" else noise < left * first[name]
        if name == "disagreement":
            assert unknown > 10 * max(noise, known)


@pytest.mark.filterwarnings("ignore:gmc. .* of the parameters have a second moment under the floor")
def test_scorers_look_at_all_members() -> None:
    reward = made("disagreement+norm_all")
    batch = transitions(6)
    by_hand = []
    for index in range(6):
        own = reward.predictor.predict(batch[index : index + 1], train=True).losses
        gradients = torch.autograd.grad(own.sum(), list(reward.predictor.scored.parameters()))
        by_hand.append(torch.cat([each.flatten() for each in gradients]).abs().sum())
    torch.testing.assert_close(reward.rewards(batch), torch.stack(by_hand))
