"""Random numbers that a few whole numbers identify."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.selection.draws import BLOCK, Recent, ShuffledOrder, generator_for, uniforms


def test_paths_have_generators_of_their_own_that_never_change() -> None:
    def first(*path) -> float:
        return torch.rand(1, dtype=torch.float64, generator=generator_for(*path)).item()

    assert first(0, "a", 1) == first(0, "a", 1)
    assert len({first(0, "a", 1), first(0, "a", 2), first(1, "a", 1), first(0, "b", 1)}) == 4
    seed = generator_for(0, "sources", 0, 0).initial_seed()
    assert seed == 1_733_955_580_059_721_921  # a state that was saved elsewhere must mean the same here


@settings(max_examples=30)
@given(st.integers(0, 3 * BLOCK), st.lists(st.integers(0, BLOCK + 5), min_size=1, max_size=4))
def test_a_stream_reads_the_same_in_any_pieces(place: int, counts: list[int]) -> None:
    whole = uniforms(3, 1).read(place, sum(counts))
    stream = uniforms(3, 1)
    pieces = []
    for count in counts:
        pieces.append(stream.read(place, count))
        place += count
    assert torch.equal(torch.cat(pieces), whole)
    assert len(whole) == sum(counts)


def test_epochs_have_streams_of_their_own() -> None:
    assert not torch.equal(uniforms(0, 0).read(0, 8), uniforms(0, 1).read(0, 8))
    assert not torch.equal(uniforms(0, 0).read(0, 8), uniforms(0, 0).read(BLOCK, 8))


@settings(max_examples=30)
@given(st.sampled_from([1, 2, 7, 100, BLOCK - 1, BLOCK, BLOCK + 1]), st.integers(0, 9), st.integers(0, 3000))
def test_a_deck_is_used_up_before_it_repeats(size: int, seed: int, start: int) -> None:
    order = ShuffledOrder(torch.arange(size) * 10, seed, 0)
    order.taken = start - start % size
    for _ in range(3):
        assert sorted(order.peek(size).tolist()) == list(range(0, 10 * size, 10))
        order.taken += size


def test_orders_differ_between_rounds_sources_and_seeds() -> None:
    order = ShuffledOrder(torch.arange(50), 0, 0)
    rounds = order.peek(150).split(50)
    others = [ShuffledOrder(torch.arange(50), 0, 1).peek(50), ShuffledOrder(torch.arange(50), 1, 0).peek(50)]
    assert len({tuple(order.tolist()) for order in (*rounds, *others)}) == 5


def test_short_orders_are_fair() -> None:
    """All six orders of three samples come up equally often: chi-square, 5 degrees of freedom, p = 0.001 at 20.5."""
    orders = ShuffledOrder(torch.arange(3), 0, 0).peek(3 * 6000).view(-1, 3)
    counts = torch.bincount(orders[:, 0] * 3 + orders[:, 1], minlength=9)
    counts = counts[counts > 0].double()
    assert len(counts) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5


def test_replacement_draws_from_all_each_time() -> None:
    picks = ShuffledOrder(torch.arange(4), 0, 0, replacement=True).peek(20_000)
    assert ((torch.bincount(picks) - 5000).abs() < 250).all()
    repeats = (picks[1:] == picks[:-1]).double().mean()
    assert abs(repeats - 0.25) < 0.02


@given(st.integers(1, 20), st.lists(st.integers(0, 9), max_size=12), st.integers(0, 20))
def test_the_latest_numbers_are_remembered(limit: int, lengths: list[int], wanted: int) -> None:
    recent, everything = Recent(limit), []
    for length in lengths:
        piece = list(range(len(everything), len(everything) + length))
        everything += piece
        recent.append(torch.tensor(piece, dtype=torch.int64))
    assert len(recent) >= min(limit, len(everything))
    wanted = min(wanted, len(recent))
    assert recent.last(wanted).tolist() == everything[len(everything) - wanted :]
