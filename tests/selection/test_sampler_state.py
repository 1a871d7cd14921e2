"""A sampler that was saved and resumed draws what it would have drawn."""

from __future__ import annotations

import io
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from headway.errors import StateError
from headway.selection import MultiplicativeWeights, PolicyGradient, SourceSampler
from tests.selection.test_sampler import Samples, take

RULES = [MultiplicativeWeights(rate=0.5), PolicyGradient()]


def make(rule=None, seed: int = 0, **arguments) -> SourceSampler:
    return SourceSampler(torch.arange(120) % 3, rule, seed=seed, **arguments)


def through_a_file(state):
    """Saved and read as a checkpoint is: weights only, no pickled objects."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("replacement", [False, True])
@settings(max_examples=20)
@given(stop=st.integers(0, 300), batch=st.integers(1, 50))
def test_it_continues_identically_from_any_index(rule, replacement: bool, stop: int, batch: int) -> None:
    def draw(sampler: SourceSampler, drawn: list[int], until: int) -> None:
        indices = iter(sampler)
        while len(drawn) < until:
            new = take(indices, min(batch - len(drawn) % batch, until - len(drawn)))
            drawn += new
            if not new:
                indices = iter(sampler)
            elif len(drawn) % batch == 0:
                sampler.update([0, 1, 2], [len(drawn) % 7, 2.0, 1.0])

    whole: list[int] = []
    draw(make(rule, replacement=replacement), whole, 360)
    first, drawn = make(rule, replacement=replacement), []
    draw(first, drawn, stop)
    second = make(rule, seed=9, replacement=replacement)
    second.load_state_dict(through_a_file(first.state_dict()))
    draw(second, drawn, 360)
    assert drawn == whole


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loader_with_workers_resumes_exactly(workers: int) -> None:
    """The indices in flight are drawn with the shares of their time, so they have to be handed out again."""

    def loader(sampler: SourceSampler) -> DataLoader:
        return DataLoader(Samples(), 4, sampler=sampler, num_workers=workers, prefetch_factor=2 if workers else None)

    def train(sampler: SourceSampler, until: int, consumed: int = 0) -> list[int]:
        drawn = []
        for batch in loader(sampler):
            drawn += batch.tolist()
            sampler.update(sampler.sources.of(batch), batch % 5)
            if consumed + len(drawn) == until:
                break
        return drawn

    whole = train(make(), 120)
    first = make()
    drawn = train(first, 52)
    state = first.state_dict(consumed=52)
    assert len(state["pending"]) == (16 if workers else 0)
    second = make(seed=1)
    second.load_state_dict(through_a_file(state))
    assert drawn + train(second, 120, consumed=52) == whole


def test_what_is_pending_survives_being_saved_again() -> None:
    first = make()
    whole = take(iter(first), 30)
    second = make(seed=1)
    second.load_state_dict(first.state_dict(consumed=10))
    indices = iter(second)
    assert take(indices, 5) == whole[10:15]
    third = make(seed=2)
    third.load_state_dict(second.state_dict(consumed=12))
    assert take(iter(third), 30)[:18] == whole[12:]
    second.update([0], [1.0])
    assert take(indices, 15) == whole[15:]


def test_a_state_from_the_end_of_an_epoch_continues_with_the_next() -> None:
    first, second = make(), make(seed=1)
    list(first)
    second.load_state_dict(first.state_dict())
    assert list(second) == list(first)
    assert second.epoch == first.epoch == 1


def test_set_epoch_continues_the_epoch_that_was_loaded() -> None:
    first = make()
    first.set_epoch(3)
    whole = list(first)
    first.set_epoch(3)
    again = list(first)
    for stop in (50, 120):
        one = make()
        one.set_epoch(3)
        assert take(iter(one), stop) == whole[:stop]
        two = make(seed=1)
        two.load_state_dict(one.state_dict())
        two.set_epoch(3)
        assert list(two) == whole[stop:]
        three = make(seed=1)
        three.load_state_dict(one.state_dict())
        three.set_epoch(4)
        assert len(list(three)) == 120
        assert three.epoch == 4
    assert again != whole


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 4)])
def test_the_number_of_replicas_may_change(before: int, after: int) -> None:
    whole = list(make())
    saved = [make(rank=rank, num_replicas=before) for rank in range(before)]
    handed = [take(iter(sampler), 60 // before) for sampler in saved]
    assert [index for group in zip(*handed, strict=True) for index in group] == whole[:60]
    state = saved[-1].state_dict(consumed=40 // before)
    parts = []
    for rank in range(after):
        sampler = make(seed=1, rank=rank, num_replicas=after)
        sampler.load_state_dict(state)
        parts.append(list(sampler))
    assert [index for group in zip(*parts, strict=True) for index in group] == whole[40:]


def test_states_are_small_and_do_not_change_afterwards() -> None:
    sampler = SourceSampler({"a": range(100_000), "b": range(100_000, 200_000)})
    indices = iter(sampler)
    take(indices, 1000)
    state = sampler.state_dict()
    file = io.BytesIO()
    torch.save(state, file)
    assert len(file.getvalue()) < 10_000
    text = str(state)
    take(indices, 500)
    sampler.update([0, 1], [1.0, 3.0])
    assert str(state) == text


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda state: {**state, "schema": 2}, "schema 1, got 2"),
        (lambda state: {**state, "sizes": [40, 80]}, r"sizes \[40, 40, 40\], got \[40, 80\]"),
        (lambda state: {**state, "replacement": True}, "replacement False, got True"),
        (lambda state: {**state, "position": 121}, "up to 120"),
        (lambda state: {**state, "position": 3}, "that 2 replicas share, got 3"),
        (lambda state: {**state, "mixture": {**state["mixture"], "names": ["x"]}}, "got one of x"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(other, message) -> None:
    sampler = make(rank=0, num_replicas=2)
    indices = iter(sampler)
    take(indices, 10)
    state = sampler.state_dict()
    with pytest.raises(StateError, match=message):
        sampler.load_state_dict(other(state))
    assert len(list(itertools.chain(indices))) == 50


def test_going_back_too_far_is_refused() -> None:
    sampler = make(history=10)
    take(iter(sampler), 100)
    assert len(sampler.state_dict(consumed=95)["pending"]) == 5
    with pytest.raises(StateError, match=r"at least \d+ consumed samples, got 20; a larger history="):
        sampler.state_dict(consumed=20)
    with pytest.raises(StateError, match="at most the 100 samples that were drawn in epoch 0, got 101 consumed"):
        sampler.state_dict(consumed=101)


def test_the_last_batch_of_an_epoch_may_be_short() -> None:
    sampler = make()
    whole = list(sampler)
    batch = len(whole) // 3 + 1
    state = sampler.state_dict(consumed=3 * batch)  # as counted in whole batches
    assert state["position"] == len(whole)
    assert not len(state["pending"])
