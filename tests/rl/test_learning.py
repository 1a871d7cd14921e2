"""One batch of PPO against formulas written out."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical

from headway.rl.agent import Agent
from headway.rl.config import PPOConfig
from headway.rl.learning import TrainingBatch, learn_policy, learn_values, standardised

CONFIG = PPOConfig(hidden=(8,), channels=(3,), epochs=1)
OBSERVATIONS, ACTIONS = spaces.Box(0, 10, (4, 4, 2)), spaces.Discrete(3)


def agent(config: PPOConfig = CONFIG) -> Agent:
    return Agent(OBSERVATIONS, ACTIONS, config, torch.Generator().manual_seed(0))


def batch(heads: int = 1, samples: int = 40) -> TrainingBatch:
    """Forty transitions on eleven distinct observations, in one minibatch."""
    rng = torch.Generator().manual_seed(1)
    return TrainingBatch(
        frames=torch.randn(11, 4, 4, 2, generator=rng),
        where=torch.randint(11, (samples,), generator=rng),
        actions=torch.randint(3, (samples,), generator=rng),
        log_probabilities=torch.randn(samples, generator=rng) * 0.3 - 1.1,
        advantages=torch.randn(samples, generator=rng),
        values=torch.randn(samples, heads, generator=rng),
        returns=torch.randn(samples, heads, generator=rng),
        minibatches=[torch.randperm(samples, generator=rng)],
    )


def never() -> bool:
    return False


def gradients(module: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def test_each_distinct_observation_takes_part_once_and_nothing_changes() -> None:
    network = agent().policy.network.double()
    given = batch()
    given = dataclasses.replace(given, frames=given.frames.double())
    chosen = given.minibatches[0]
    weights = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    seen = []
    handle = network.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    (given.run(network, chosen) * weights).sum().backward()
    handle.remove()
    found = gradients(network)
    network.zero_grad()
    plain = network(given.frames[given.where[chosen]])
    (plain * weights).sum().backward()
    torch.testing.assert_close(given.run(network, chosen), plain)
    assert seen == [16]  # eleven, rounded up
    for one, other in zip(found, gradients(network), strict=True):
        torch.testing.assert_close(one, other)


def test_the_policy_loss_is_the_clipped_surrogate() -> None:
    config = dataclasses.replace(CONFIG, max_grad_norm=None, entropy_weight=0.05)
    own, given = agent(config), batch()
    policy = Categorical(logits=own.policy.network(given.frames[given.where]))
    ratio = torch.exp(policy.log_prob(given.actions) - given.log_probabilities)
    gain = given.advantages
    surrogate = torch.where(gain > 0, gain * torch.clamp(ratio, max=1.2), gain * torch.clamp(ratio, min=0.8)).mean()
    (-surrogate - 0.05 * policy.entropy().mean()).backward()
    expected = gradients(own.policy)
    report = learn_policy(own.policy, own.policy_optimizer, given, config, never)
    assert report is not None
    assert report["policy_loss"] == pytest.approx(-surrogate.item(), rel=1e-5)
    assert report["entropy"] == pytest.approx(policy.entropy().mean().item(), rel=1e-5)
    assert report["clip_fraction"] == pytest.approx(((ratio < 0.8) | (ratio > 1.2)).float().mean().item())
    assert report["approx_kl"] == pytest.approx((ratio - 1 - ratio.log()).mean().item(), rel=1e-4)
    for one, other in zip(gradients(own.policy), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-4)


def test_one_step_is_one_step_of_adam_along_the_cut_gradient() -> None:
    config = dataclasses.replace(CONFIG, max_grad_norm=0.01)
    own, given = agent(config), batch()
    before = [p.detach().clone() for p in own.value.parameters()]
    learn_values(own.value, own.value_optimizer, given, config, never)
    length = torch.cat([g.flatten() for g in gradients(own.value)]).norm()
    assert float(length) == pytest.approx(0.01, rel=1e-3)
    for old, new, gradient in zip(before, own.value.parameters(), gradients(own.value), strict=True):
        expected = old - config.value_learning_rate * gradient / (gradient.abs() + config.adam_epsilon)
        torch.testing.assert_close(new.detach(), expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("heads", [1, 2])
def test_the_value_loss_is_the_mean_square_added_over_heads(heads: int) -> None:
    config = dataclasses.replace(CONFIG, value_heads=heads)
    own, given = agent(config), batch(heads)
    values = own.value(given.frames[given.where]).detach()
    expected = float((values - given.returns).square().sum(1).mean())
    assert learn_values(own.value, own.value_optimizer, given, config, never) == pytest.approx(expected, rel=1e-5)


def test_values_can_be_kept_near_the_old_ones() -> None:
    config = dataclasses.replace(CONFIG, value_clip=0.1)
    own, given = agent(config), batch()
    values = own.value(given.frames[given.where]).detach()
    near = torch.maximum(torch.minimum(values, given.values + 0.1), given.values - 0.1)
    losses = torch.maximum((values - given.returns).square(), (near - given.returns).square())
    found = learn_values(own.value, own.value_optimizer, given, config, never)
    assert found == pytest.approx(float(losses.mean()), rel=1e-5)


def test_the_two_learn_at_rates_of_their_own() -> None:
    own = agent(dataclasses.replace(CONFIG, policy_learning_rate=1e-2, value_learning_rate=1e-4))
    assert own.policy_optimizer.param_groups[0]["lr"] == 1e-2
    assert own.value_optimizer.param_groups[0]["lr"] == 1e-4


def test_asked_to_stop_they_stop() -> None:
    own, given = agent(), batch()
    assert learn_policy(own.policy, own.policy_optimizer, given, CONFIG, lambda: True) is None
    assert learn_values(own.value, own.value_optimizer, given, CONFIG, lambda: True) is None


def test_standardised() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64)
    found = standardised(values)
    assert float(found.mean()) == pytest.approx(0, abs=1e-12)
    assert float(found.std()) == pytest.approx(1, rel=1e-6)
    assert standardised(torch.tensor([5.0])).tolist() == [5.0]
    assert standardised(torch.ones(3)).tolist() == [0, 0, 0]
