"""The actor against a hand calculation and its own past."""

from __future__ import annotations

import copy

import pytest
import torch

from headway.errors import SelectionError
from headway.selection import Actor, ActorConfig


def make(seed: int = 0, **options) -> Actor:
    return Actor(ActorConfig(**{"sources": 4, "hidden": (16, 16), **options}), torch.Generator().manual_seed(seed))


def shares(actor: Actor, samples: int = 20_000) -> list[float]:
    return (torch.bincount(actor.draw(samples), minlength=4) / samples).tolist()


def test_plain_logits_start_uniform() -> None:
    assert shares(make(kind="logits")) == pytest.approx([0.25] * 4, abs=0.02)


def test_draws_follow_the_policy() -> None:
    actor = make(kind="logits")
    actor.policy.logits.data = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    assert shares(actor) == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.02)


def test_a_step_follows_the_policy_gradient() -> None:
    """d/dlogits of -mean(log pi(a) r) - w H, by hand for plain logits."""
    actor = make(kind="logits", entropy_weight=0.3)
    logits = torch.tensor([0.5, -0.2, 0.1, 0.0])
    actor.policy.logits.data = logits.clone()
    sources = actor.draw(7)
    scores = torch.arange(7.0)
    actor.learn(scores)
    pi = logits.softmax(0)
    reward = -sum(r * (torch.nn.functional.one_hot(a, 4) - pi) for a, r in zip(sources, scores, strict=True)) / 7
    entropy = -(pi * pi.log()).sum()
    of_entropy = -pi * (pi.log() + entropy)
    torch.testing.assert_close(actor.policy.logits.grad, reward - 0.3 * of_entropy)
    torch.testing.assert_close(actor.entropy, entropy)


@pytest.mark.parametrize("kind", ["network", "logits"])
def test_it_learns_to_choose_what_scores(kind: str) -> None:
    actor = make(kind=kind, learning_rate=1e-2)
    for _ in range(200):
        sources = actor.draw(64)
        actor.learn((sources == 2).float())
    assert shares(actor)[2] > 0.9


def test_a_strong_entropy_weight_keeps_it_uniform() -> None:
    actor = make(learning_rate=1e-2, entropy_weight=50.0)
    for _ in range(200):
        actor.learn((actor.draw(64) == 2).float())
    assert shares(actor) == pytest.approx([0.25] * 4, abs=0.05)


def test_saved_and_loaded_continues_identically() -> None:
    actor = make()
    for _ in range(3):
        actor.learn(actor.draw(8).float())
    other = make(1)
    other.load_state_dict(copy.deepcopy(actor.state_dict()))
    other._generator.set_state(actor._generator.get_state())
    for _ in range(3):
        one, two = actor.draw(8), other.draw(8)
        assert torch.equal(one, two)
        actor.learn(one.float())
        other.learn(two.float())


def test_misuse_is_refused() -> None:
    with pytest.raises(SelectionError, match="draw"):
        make().learn(torch.zeros(3))
    actor = make()
    actor.draw(4)
    with pytest.raises(SelectionError, match=r"\[4\], got \[3\]"):
        actor.learn(torch.zeros(3))
    with pytest.raises(SelectionError, match="at least one source"):
        ActorConfig(0)
    with pytest.raises(SelectionError, match="'table'"):
        ActorConfig(3, kind="table")


def test_a_score_that_is_not_finite_is_refused_and_changes_nothing() -> None:
    actor = Actor(ActorConfig(sources=4, kind="logits"), torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in actor.policy.state_dict().items()}
    for bad in (float("nan"), float("inf")):
        sources = actor.draw(3)
        with pytest.raises(SelectionError, match="expected finite scores"):
            actor.learn(torch.tensor([1.0, bad, 1.0]))
        assert len(sources) == 3
    for name, value in actor.policy.state_dict().items():
        assert torch.equal(value, before[name])
