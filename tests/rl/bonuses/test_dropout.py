"""MC dropout against networks with units taken out by hand."""

from __future__ import annotations

import torch

from headway.rl import IntrinsicConfig, IntrinsicReward, make_reward
from tests.rl.batches import DISCRETE, VECTOR, transitions

SMALL = IntrinsicConfig(hidden=8, normalise_observations=False)


def made(config: IntrinsicConfig = SMALL, **options: float) -> IntrinsicReward:
    reward = make_reward("dropout", VECTOR, DISCRETE, config, **options)
    assert isinstance(reward, IntrinsicReward)
    return reward


def test_the_reward_is_the_variance_over_networks_with_units_left_out() -> None:
    reward, batch = made(rate=0.25, passes=3), transitions(5)
    bonus = reward.predictor
    generator = torch.Generator().manual_seed(int(bonus.draws))
    first, second = ((torch.rand(3, 8, generator=generator) < 0.75).float() / 0.75 for _ in range(2))
    inputs, _ = bonus.pairs(batch)
    layers = [each for each in bonus.scored.layers if isinstance(each, torch.nn.Linear)]
    guesses = []
    with torch.no_grad():
        for one, other in zip(first, second, strict=True):
            hidden = layers[1](layers[0](inputs).relu() * one).relu() * other
            guesses.append(layers[2](hidden))
    torch.testing.assert_close(reward.rewards(batch), torch.stack(guesses).var(0, correction=0).mean(1))


def test_masks_are_drawn_anew_when_it_learns() -> None:
    reward, batch = made(), transitions(5)
    before = int(reward.predictor.draws)
    reward.rewards(batch)
    assert int(reward.predictor.draws) == before
    reward.update(batch)
    assert int(reward.predictor.draws) == before + SMALL.epochs * len(batch)  # a part for each transition


def test_the_unknown_is_worth_more_than_the_known() -> None:
    reward = made(IntrinsicConfig(hidden=64, learning_rate=3e-3))
    known, unknown = transitions(64), transitions(64, seed=1)
    for _ in range(60):
        reward.update(known)
    far = type(known)(3 * unknown.obs, unknown.actions, unknown.next_obs)
    assert reward.rewards(far).mean() > 2 * reward.rewards(known).mean()
