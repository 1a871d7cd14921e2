"""Random streams: their distribution, their independence of each other and of how they are asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from headway.errors import StateError
from headway.rl.envs.streams import Streams

MASK = 2**64 - 1


def splitmix(key: int, counter: int) -> int:
    """One word, in Python's integers."""
    z = (key + counter * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_words_are_those_of_splitmix64() -> None:
    # The reference implementation's first outputs from the seed 1234567.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [splitmix(1234567, counter) for counter in range(1, 5)] == published
    streams = Streams(3, 5, 0)
    keys = streams.state_dict()["keys"]
    first, second = streams._words(np.array([2, 0]), 3), streams._words(np.array([0]), 2)
    assert first.tolist() == [[splitmix(keys[row], c) for c in (1, 2, 3)] for row in (2, 0)]
    assert second.tolist() == [[splitmix(keys[0], c) for c in (4, 5)]]


def test_uniform_numbers_are_uniform() -> None:
    numbers = Streams(200, 0, 0).uniform(np.arange(200), 1000)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert stats.kstest(numbers.reshape(-1), "uniform").pvalue > 1e-3
    assert stats.kstest(stats.kstest(numbers, "uniform", axis=1).pvalue, "uniform").pvalue > 1e-3


def test_normal_numbers_are_standard_normal_and_independent() -> None:
    numbers = Streams(500, 0, 1).normal(np.arange(500), 1001)
    assert numbers.dtype == np.float32
    assert numbers.shape == (500, 1001)
    flat = numbers.reshape(-1).astype(float)
    assert stats.kstest(flat, "norm").pvalue > 1e-3
    assert abs(flat.mean()) < 4 / np.sqrt(len(flat))
    assert abs(flat.var() - 1) < 4 * np.sqrt(2 / len(flat))
    assert abs(stats.kurtosis(flat)) < 4 * np.sqrt(24 / len(flat))
    pairs = numbers[:, :500] * numbers[:, 501:1001]  # from one word: the same radius
    assert abs(np.corrcoef(numbers[:, :500].reshape(-1), numbers[:, 501:1001].reshape(-1))[0, 1]) < 4 / np.sqrt(
        pairs.size
    )
    squares = numbers[:, :500] ** 2, numbers[:, 501:1001] ** 2
    assert abs(np.corrcoef(squares[0].reshape(-1), squares[1].reshape(-1))[0, 1]) < 4 / np.sqrt(pairs.size)
    assert np.abs(np.corrcoef(numbers[:40])[~np.eye(40, dtype=bool)]).max() < 5 / np.sqrt(1001)


@pytest.mark.parametrize("draw", ["uniform", "normal"])
def test_a_stream_depends_neither_on_the_others_nor_on_its_place(draw: str) -> None:
    many, one = Streams(37, 3, 1), Streams(20, 3, 1)
    together = getattr(many, draw)(np.arange(37), 65)
    for row in (19, 0, 7):
        alone = getattr(one, draw)(np.array([row]), 65)
        assert np.array_equal(alone[0], together[row])


def test_seeds_and_purposes_make_different_streams() -> None:
    rows = np.arange(4)
    words = {(seed, purpose): Streams(4, seed, purpose).uniform(rows, 4) for seed in (0, 1) for purpose in (0, 1)}
    assert len({each.tobytes() for each in words.values()}) == 4
    assert len(np.unique(np.concatenate(list(words.values())))) == 64


def test_some_streams_can_start_anew() -> None:
    streams, fresh = Streams(3, 0, 0), Streams(3, 9, 0)
    before = Streams(3, 0, 0).uniform(np.arange(3), 4)
    streams.uniform(np.arange(3), 2)
    streams.seed(9, np.array([1]))
    numbers = streams.uniform(np.arange(3), 2)
    assert np.array_equal(numbers[[0, 2]], before[[0, 2], 2:])
    assert np.array_equal(numbers[1], fresh.uniform(np.array([1]), 2)[0])


def test_saved_and_loaded_goes_on_identically() -> None:
    streams, other = Streams(3, 0, 0), Streams(3, 1, 0)
    streams.normal(np.array([0, 2]), 7)
    other.load_state_dict(json.loads(json.dumps(streams.state_dict())))
    rows = np.arange(3)
    assert np.array_equal(streams.uniform(rows, 5), other.uniform(rows, 5))
    with pytest.raises(StateError, match="state of 2 random streams, got 3"):
        Streams(2, 0, 0).load_state_dict(streams.state_dict())


def test_the_last_normal_numbers_can_be_had_again() -> None:
    streams = Streams(2, 0, 0)
    rows = np.arange(2)
    first = streams.normal(rows, 9)
    assert np.array_equal(streams.last_normal(rows, 9), first)
    assert not np.array_equal(streams.normal(rows, 9), first)
