"""The rules of the literature, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from headway.errors import SelectionError
from headway.selection import ADO, EXP3S, TSCL, GroupDRO, Mixture, SelfPaced
from headway.selection.rules import Feedback

RULES = [EXP3S(), TSCL(), TSCL(slope="online", policy="greedy"), ADO(refit=5), GroupDRO(average=True), SelfPaced()]


def feedback(scores: list[float], counts: list[int] | None = None) -> Feedback:
    values = torch.tensor(scores, dtype=torch.float64)
    return Feedback(values, values, torch.tensor(counts or [4] * len(scores)))


def test_two_steps_of_exp3s() -> None:
    learner = EXP3S(rate=0.5, explore=0.2).begin(2, 0)
    learner.learn(feedback([3.0, 1.0], [1, 3]))
    # Quantiles 0.2 and 0.8 of {1, 3}: 1.4 and 2.6, so that the scores become 1 and -1 after clipping.
    # Rewards: 1/4 * 1 / 0.5 and 3/4 * -1 / 0.5. With a = 1 each weight becomes the other's.
    grown = [math.exp(0.5 * 0.5), math.exp(0.5 * -1.5)]
    w = [math.log(grown[1]), math.log(grown[0])]
    p = [0.8 * math.exp(w[i]) / (math.exp(w[0]) + math.exp(w[1])) + 0.1 for i in (0, 1)]
    assert learner.shares().tolist() == pytest.approx(p)
    learner.learn(feedback([3.0, 1.0], [2, 2]))
    w = [w[0] + 0.5 * 0.5 / p[0], w[1] - 0.5 * 0.5 / p[1]]
    mixed = [0.5 * math.exp(w[0]) + 0.5 * math.exp(w[1])] * 2
    assert learner.shares().tolist() == pytest.approx([0.8 * m / sum(mixed) + 0.1 for m in mixed])


def test_exp3s_finds_the_best_source_although_it_sees_only_what_it_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    learner = EXP3S(rate=0.05).begin(4, 0)
    for _ in range(3000):
        source = int(torch.multinomial(learner.shares(), 1, generator=generator))
        counts = [int(i == source) for i in range(4)]
        reward = (0.8 if source == 2 else 0.2) + 0.1 * float(torch.randn(1, generator=generator))
        learner.learn(Feedback(torch.zeros(4), torch.tensor(counts).double() * reward, torch.tensor(counts)))
    assert int(learner.shares().argmax()) == 2


def test_tscl_follows_the_slope_without_its_sign() -> None:
    learner = TSCL(window=4, temperature=0.5, explore=0.1).begin(3, 0)
    for step in range(4):
        learner.learn(feedback([2.0 * step, -4.0 * step, 7.0]))
    weights = [math.exp(0.5 / 0.5), math.exp(1.0 / 0.5), 1.0]
    expected = [0.9 * w / sum(weights) + 0.1 / 3 for w in weights]
    assert learner.shares().tolist() == pytest.approx(expected)


def test_tscl_online_averages_changes_and_greedy_takes_the_greatest() -> None:
    learner = TSCL(slope="online", policy="greedy", rate=0.5, explore=0.2).begin(2, 0)
    learner.learn(feedback([1.0, 1.0]))
    assert learner.shares().tolist() == [0.5, 0.5]
    learner.learn(feedback([2.0, 1.5]))  # Q = 0.5, 0.25
    assert learner.shares().tolist() == pytest.approx([0.9, 0.1])
    learner.learn(feedback([2.0, 4.0]))  # Q = 0.25, 1.375
    assert learner.shares().tolist() == pytest.approx([0.1, 0.9])


def test_ado_prefers_what_still_falls() -> None:
    """The shares by hand from the fitted power laws, at the batch of the first fit."""
    rule = ADO(refit=64, mix=0.5, least=0.0)
    learner = rule.begin(2, 0)
    for step in range(64):
        n = 100 * step + 50.5
        learner.learn(feedback([5 * n**-0.5, 1.0 + 5 * n**-2.0], [100, 100]))
    n = 6400
    fall = [2.5 * n**-1.5, 10 * n**-3.0]
    preference = [f / sum(fall) for f in fall]
    assert learner.shares().tolist() == pytest.approx([0.5 * p + 0.25 for p in preference], abs=0.02)


def test_group_dro_multiplies_by_what_is_lost() -> None:
    learner = GroupDRO(rate=2.0, explore=0.1).begin(2, 0)
    learner.learn(feedback([0.5, -1.0]))
    learner.learn(feedback([0.25, 0.5]))
    weights = [math.exp(2 * 0.75), math.exp(2 * 0.5)]
    assert learner.shares().tolist() == pytest.approx([0.9 * w / sum(weights) + 0.05 for w in weights])


def test_group_dro_averages_its_shares_if_asked() -> None:
    plain, average = GroupDRO().begin(2, 0), GroupDRO(average=True).begin(2, 0)
    seen = []
    for score in (1.0, 2.0, 0.5):
        plain.learn(feedback([score, 0.0]))
        average.learn(feedback([score, 0.0]))
        seen.append(plain.shares().clone())
    assert torch.allclose(average.shares(), torch.stack(seen).mean(0))


def test_self_paced_lets_hard_sources_in_later() -> None:
    learner = SelfPaced(start=0.0, steps=4, explore=0.0).begin(4, 0)
    taking_part = []
    for _ in range(4):
        learner.learn(feedback([1.0, 2.0, 3.0, 4.0]))
        taking_part.append(int((learner.shares() > 0).sum()))
    assert taking_part == [1, 2, 3, 4]  # quantiles 1/4, 1/2, 3/4 and 1 of four losses
    assert learner.shares().tolist() == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_every_rule_gives_shares_and_resumes_exactly(rule) -> None:
    generator = torch.Generator().manual_seed(0)
    mixture = Mixture(["a", "b", "c"], rule)
    batches = [(torch.randint(3, (8,), generator=generator), torch.rand(8, generator=generator)) for _ in range(40)]
    for batch in batches[:20]:
        mixture.update(*batch)
    other = Mixture(["a", "b", "c"], rule)
    other.load_state_dict(mixture.state_dict())
    for batch in batches[20:]:
        mixture.update(*batch)
        other.update(*batch)
    assert torch.equal(mixture.shares, other.shares)
    assert float(mixture.shares.sum()) == pytest.approx(1.0)
    assert float(mixture.shares.min()) >= 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_one_source_has_everything(rule) -> None:
    mixture = Mixture(["only"], rule)
    for _ in range(30):
        mixture.update([0, 0], [1.0, 2.0])
    assert mixture.weights == {"only": pytest.approx(1.0)}


def test_priors_floors_and_feedback_hold_for_every_rule() -> None:
    mixture = Mixture(["a", "b"], TSCL(), prior={"a": 300, "b": 100}, floor={"b": 0.2})
    assert mixture.weights == pytest.approx({"a": 0.75, "b": 0.25})
    for loss in (3.0, 2.0, 1.0, 0.5):
        mixture.feedback({"a": loss, "b": 1.0})
    assert mixture.weights["a"] == pytest.approx(0.8)
    held = Mixture(["a", "b"], GroupDRO(), prior=[1, 3], hold=1.0)
    held.feedback({"a": 100.0})
    assert held.weights == pytest.approx({"a": 0.25, "b": 0.75})
    for prior in ({"a": 1.0}, [1.0, 0.0], [1.0]):
        with pytest.raises(SelectionError, match="prior"):
            Mixture(["a", "b"], prior=prior)


def test_bad_arguments_are_named() -> None:
    for make in (
        lambda: EXP3S(explore=2.0),
        lambda: TSCL(window=1),
        lambda: TSCL(policy="best"),
        lambda: ADO(mix=-1),
        lambda: GroupDRO(rate=-1),
        lambda: SelfPaced(steps=0),
    ):
        with pytest.raises(SelectionError, match="expected"):
            make()
