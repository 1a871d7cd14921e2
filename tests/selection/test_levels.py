"""Levels: probabilities by hand, draws that follow them, exact resumption, and levels that are learned lose share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headway
from headway.errors import SelectionError, StateError
from headway.selection import ADO, EXP3S, PLR, TSCL, GroupDRO, LevelSampler, MultiplicativeWeights, PolicyGradient
from headway.selection.rules import Feedback

RULES = [PLR(), PLR(0.5, "proportional"), TSCL(), TSCL(slope="online"), EXP3S(), GroupDRO(), ADO(refit=3)]
RULES += [MultiplicativeWeights(), PolicyGradient()]


def learned(rule: PLR, scores: list[float], counts: list[int]) -> list[float]:
    learner = rule.begin(len(scores), 0)
    values = torch.tensor(scores, dtype=torch.float64)
    learner.learn(Feedback(values, values, torch.tensor(counts)))
    return learner.shares().tolist()


# The rule


def test_shares_are_powers_of_the_inverse_rank() -> None:
    weights = [(1 / 3) ** 2, 1.0, (1 / 4) ** 2, (1 / 2) ** 2]  # ranks 3, 1, 4, 2, temperature 1/2
    expected = [weight / sum(weights) for weight in weights]
    assert learned(PLR(0.5), [0.2, 9.0, 0.1, 0.3], [1] * 4) == pytest.approx(expected)


def test_shares_are_powers_of_the_score() -> None:
    assert learned(PLR(0.5, "proportional"), [1.0, 3.0, 0.0], [1] * 3) == pytest.approx([0.1, 0.9, 0.0])
    assert learned(PLR(0.5, "proportional"), [0.0, 0.0], [1, 1]) == [0.5, 0.5]
    with pytest.raises(SelectionError, match=r"expected scores from 0 for proportional priorities, got -1"):
        learned(PLR(1.0, "proportional"), [1.0, -1.0], [1, 1])


def test_equal_scores_have_equal_shares_of_the_mean_rank() -> None:
    weights = [1 / 2, 1 / 2, 1 / 2, 1 / 4]  # ranks 1, 2, 3 are one of 2
    assert learned(PLR(1.0), [5.0, 5.0, 5.0, 1.0], [1] * 4) == pytest.approx([w / sum(weights) for w in weights])


def test_a_source_without_a_score_takes_no_rank_and_counts_as_the_best() -> None:
    weights = [1 / 2, 1.0, 1.0]  # the middle one has none; the others are ranked 2 and 1
    assert learned(PLR(1.0), [1.0, 7.0, 2.0], [1, 0, 1]) == pytest.approx([w / sum(weights) for w in weights])


# Probabilities by hand


def test_prioritized_level_replay_by_hand() -> None:
    sampler = LevelSampler([7, 8, 9, 10], PLR(1.0), staleness=0.25, sync=False)
    assert sampler.probabilities().tolist() == [0.25] * 4  # none has a score
    drawn = sampler.sample(3).tolist()
    last = {number: max(t for t, each in enumerate(drawn, 1) if each == number) for number in set(drawn)}
    sampler.update([0, 2, 2], [4.0, 1.0, 2.0])  # level 0: 4, level 2: 1.5
    ages = [3 - last.get(0, 0), 3 - last.get(2, 0)]
    replay = [0.75 * rank + 0.25 * age / sum(ages) for rank, age in zip([1 / 1.5, 0.5 / 1.5], ages, strict=True)]
    # Two of four levels have no score: half of the draws go to them, a quarter to each.
    assert sampler.probabilities().tolist() == pytest.approx([replay[0] / 2, 0.25, replay[1] / 2, 0.25])
    sampler.update(["8", "10"], [3.0, 0.5])
    ages = [3 - last.get(number, 0) for number in range(4)]
    rank = [1.0, 1 / 2, 1 / 3, 1 / 4]  # of the scores 4, 3, 1.5, 0.5
    expected = [0.75 * r / sum(rank) + 0.25 * age / sum(ages) for r, age in zip(rank, ages, strict=True)]
    assert sampler.probabilities().tolist() == pytest.approx(expected)
    sampler.update([0], [0.1])  # the latest score counts: the level falls to the last rank
    expected = [
        0.75 * r / sum(rank) + 0.25 * a / sum(ages) for r, a in zip([1 / 4, 1, 1 / 2, 1 / 3], ages, strict=True)
    ]
    assert sampler.probabilities().tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("new", "expected"), [(None, 0.5), (0.0, 0.0), (0.1, 0.1), (1.0, 1.0)])
def test_the_share_of_new_levels(new: float | None, expected: float) -> None:
    sampler = LevelSampler(10, new=new)
    sampler.update(range(5), [1.0] * 5)
    assert float(sampler.probabilities()[5:].sum()) == pytest.approx(expected)
    sampler.update(range(5, 10), [1.0] * 5)
    assert float(sampler.probabilities().sum()) == pytest.approx(1)


def test_draws_follow_the_probabilities() -> None:
    sampler = LevelSampler(5, PLR(1.0), staleness=0.0, new=0.2, seed=3)
    sampler.update([0, 1, 2], [1.0, 3.0, 2.0])
    counts = torch.bincount(sampler.sample(6000), minlength=5)
    expected = 6000 * sampler.probabilities()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < 18.5  # chi-squared with 4 degrees of freedom: 0.1%


def test_with_staleness_alone_every_level_comes_back() -> None:
    sampler = LevelSampler(20, staleness=1.0)
    sampler.update(range(20), torch.arange(20.0))
    drawn = sampler.sample(400)
    gaps = [torch.nonzero(drawn == number).flatten().diff(prepend=torch.tensor([0])).max() for number in range(20)]
    assert max(map(int, gaps)) < 150
    without = LevelSampler(20, staleness=0.0)
    without.update(range(20), torch.arange(20.0))
    assert len(without.sample(400).unique()) < 10


# Every rule chooses levels, and every state resumes


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_saved_and_resumed_equals_uninterrupted(rule: Any) -> None:
    def play(sampler: LevelSampler, generator: torch.Generator, rounds: int) -> list[int]:
        drawn = []
        for _ in range(rounds):
            numbers = sampler.sample(6)
            drawn += numbers.tolist()
            sampler.update(numbers, torch.rand(6, generator=generator) + numbers / 10)
        return drawn

    one, other = (LevelSampler(12, rule, seed=4) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    play(one, generator, 15)
    other.load_state_dict(one.state_dict())
    state = generator.get_state()
    rest = play(one, generator, 20)
    generator.set_state(state)
    assert play(other, generator, 20) == rest
    assert torch.equal(one.probabilities(), other.probabilities())
    assert len(set(rest)) > 1


@pytest.mark.parametrize("rule", [PLR(), PLR(0.3, "proportional"), MultiplicativeWeights(), TSCL(window=5)], ids=repr)
def test_levels_that_are_learned_lose_share(rule: Any) -> None:
    """A score that falls with practice on two of four levels; the other two are out of reach for now."""
    sampler, practice = LevelSampler(4, rule, seed=1), torch.zeros(4)
    for _ in range(300):
        number = int(sampler.sample())
        practice[number] += 1
        left = float(torch.exp(-torch.tensor([0.1, 0.1, 0.002, 0.002])[number] * practice[number]))
        sampler.update([number], [1 - left if isinstance(rule, TSCL) else left])  # TSCL looks at the slope of returns
    assert float(sampler.probabilities()[:2].sum()) < 0.3  # half at first


# Misuse


def test_misuse_is_told() -> None:
    with pytest.raises(SelectionError, match=r"staleness.*got 2"):
        LevelSampler(3, staleness=2)
    with pytest.raises(SelectionError, match="got 3 of which 2 differ"):
        LevelSampler([1, 1, 2])
    with pytest.raises(SelectionError, match="got -1"):
        LevelSampler([-1])
    with pytest.raises(SelectionError, match="expected levels of one kind"):
        LevelSampler({"easy": 1, "hard": {"size": 8}})
    with pytest.raises(SelectionError, match="expected at least one name"):
        LevelSampler(0)
    with pytest.raises(SelectionError, match="expected how many levels there are, seeds, or levels"):
        LevelSampler(2.5)  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match="expected priority out of rank, proportional"):
        PLR(priority="power")  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match=r"expected numbers from 0 to 2 \(0, 1, 2\), got 3 to 3"):
        LevelSampler(3).update([3], [1.0])
    with pytest.raises(SelectionError, match=r"expected one of 0, 1, .* and 990 more, got 'x'"):
        LevelSampler(1000).update(["x"], [1.0])
    with pytest.raises(SelectionError, match=r"expected 2 scores, .* got 1"):
        LevelSampler(3).update([0, 1], [1.0])
    with pytest.raises(SelectionError, match="got 'x'"):
        LevelSampler(3, floor={"x": 0.1})
    with pytest.raises(StateError, match="expected the state of a sampler with seed 0, got that of 1"):
        LevelSampler(3).load_state_dict(LevelSampler(3, seed=1).state_dict())
    with pytest.raises(StateError, match="expected a state of 0, 1, 2, got one of 0, 1, 2, 3"):
        LevelSampler(3).load_state_dict(LevelSampler(4).state_dict())


def test_levels_have_names() -> None:
    sampler = headway.LevelSampler({"easy": {"size": 5}, "hard": {"size": 8}})
    sampler.update(["hard"], [1.0])
    assert sampler.levels[1] == {"size": 8}
    assert repr(sampler) == "LevelSampler(2 levels, 1 with a score, 0 draws)"
