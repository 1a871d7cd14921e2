"""What a sampler draws: from which source, without replacement, epoch by epoch, on which replica."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

from headway.errors import SelectionError
from headway.selection import MultiplicativeWeights, PolicyGradient, Sources, SourceSampler, Tagged, lag
from headway.selection import epochs as module

AT_ONCE = MultiplicativeWeights(strength=40.0, rate=1.0)
"""Gives all to the best source as soon as it is known."""


def take(iterator, number: int) -> list[int]:
    return list(itertools.islice(iterator, number))


def test_an_epoch_has_as_many_indices_as_the_dataset_and_shares_are_equal_at_first() -> None:
    sampler = SourceSampler({"a": range(9000), "b": range(9000, 10_000)})
    drawn = list(sampler)
    assert len(drawn) == len(sampler) == 10_000
    shares = torch.bincount(sampler.sources.of(drawn)) / len(drawn)
    assert shares.tolist() == pytest.approx([0.5, 0.5], abs=0.02)
    assert sum(sampler.counts.values()) == 10_000


def test_draws_follow_the_shares() -> None:
    sampler = SourceSampler(torch.arange(4000) % 4, floor=0.1, ceiling={"2": 0.3}, num_samples=40_000)
    sampler.update([0, 1, 2, 3], [0.0, 1.0, 1.0, 0.5])
    for _ in range(100):
        sampler.update([0, 1, 2, 3], [0.0, 1.0, 1.0, 0.5])
    drawn = torch.bincount(sampler.sources.of(list(sampler))) / 40_000
    assert drawn.tolist() == pytest.approx(list(sampler.weights.values()), abs=0.01)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.lists(st.integers(1, 90), max_size=8))
def test_every_source_is_used_up_before_it_repeats(sizes: list[int], pauses: list[int]) -> None:
    sampler = SourceSampler(Sources.joined({str(i): size for i, size in enumerate(sizes)}), num_samples=500)
    indices, drawn = iter(sampler), []
    for pause in pauses:
        drawn += take(indices, pause)
        sampler.update([0], [1.0])
    drawn += list(indices)
    sources = sampler.sources.of(drawn)
    for source, size in enumerate(sizes):
        own = torch.tensor(drawn)[sources == source].tolist()
        for start in range(0, len(own), size):
            cycle = own[start : start + size]
            assert len(set(cycle)) == len(cycle)


def test_with_replacement_a_sample_may_repeat_at_once() -> None:
    sampler = SourceSampler({"a": range(5)}, replacement=True, num_samples=1000)
    drawn = list(sampler)
    assert set(drawn) == set(range(5))
    assert any(len(set(drawn[start : start + 5])) < 5 for start in range(0, 1000, 5))


def test_an_update_takes_effect_with_the_next_index() -> None:
    sampler = SourceSampler({"a": range(1000), "b": range(1000, 2000)}, AT_ONCE, smoothing=0.0)
    indices = iter(sampler)
    assert {index < 1000 for index in take(indices, 37)} == {True, False}
    for favourite in (1, 0, 1):
        sampler.update(["a", "b"], [1.0 - favourite, float(favourite)])
        assert {index >= 1000 for index in take(indices, 29)} == {bool(favourite)}


def test_the_usual_advice_has_no_effect_within_an_epoch() -> None:
    """Why this sampler is needed: torch's weighted sampler draws the whole epoch before its first index."""
    usual = WeightedRandomSampler(torch.ones(2000), 2000)
    indices = iter(usual)
    take(indices, 10)
    usual.weights[:1000] = 0.0
    assert {index < 1000 for index in indices} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, 64, 5000])
def test_what_is_drawn_does_not_depend_on_the_chunks(monkeypatch, size: int) -> None:
    def draw() -> list[int]:
        sampler = SourceSampler(torch.arange(3000) % 3, PolicyGradient(), num_samples=3000)
        indices, drawn = iter(sampler), []
        for number in (1, 50, 129, 700):
            drawn += take(indices, number)
            sampler.update([0, 1, 2], [1.0, 2.0, 5.0])
        assert len(sampler.counts) == 3
        return drawn + list(indices)

    expected = draw()
    monkeypatch.setattr(module, "SMALLEST_CHUNK", size)
    monkeypatch.setattr(module, "LARGEST_CHUNK", size)
    assert draw() == expected


