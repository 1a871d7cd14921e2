"""How scores become shares, by hand."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch

from headway.errors import SelectionError
from headway.selection import MultiplicativeWeights, PolicyGradient
from headway.selection.rules import Feedback


def feedback(scores: list[float], counts: list[int] | None = None) -> Feedback:
    values = torch.tensor(scores, dtype=torch.float64)
    return Feedback(values, values, torch.tensor(counts or [4] * len(scores)))


def test_one_step_of_multiplicative_weights() -> None:
    learner = MultiplicativeWeights(strength=2.0, rate=0.25).begin(2, 0)
    assert learner.shares().tolist() == [0.5, 0.5]
    learner.learn(feedback([4.0, 1.0]))  # gains 1 and 1/4
    one, two = math.exp(0.25 * 2 * 1), math.exp(0.25 * 2 * 0.25)
    assert learner.shares().tolist() == pytest.approx([one / (one + two), two / (one + two)])
    learner.learn(feedback([4.0, 1.0]))
    one, two = one**0.75 * math.exp(0.5), two**0.75 * math.exp(0.125)
    assert learner.shares().tolist() == pytest.approx([one / (one + two), two / (one + two)])


def test_a_batch_that_stands_for_several_moves_as_far_as_all_of_them() -> None:
    each, third = (MultiplicativeWeights(strength=2.0, rate=0.25).begin(2, 0) for _ in range(2))
    for _ in range(3):
        each.learn(feedback([4.0, 1.0]))
    third.learn(replace(feedback([4.0, 1.0]), batches=3))
    one, two = math.exp((1 - 0.75**3) * 2), math.exp((1 - 0.75**3) * 2 * 0.25)
    assert third.shares().tolist() == pytest.approx([one / (one + two), two / (one + two)])
    assert third.shares().tolist() == pytest.approx(each.shares().tolist())


def test_at_rest_half_the_score_has_a_known_share() -> None:
    learner = MultiplicativeWeights(strength=3.0).begin(2, 0)
    for _ in range(500):
        learner.learn(feedback([10.0, 5.0]))
    first, second = learner.shares().tolist()
    assert second / first == pytest.approx(math.exp(-3 / 2))


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_unit_of_the_scores_does_not_matter(unit: float) -> None:
    learner = MultiplicativeWeights().begin(3, 0)
    learner.learn(feedback([unit, 2 * unit, -3 * unit]))
    gains = [0.05 * 3 * gain for gain in (1 / 3, 2 / 3, -1)]
    total = sum(map(math.exp, gains))
    assert learner.shares().tolist() == pytest.approx([math.exp(gain) / total for gain in gains])


def test_scores_of_zero_move_nothing_and_small_ones_less_than_least() -> None:
    learner = MultiplicativeWeights(least=1.0).begin(2, 0)
    learner.learn(feedback([0.0, 0.0]))
    assert learner.shares().tolist() == [0.5, 0.5]
    for _ in range(300):
        learner.learn(feedback([1e-3, 0.0]))
    assert learner.shares()[0].item() == pytest.approx(1 / (1 + math.exp(-3e-3)))


def test_the_actor_follows_the_policy_gradient_of_all_samples() -> None:
    """Samples stand in with their source's mean: for plain logits the gradient is that of the samples themselves."""
    learner = PolicyGradient(scaled=False, entropy_weight=0.0).begin(3, 0)
    arms = torch.tensor([0, 0, 1, 2, 2, 2])
    scores = torch.tensor([1.0, 3.0, 5.0, 0.0, 1.0, 2.0])
    means = torch.tensor([2.0, 5.0, 1.0], dtype=torch.float64)
    learner.learn(Feedback(means, means, torch.tensor([2, 1, 3])))
    policy = torch.full((3,), 1 / 3)
    expected = sum(r * (policy - torch.eye(3)[a]) for a, r in zip(arms, scores, strict=True)) / 6
    torch.testing.assert_close(learner._actor.policy.logits.grad, expected)


@pytest.mark.parametrize("kind", ["logits", "network"])
def test_the_actor_comes_to_prefer_what_scores(kind: str) -> None:
    learner = PolicyGradient(kind=kind, hidden=(16,), entropy_weight=0.05).begin(3, 0)
    for _ in range(300):
        counts = (learner.shares() * 60).round().long().clamp(min=1)
        learner.learn(feedback([0.0, 1.0, 0.1], counts.tolist()))
    assert learner.shares()[1] > 0.8
    assert learner.shares().sum().item() == pytest.approx(1)


@pytest.mark.parametrize("rule", [MultiplicativeWeights(), PolicyGradient(), PolicyGradient(kind="network")])
def test_saved_and_loaded_continues_identically(rule) -> None:
    one, two = rule.begin(3, 0), rule.begin(3, 1)
    one.learn(feedback([1.0, 2.0, 3.0]))
    state = copy.deepcopy(one.state_dict())
    saved = one.state_dict()
    one.learn(feedback([2.0, 0.0, 1.0]))
    two.load_state_dict(saved)  # a state does not change when its origin goes on
    assert str(saved) == str(state)
    two.learn(feedback([2.0, 0.0, 1.0]))
    assert torch.equal(one.shares(), two.shares())
    one.learn(feedback([1.0, 0.0, 1.0]))
    two.learn(feedback([1.0, 0.0, 1.0]))
    assert torch.equal(one.shares(), two.shares())


@pytest.mark.parametrize("arguments", [{"rate": 0.0}, {"rate": 1.5}, {"strength": -1.0}, {"least": -1.0}])
def test_what_makes_no_sense_is_refused(arguments) -> None:
    with pytest.raises(SelectionError, match=str(next(iter(arguments.values())))):
        MultiplicativeWeights(**arguments)
    with pytest.raises(SelectionError, match="'table'"):
        PolicyGradient(kind="table").begin(2, 0)
