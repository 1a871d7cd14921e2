"""VIME's information gain against single gradients, and its fall with what was seen."""

from __future__ import annotations

import torch

from headway.rl import IntrinsicConfig, IntrinsicReward, Transitions, make_reward
from tests.rl.batches import DISCRETE, VECTOR, transitions

SMALL = IntrinsicConfig(hidden=8, normalise_observations=False)


def made(**options: float) -> IntrinsicReward:
    reward = make_reward("vime", VECTOR, DISCRETE, SMALL, **options)
    assert isinstance(reward, IntrinsicReward)
    return reward


def gradients(reward: IntrinsicReward, batch: Transitions) -> torch.Tensor:
    """Of the negative log likelihood of each transition, 1/2 |guess - next observation|^2 [N, weights]."""
    scored = reward.predictor.scored
    inputs, targets = reward.predictor.pairs(batch)
    rows = []
    for given, wanted in zip(inputs, targets, strict=True):
        loss = (scored(given) - wanted).square().sum() / 2
        rows.append(torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(scored.parameters()))]))
    return torch.stack(rows)


def test_the_reward_is_half_the_squared_gradient_times_the_variances() -> None:
    reward, first, second = made(prior=0.5), transitions(6), transitions(4, seed=1)
    torch.testing.assert_close(reward.rewards(second), gradients(reward, second).square().sum(1) * 0.25 / 2)
    seen = gradients(reward, first).square().sum(0)
    reward.observe(first)  # variances follow, weights do not
    variances = 1 / (1 / 0.25 + seen)
    torch.testing.assert_close(reward.rewards(second), (gradients(reward, second).square() * variances).sum(1) / 2)


def test_what_comes_again_tells_less_also_if_it_is_noise() -> None:
    reward = made()
    same, generator = torch.ones(64, 6), torch.Generator().manual_seed(0)
    actions = torch.zeros(64, dtype=torch.long)

    def noise() -> Transitions:
        return Transitions(same, actions, torch.randn(64, 6, generator=generator))

    worth = []
    for _ in range(40):
        worth.append(reward.rewards(noise()).mean().item())
        metrics = reward.update(noise())
    assert metrics["forward_loss"] > 0.5  # noise cannot be foretold
    assert worth[-1] < 0.05 * worth[0]
    elsewhere = Transitions(-same, actions + 1, torch.randn(64, 6, generator=generator))
    assert reward.rewards(elsewhere).mean() > 5 * worth[-1]
