"""Distributions of actions against torch's own, and their samples against their probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Categorical, Independent, Normal

from headway.errors import EnvError
from headway.rl.agent import CategoricalHead, GaussianHead, make_head


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_choices_are_those_of_torch() -> None:
    logits = torch.randn(50, 7, generator=generator())
    actions = torch.randint(7, (50,), generator=generator())
    logs, entropies = CategoricalHead(7).log_probabilities(logits, actions)
    expected = Categorical(logits=logits)
    torch.testing.assert_close(logs, expected.log_prob(actions))
    torch.testing.assert_close(entropies, expected.entropy())


def test_choices_are_drawn_as_often_as_they_are_likely() -> None:
    head = CategoricalHead(3)
    logits = np.tile(np.log(np.array([0.2, 0.5, 0.3], dtype=np.float32)), (20_000, 1))
    noise = head.noise(1, 20_000, generator())[0]
    shares = np.bincount(head.sample(logits, noise), minlength=3) / 20_000
    assert shares == pytest.approx([0.2, 0.5, 0.3], abs=0.015)  # four deviations


def test_a_choice_is_the_inverse_of_the_cumulated_probabilities() -> None:
    head = CategoricalHead(3)
    logits = np.log(np.array([[0.25, 0.5, 0.25]])).repeat(6, 0).astype(np.float32)
    noise = np.array([0.0, 0.249, 0.251, 0.749, 0.751, np.nextafter(1, 0)]).reshape(6, 1)
    assert head.sample(logits, noise).tolist() == [0, 0, 1, 1, 2, 2]


def test_impossible_choices_are_never_made() -> None:
    logits = np.array([[-np.inf, 0.0, -np.inf]], dtype=np.float32)
    for value in (0.0, 0.5, np.nextafter(1, 0)):
        assert CategoricalHead(3).sample(logits, np.array([[value]])).tolist() == [1]


def test_numbers_are_those_of_torch() -> None:
    head = GaussianHead(np.full(2, -1, np.float32), np.ones(2, np.float32))
    with torch.no_grad():
        head.log_deviation.copy_(torch.tensor([0.3, -0.7]))
    means, actions = torch.randn(2, 50, 2, generator=generator())
    logs, entropies = head.log_probabilities(means, actions)
    expected = Independent(Normal(means, head.log_deviation.exp()), 1)
    torch.testing.assert_close(logs, expected.log_prob(actions))
    torch.testing.assert_close(entropies, expected.entropy())
    noise = head.noise(1, 50, generator(1))[0]
    assert noise.std() == pytest.approx(1, abs=0.25)
    expected_draws = means.numpy() + np.exp(np.array([0.3, -0.7], np.float32)) * noise
    assert head.sample(means.numpy(), noise) == pytest.approx(expected_draws)


def test_what_the_environment_gets() -> None:
    choices = make_head(spaces.Discrete(2, start=5))
    assert choices.to_env(np.array([0, 1])).tolist() == [5, 6]
    assert choices.best(np.array([[1.0, 2.0]])).tolist() == [1]
    box = make_head(spaces.Box(-1, 1, (2, 1), np.float32))
    sent = box.to_env(np.array([[0.5, 3.0]]))
    assert sent.tolist() == [[[0.5], [1.0]]]
    assert sent.dtype == np.float32
    assert box.best(np.array([[0.5, 3.0]])).tolist() == [[0.5, 3.0]]


def test_several_choices_are_independent_ones() -> None:
    space = spaces.MultiDiscrete([[3, 2], [4, 5]], start=[[1, 0], [0, 7]])
    head = make_head(space)
    logits = torch.randn(4000, 14, generator=generator())
    actions = torch.stack([torch.randint(n, (4000,), generator=generator()) for n in (3, 2, 4, 5)], dim=1)
    logs, entropies = head.log_probabilities(logits, actions)
    each = [Categorical(logits=own) for own in logits.split([3, 2, 4, 5], dim=1)]
    torch.testing.assert_close(logs, sum(d.log_prob(a) for d, a in zip(each, actions.unbind(1), strict=True)))
    torch.testing.assert_close(entropies, sum(d.entropy() for d in each))
    same = logits[:1].expand(4000, -1).numpy()
    drawn = head.sample(same, head.noise(1, 4000, generator())[0])
    for column, distribution in enumerate(each):
        shares = np.bincount(drawn[:, column], minlength=len(distribution.probs[0])) / 4000
        np.testing.assert_allclose(shares, distribution.probs[0], atol=0.04)
    assert head.best(same[:1]).tolist() == [[int(d.probs[0].argmax()) for d in each]]
    sent = head.to_env(drawn)
    assert sent.shape == (4000, 2, 2)
    assert all(space.contains(one) for one in sent[:50])


def test_other_actions_are_refused() -> None:
    with pytest.raises(EnvError, match="got MultiBinary"):
        make_head(spaces.MultiBinary(3))
