"""Samples by priority: the tree against plain sums, the sampler against its probabilities."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from headway.errors import SelectionError, StateError
from headway.selection import PrioritizedSampler, SumTree, select


def take(iterator, number: int) -> list[int]:
    return list(itertools.islice(iterator, number))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 700), st.integers(0, 2**20))
def test_the_tree_draws_as_a_search_in_cumulated_sums_does(size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(size, generator=generator, dtype=torch.float64) * (torch.rand(size, generator=generator) > 0.3)
    weights[int(torch.randint(size, (1,), generator=generator))] = 1.0
    tree = SumTree(torch.zeros(size))
    tree.set(torch.arange(size), weights)
    assert tree.total == pytest.approx(float(weights.sum()))
    uniforms = torch.rand(200, generator=generator, dtype=torch.float64)
    expected = torch.searchsorted(weights.cumsum(0), uniforms * weights.sum(), right=True)
    assert tree.draw(uniforms).tolist() == expected.tolist()


def test_updates_change_every_level() -> None:
    tree = SumTree(torch.ones(5000))
    tree.set(torch.tensor([3, 4999]), torch.tensor([10.0, 0.0]))
    assert tree.total == pytest.approx(5008.0)
    for level, above in itertools.pairwise(tree.levels):
        assert torch.allclose(level.view(-1, 16).sum(1), above[: len(level) // 16])


def test_draws_follow_the_formula() -> None:
    scores = torch.tensor([1.0, 2.0, 4.0, 8.0])
    sampler = PrioritizedSampler(4, alpha=0.5, least=1e-9, num_samples=40_000)
    sampler.update(range(4), scores)
    counts = torch.bincount(torch.tensor(list(sampler))) / 40_000
    expected = scores.sqrt() / scores.sqrt().sum()
    assert counts.tolist() == pytest.approx(expected.tolist(), abs=0.01)
    assert sampler.probabilities(torch.arange(4)).tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_samples_without_a_score_have_the_greatest_priority() -> None:
    sampler = PrioritizedSampler(4, alpha=1.0, least=1e-9)
    assert sampler.probabilities(torch.arange(4)).tolist() == pytest.approx([0.25] * 4)
    sampler.update([0, 1], [3.0, 1.0])
    assert sampler.probabilities(torch.arange(4)).tolist() == pytest.approx([0.3, 0.1, 0.3, 0.3])


def test_importance_weights_make_the_mean_unbiased() -> None:
    values = torch.tensor([1.0, 5.0, -2.0, 10.0])
    sampler = PrioritizedSampler(4, alpha=1.0, beta=1.0, num_samples=100_000)
    sampler.update(range(4), [1.0, 2.0, 3.0, 4.0])
    drawn = torch.tensor(list(sampler))
    weighted = values[drawn] * sampler.importance(drawn)
    assert float(weighted.mean()) == pytest.approx(float(values.mean()), abs=0.05)
    assert sampler.importance([3])[0] == pytest.approx(1 / (4 * 0.4), rel=1e-5)


def test_importance_is_that_of_the_draw_also_after_later_updates() -> None:
    sampler = PrioritizedSampler(2, alpha=1.0, beta=1.0, least=1e-9)
    sampler.update([0, 1], [1.0, 3.0])
    iterator = iter(sampler)
    drawn = take(iterator, 1)
    before = sampler.importance(drawn)
    assert float(before) == pytest.approx([2.0, 2 / 3][drawn[0]])  # drawn with probability 1/4 or 3/4
    sampler.update([0, 1], [5.0, 5.0])
    assert torch.equal(sampler.importance(drawn), before)


def test_staleness_comes_back_to_samples_of_no_interest() -> None:
    plain, stale = (PrioritizedSampler(50, staleness=s, alpha=1.0, num_samples=2000) for s in (0.0, 0.3))
    for sampler in (plain, stale):
        sampler.update(range(50), [1.0] + [1e-9] * 49)
    assert len(set(plain)) < len(set(stale)) == 50
    ages = stale._drawn - stale._last.weights
    expected = 0.3 * ages / ages.sum()
    expected[0] += 0.7 * (1 + 1e-6) / (stale._priorities.total)
    assert torch.allclose(stale.probabilities(torch.arange(50)), expected, atol=1e-4)
    assert float(stale.probabilities(torch.arange(50)).sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("staleness", [0.0, 0.2])
def test_a_state_continues_to_the_index(staleness: float) -> None:
    def train(sampler: PrioritizedSampler, iterator, batches: int) -> list[int]:
        seen = []
        for _ in range(batches):
            batch = take(iterator, 8)
            seen += batch
            sampler.update(batch, [index % 7 for index in batch])
        return seen

    sampler = PrioritizedSampler(300, staleness=staleness, seed=3)
    iterator = iter(sampler)
    train(sampler, iterator, 10)
    state = sampler.state_dict()
    expected = train(sampler, iterator, 20)
    other = PrioritizedSampler(300, staleness=staleness, seed=9)
    other.load_state_dict(state)
    assert train(other, iter(other), 20) == expected
    with pytest.raises(StateError, match="size"):
        PrioritizedSampler(301, staleness=staleness).load_state_dict(state)


def test_what_a_loader_has_drawn_ahead_is_handed_out_again() -> None:
    sampler = PrioritizedSampler(64, seed=1)
    drawn = take(iter(sampler), 32)
    state = sampler.state_dict(consumed=8)
    other = PrioritizedSampler(64, seed=1)
    other.load_state_dict(state)
    assert take(iter(other), 24) == drawn[8:]


def test_replicas_share_one_sequence() -> None:
    whole = list(PrioritizedSampler(100, seed=5, rank=0, num_replicas=1))
    parts = [list(PrioritizedSampler(100, seed=5, rank=rank, num_replicas=2)) for rank in (0, 1)]
    assert [index for pair in zip(*parts, strict=True) for index in pair] == whole


def test_it_drives_a_loader() -> None:
    data = TensorDataset(torch.arange(50))
    sampler = PrioritizedSampler(data, num_samples=200)
    loader = DataLoader(data, batch_size=20, sampler=sampler)
    for (index,) in loader:
        sampler.update(index, (index == 7).float())
    assert sampler.probabilities(torch.tensor([7])) > 0.5
    assert "50 samples" in repr(sampler)


def test_bad_scores_and_bad_arguments() -> None:
    sampler = PrioritizedSampler(5)
    with pytest.warns(UserWarning, match="1 of 2"):
        sampler.update([0, 1], [float("nan"), 2.0])
    assert sampler.skipped == 1
    sampler.update([0, 0], [1.0, -4.0])  # the last one counts, without its sign
    assert float(sampler.probabilities(torch.tensor([0]))) > float(sampler.probabilities(torch.tensor([1])))
    sampler.update([0], None)
    for indices, scores in (([5], [1.0]), ([-1], [1.0]), ([0, 1], [1.0]), ([0.5], [1.0])):
        with pytest.raises(SelectionError, match="expected"):
            sampler.update(indices, scores)
    for arguments in ({"size": 0}, {"size": 5, "alpha": 2.0}, {"size": 5, "least": 0.0}, {"size": 5, "staleness": -1}):
        with pytest.raises(SelectionError, match="expected"):
            PrioritizedSampler(**arguments)


def test_select_takes_the_best_of_a_batch() -> None:
    scores = torch.tensor([0.1, float("nan"), 5.0, 3.0, 4.0])
    assert select(scores, 3).tolist() == [2, 4, 3]
    assert select(scores, 2, groups=torch.tensor([0, 0, 1, 1, 1])).tolist() == [2, 0]
    with pytest.raises(SelectionError):
        select(scores, 6)