class Samples(Dataset):
    """Its samples are their own index, tagged with the source."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(("workers", "prefetch"), [(0, None), (1, 3), (2, 2)])
def test_a_source_whose_score_rises_is_drawn_more_within_the_lag(workers: int, prefetch: int | None) -> None:
    sampler = SourceSampler({"a": range(1000), "b": range(1000, 2000)}, AT_ONCE)
    data = Tagged(Samples(), sampler.sources)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=workers, prefetch_factor=prefetch)
    ahead = workers * (prefetch or 0) * 8
    assert lag(loader) == ahead
    sources: list[int] = []
    update_at = 10 * 8
    for number, (_, source) in enumerate(loader, 1):
        sources += source.tolist()
        if number * 8 == update_at:
            sampler.update(["a", "b"], [0.0, 1.0])
        if number == 40:
            break
    before, in_flight, after = sources[:update_at], sources[update_at : update_at + ahead], sources[update_at + ahead :]
    assert 0 < sum(before) < len(before)
    assert not in_flight or 0 < sum(in_flight) < len(in_flight)  # drawn before the update
    assert set(after) == {1}  # nothing later is


def test_the_lag_counts_what_a_framework_looks_ahead() -> None:
    assert lag(DataLoader([0] * 10, batch_size=5), lookahead=1) == 5
    assert lag(DataLoader([0] * 10, batch_size=5, num_workers=2, prefetch_factor=4), lookahead=1) == 45
    with pytest.raises(SelectionError, match="a batch size"):
        lag(DataLoader([0] * 10, batch_size=None))


def test_epochs_differ_and_are_reproducible() -> None:
    one, two = (SourceSampler(torch.arange(100) % 2) for _ in range(2))
    epochs = [list(one) for _ in range(3)]
    assert one.epoch == 2
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [list(two) for _ in range(3)] == epochs
    assert list(SourceSampler(torch.arange(100) % 2, seed=1)) != epochs[0]


def test_set_epoch_chooses_the_random_numbers_and_begins_anew() -> None:
    one, two = (SourceSampler({"a": [0], "b": [1]}, num_samples=200) for _ in range(2))
    one.set_epoch(5)
    fifth = list(one)
    list(two)
    take(iter(two), 3)
    two.set_epoch(5)
    assert list(two) == fifth  # each source has one sample, so that only the choice of sources matters
    two.set_epoch(5)
    assert list(two) == fifth
    assert list(two) != fifth


def test_naming_the_epoch_that_is_under_way_changes_nothing() -> None:
    one, two = (SourceSampler(torch.arange(50) % 2) for _ in range(2))
    indices = iter(two)
    drawn = take(indices, 7)
    two.set_epoch(0)  # as a framework does after its loader has begun to prefetch
    assert drawn + list(indices) == list(one)


def test_naming_an_epoch_that_was_drawn_up_to_its_end_forgets_nothing() -> None:
    """A loader with workers may have all of it in flight by then."""
    sampler = SourceSampler({"a": [0], "b": [1]}, num_samples=50)
    indices = iter(sampler)
    drawn = take(indices, 50)
    sampler.set_epoch(0)
    assert list(indices) == []
    assert sampler.state_dict(consumed=20)["pending"].tolist() == drawn[20:]
    assert list(sampler) == drawn  # each source has one sample, so that only the choice of sources matters
    assert sampler.epoch == 0


def test_a_stretch_begins_where_counting_begins() -> None:
    sampler = SourceSampler(torch.arange(50) % 2)
    found = [sampler.stretch]

    def note() -> tuple[int, int]:
        found.append(sampler.stretch)
        return found[-1]

    indices = iter(sampler)
    take(indices, 7)
    assert note()[1] == 0
    sampler.set_epoch(0)
    take(indices, 7)
    assert sampler.stretch == found[-1]  # it goes on
    take(iter(sampler), 7)  # it was left, and begins anew
    assert note()[1] == 0
    sampler.set_epoch(5)
    assert note()[1] == 0
    take(iter(sampler), 20)
    assert note()[1] == 0
    sampler.load_state_dict(sampler.state_dict(consumed=12))
    assert note()[1] == 12
    assert len(set(found)) == len(found)


def test_an_epoch_that_was_left_begins_anew_where_it_is_named_again() -> None:
    one, two = (SourceSampler({"a": [0], "b": [1]}, num_samples=50) for _ in range(2))
    whole = [list(one) for _ in range(2)]
    two.set_epoch(0)
    assert take(iter(two), 10) == whole[0][:10]
    two.set_epoch(0)
    assert list(two) == whole[0]  # each source has one sample, so that only the choice of sources matters
    assert two.epoch == 0
    two.set_epoch(1)
    assert list(two) == whole[1] != whole[0]


def test_naming_an_epoch_does_not_outlast_it() -> None:
    sampler = SourceSampler(torch.arange(50) % 2)
    indices = iter(sampler)
    take(indices, 7)
    sampler.set_epoch(0)
    list(indices)
    take(iter(sampler), 7)
    assert sampler.epoch == 1
    list(sampler)
    assert sampler.epoch == 2


def test_an_epoch_that_was_left_is_not_continued() -> None:
    sampler = SourceSampler(torch.arange(50) % 2)
    take(iter(sampler), 20)
    assert len(list(sampler)) == 50
    assert sampler.epoch == 1


def test_making_an_iterator_draws_nothing() -> None:
    sampler = SourceSampler(torch.arange(50) % 2)
    for _ in range(3):
        iter(sampler)
    assert sampler.epoch == 0
    assert sum(sampler.counts.values()) == 0
    first = iter(sampler)
    next(first)
    next(iter(sampler))
    with pytest.raises(SelectionError, match="one iteration at a time"):
        list(first)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_draw_the_same_and_share_it(replicas: int) -> None:
    def draw(rank: int, of: int) -> list[int]:
        sampler = SourceSampler(torch.arange(300) % 3, num_samples=301, rank=rank, num_replicas=of)
        indices, drawn = iter(sampler), []
        while len(drawn) * of < 150:
            drawn += take(indices, 6 // of)
        sampler.update([0, 1, 2], [1.0, 2.0, 9.0])
        drawn += list(indices)
        assert len(drawn) == len(sampler) == 301 // of
        return drawn

    together = draw(0, 1)[: 301 // replicas * replicas]
    parts = [draw(rank, replicas) for rank in range(replicas)]
    assert [index for group in zip(*parts, strict=True) for index in group] == together


def test_a_sampler_can_be_sharded_until_it_begins() -> None:
    early, late = SourceSampler(torch.arange(99) % 3, rank=1, num_replicas=2), SourceSampler(torch.arange(99) % 3)
    late.shard(1, 2)
    assert len(late) == 49
    assert list(late) == list(early)
    with pytest.raises(SelectionError, match="handed out nothing"):
        late.shard(0, 2)
    late.shard(1, 2)  # nothing changes
    assert list(late) == list(early)


def test_it_says_what_it_does() -> None:
    sampler = SourceSampler({"web": [0], "books": [1]})
    assert repr(sampler) == "SourceSampler(web: 0.500, books: 0.500)"
    assert sampler.weights == {"web": 0.5, "books": 0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "rank and num_replicas together"),
        ({"rank": 2, "num_replicas": 2}, "from 0 to 1, got 2"),
        ({"rank": 0, "num_replicas": 0}, "got 0"),
        ({"rank": 0, "num_replicas": 9}, "each of 9 replicas, got 4"),
        ({"num_samples": 0}, "got 0 samples"),
        ({"history": 0}, "history of at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message) -> None:
    with pytest.raises(SelectionError, match=message):
        SourceSampler([0, 0, 1, 1], **arguments)
