"""Drawing without replacement."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import SelectionError
from headway.selection import Pools


def make(sizes: list[int], seed: int = 0) -> Pools:
    bounds = torch.tensor([0, *sizes]).cumsum(0).tolist()
    members = [torch.arange(a, b) for a, b in itertools.pairwise(bounds)]
    return Pools(members, torch.Generator().manual_seed(seed))


@settings(max_examples=50)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.lists(st.integers(0, 9), max_size=60), st.integers(0, 9))
def test_every_source_is_used_up_before_it_repeats(sizes: list[int], choices: list[int], seed: int) -> None:
    pools = make(sizes, seed)
    starts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    history: dict[int, list[int]] = {source: [] for source in range(len(sizes))}
    for start in range(0, len(choices), 7):
        sources = torch.tensor([c % len(sizes) for c in choices[start : start + 7]])
        for source, pick in zip(sources.tolist(), pools.draw(sources).tolist(), strict=True):
            history[source].append(pick)
    for source, picks in history.items():
        own = set(range(starts[source], starts[source + 1]))
        for start in range(0, len(picks), sizes[source]):
            block = picks[start : start + sizes[source]]
            assert len(set(block)) == len(block)
            assert set(block) <= own


def test_saved_and_loaded_continues_identically() -> None:
    pools, other = make([5, 3]), make([5, 3], 1)
    sources = torch.tensor([0, 1, 0, 0, 1, 1, 0])
    pools.draw(sources)
    other.load_state_dict(copy.deepcopy(pools.state_dict()))
    other._generator.set_state(pools._generator.get_state())
    for _ in range(5):
        assert torch.equal(pools.draw(sources), other.draw(sources))


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(SelectionError, match=r"none in \[1\]"):
        make([2, 0, 3])
