"""Prediction gain against a step of descent for each transition alone."""

from __future__ import annotations

import pytest
import torch

from headway.rl import IntrinsicConfig, IntrinsicReward, make_reward
from headway.rl.bonuses.forward import layer_gradients
from tests.rl.batches import DISCRETE, VECTOR, transitions

SMALL = IntrinsicConfig(hidden=8)


def made(**options: float) -> IntrinsicReward:
    reward = make_reward("gain", VECTOR, DISCRETE, SMALL, **options)
    assert isinstance(reward, IntrinsicReward)
    return reward


def test_outer_products_are_the_gradients_of_single_samples() -> None:
    bonus, batch = made().predictor, transitions(5)
    inputs, targets = bonus.pairs(batch)
    found = layer_gradients(bonus.scored, inputs, targets)
    for index in range(5):
        loss = (bonus.scored(inputs[index]) - targets[index]).square().mean()
        wanted = torch.autograd.grad(loss, list(bonus.scored.parameters()))
        ours = [part for _, own, slope in found for part in (torch.outer(slope[index], own[index]), slope[index])]
        torch.testing.assert_close(tuple(ours), wanted)


def test_the_gain_is_what_one_step_on_a_transition_brings() -> None:
    reward, batch = made(rate=0.2), transitions(5)
    bonus = reward.predictor
    inputs, targets = bonus.pairs(batch)
    names = [name for name, _ in bonus.scored.named_parameters()]
    gains = []
    for index in range(5):

        def loss(weights: dict[str, torch.Tensor], index: int = index) -> torch.Tensor:
            guess = torch.func.functional_call(bonus.scored, weights, (inputs[index],))
            return (guess - targets[index]).square().mean()

        weights = dict(bonus.scored.named_parameters())
        before = loss(weights)
        steps = torch.autograd.grad(before, list(weights.values()))
        after = loss({name: weights[name] - 0.2 * step for name, step in zip(names, steps, strict=True)})
        gains.append((before - after).detach())
    torch.testing.assert_close(reward.rewards(batch), torch.stack(gains))


@pytest.mark.slow
def test_what_is_known_brings_nothing() -> None:
    reward = make_reward("gain", VECTOR, DISCRETE, IntrinsicConfig(hidden=64, learning_rate=3e-3))
    assert reward is not None
    known, other = transitions(32), transitions(32, seed=1)
    for _ in range(100):
        reward.update(known)
    assert reward.rewards(known).mean() < 0.1 * reward.rewards(other).mean()
