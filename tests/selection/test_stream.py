"""Iterable sources under shares that workers and ranks follow."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.random  # noqa: F401  (workers that are forked must not be the first to import it)
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from headway.errors import SelectionError, StateError
from headway.selection import Mixture, MultiplicativeWeights, SourceStream, lag
from tests.ranks import join_pair, leaving_together, run_ranks

SHARES = {"a": 0.7, "b": 0.2, "c": 0.08, "d": 0.02}
AT_ONCE = MultiplicativeWeights(strength=60.0, rate=1.0)


class Count(IterableDataset):
    """Whole numbers from a start, which splits itself by worker as the documentation of torch recommends."""

    def __init__(self, start: int = 0, length: int = 10**6) -> None:
        self._range = range(start, start + length)

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        yield from self._range if info is None else self._range[info.id :: info.num_workers]


class Files:
    """Whole numbers in files that can be divided, as those of Hugging Face streaming datasets."""

    def __init__(self, files: list[range]) -> None:
        self._files = files

    @property
    def num_shards(self) -> int:
        return len(self._files)

    def shard(self, num_shards: int, index: int) -> Files:
        return Files(self._files[index::num_shards])

    def __iter__(self) -> Iterator[int]:
        return itertools.chain(*self._files)


class Stateful:
    """Whole numbers, with a state; counts how many were read."""

    def __init__(self) -> None:
        self.next = self.read = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.next, self.read = self.next + 1, self.read + 1
            yield self.next - 1

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


def four(mixture: Mixture | None = None, **options: Any) -> SourceStream:
    sources = {name: Count(10**7 * number) for number, name in enumerate(SHARES)}
    return SourceStream(sources, mixture or Mixture(list(SHARES), prior=SHARES), **options)


def two(**options: Any) -> SourceStream:
    return SourceStream({"a": Count(), "b": Count(10**7)}, Mixture(["a", "b"], AT_ONCE, smoothing=0.0), **options)


def drawn(loader: DataLoader, batches: int) -> list[tuple[int, int]]:
    return [
        pair
        for x, source in itertools.islice(loader, batches)
        for pair in zip(x.tolist(), source.tolist(), strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_draws_follow_the_shares_in_every_worker(workers: int) -> None:
    total = 100 * 64
    samples = drawn(DataLoader(four(), 64, num_workers=workers), 100)
    assert len(set(samples)) == total  # no worker takes what another takes
    counts = Counter(source for _, source in samples)
    for source, share in enumerate(SHARES.values()):
        assert abs(counts[source] - share * total) < 4 * (total * share * (1 - share)) ** 0.5
    assert all(number // 10**7 == source for number, source in samples)


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_change_of_shares_shows_after_the_lag(context: str) -> None:
    stream = two()
    loader = DataLoader(stream, 8, num_workers=2, prefetch_factor=2, multiprocessing_context=context)
    batches = iter(loader)
    before = [source for _ in range(4) for source in next(batches)[1].tolist()]
    assert set(before) == {0, 1}
    stream.update([0, 1], [0.0, 1.0])
    assert stream.weights["b"] > 0.9999
    for _ in range(lag(loader) // 8):
        next(batches)
    assert {source for _ in range(8) for source in next(batches)[1].tolist()} == {1}
    with contextlib.suppress(RuntimeError):  # the stream has no end: its workers are stopped in the midst of it
        batches._shutdown_workers()


def test_without_workers_a_change_holds_for_the_next_sample() -> None:
    stream = two()
    samples = iter(stream)
    assert {next(samples)[1] for _ in range(20)} == {0, 1}
    stream.update([0, 1], [1.0, 0.0])
    assert {next(samples)[1] for _ in range(20)} == {0}


class Own(IterableDataset):
    """Numbers of sources that a mixture chooses, without end."""

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = mixture

    def __iter__(self) -> Iterator[int]:
        while True:
            yield int(self.mixture.choose(torch.rand(1, dtype=torch.float64)))


@pytest.mark.slow
def test_a_mixture_that_is_not_shared_refuses_to_choose_in_a_worker() -> None:
    mixture = Mixture(["a", "b"], prior=[0.95, 0.05])
    with pytest.raises(SelectionError, match="share_memory"):
        next(iter(DataLoader(Own(mixture), 4, num_workers=1)))
    mixture.share_memory()
    found = next(iter(DataLoader(Own(mixture), 1000, num_workers=2)))
    assert 0.01 < found.double().mean() < 0.12


# Sources


def test_files_are_divided_where_there_are_enough_and_samples_otherwise() -> None:
    many = Files([range(100 * file, 100 * file + 100) for file in range(4)])
    few = Files([range(1000, 1400)])
    shards = [
        list(SourceStream({"many": many, "few": few}, exhausted="drop", rank=rank, num_replicas=2)) for rank in (0, 1)
    ]
    assert sorted(number for shard in shards for number, _ in shard) == [*range(400), *range(1000, 1400)]
    assert {number // 100 for number, source in shards[0] if source == 0} == {0, 2}
    assert {number % 2 for number, source in shards[1] if source == 1} == {1}


def test_a_function_may_take_the_shard() -> None:
    def own(shard: int, num_shards: int) -> list[int]:
        return [10 * shard + num_shards]

    stream = SourceStream({"a": own}, exhausted="stop", rank=1, num_replicas=2)
    assert list(stream) == [(12, 0)]
    assert list(SourceStream({"a": lambda: iter([5])}, exhausted="stop")) == [(5, 0)]


@pytest.mark.slow
def test_presplit_sources_are_taken_whole() -> None:
    stream = SourceStream({"a": Count(0, 100)}, exhausted="stop", presplit=True)
    samples = [int(x) for x, _ in DataLoader(stream, None, num_workers=2)]
    assert sorted(samples) == list(range(100))


@pytest.mark.parametrize(
    ("exhausted", "expected"),
    [("drop", {"a": 3, "b": 50}), ("stop", None), ("repeat", None)],
)
def test_a_source_that_ends(exhausted: Any, expected: dict[str, int] | None) -> None:
    stream = SourceStream({"a": [1, 2, 3], "b": range(50)}, exhausted=exhausted)
    counts = Counter("ab"[source] for _, source in itertools.islice(stream, 500))
    if exhausted == "drop":
        assert counts == expected
    elif exhausted == "stop":
        assert counts["a"] == 3
        assert counts["b"] < 20
    else:
        assert counts.total() == 500
        assert counts["a"] > 200


def test_samples_are_tagged_as_asked() -> None:
    assert next(iter(SourceStream({"a": [{"x": 1}]}))) == {"x": 1, "source": 0}
    assert next(iter(SourceStream({"a": [{"x": 1}]}, key="from"))) == {"x": 1, "from": 0}
    assert next(iter(SourceStream({"a": [{"x": 1}]}, key=None))) == {"x": 1}


def test_an_epoch_has_choices_of_its_own() -> None:
    stream = four()
    first = list(itertools.islice(stream, 50))
    assert list(itertools.islice(stream, 50)) == first
    stream.set_epoch(1)
    assert list(itertools.islice(stream, 50)) != first


@pytest.mark.parametrize(
    ("sources", "options"),
    [
        ({}, {}),
        ([range(3)], {}),
        ({"a": 3}, {}),
        ({"a": iter([1])}, {}),  # cannot begin anew
        ({"a": [1]}, {"exhausted": "never"}),
        ({"a": [1]}, {"mixture": Mixture(["b"])}),
        ({"a": [1]}, {"mixture": "a"}),
        ({"a": [1]}, {"rank": 2, "num_replicas": 2}),
    ],
)
def test_arguments_without_meaning(sources: Any, options: dict) -> None:
    with pytest.raises(SelectionError):
        SourceStream(sources, **options)


def test_a_shard_without_samples_is_named() -> None:
    stream = SourceStream({"web": [1]}, rank=1, num_replicas=2)
    with pytest.raises(SelectionError, match="web"):
        next(iter(stream))


# State


def test_an_iterator_continues_from_its_state_while_shares_move() -> None:
    mixture, samples = Mixture(["a", "b"]), []
    stream = SourceStream({"a": Count(0, 7), "b": Stateful()}, mixture)
    draws, halfway = iter(stream), None
    for step in range(200):
        number, source = next(draws)
        samples.append((number, source))
        mixture.update([source], [1.0 + source])
        if step == 99:
            halfway = draws.state_dict(), mixture.state_dict()
    fresh = Stateful()
    again = SourceStream({"a": Count(0, 7), "b": fresh}, Mixture(["a", "b"]))
    continued = iter(again)
    continued.load_state_dict(halfway[0])
    again.mixture.load_state_dict(halfway[1])
    for want in samples[100:]:
        sample = next(continued)
        assert sample == want
        again.mixture.update([sample[1]], [1.0 + sample[1]])
    assert fresh.read == sum(source for _, source in samples[100:])  # asked for its state, not read again


def test_a_dropped_source_stays_dropped() -> None:
    stream = SourceStream({"a": [1, 2, 3], "b": range(50)}, exhausted="drop")
    draws = iter(stream)
    for _ in range(30):
        next(draws)
    continued = iter(stream)
    continued.load_state_dict(draws.state_dict())
    assert list(continued) == list(draws)
    with pytest.raises(StopIteration):
        next(continued)


def test_a_state_of_another_stream_is_refused() -> None:
    state = iter(four()).state_dict()
    with pytest.raises(StateError, match="shard"):
        iter(four(rank=1, num_replicas=2)).load_state_dict(state)
    with pytest.raises(StateError, match="names"):
        iter(two()).load_state_dict(state)


# Several processes


@leaving_together
def draw_in_pair(rank: int, folder: str) -> None:
    join_pair(rank, folder)
    stream = four()
    loader = DataLoader(stream, 32, num_workers=2)
    samples, weights = [], []
    for step, (x, source) in enumerate(itertools.islice(loader, 20)):
        samples += x.tolist()
        stream.update(source, torch.rand(32, generator=torch.Generator().manual_seed(100 * rank + step)))
        weights.append(stream.weights)
    torch.save((samples, weights), f"{folder}/{rank}.pt")


@pytest.mark.slow
def test_ranks_take_different_samples_under_the_same_shares(tmp_path: Path) -> None:
    run_ranks(draw_in_pair, str(tmp_path))
    (first, shares), (second, others) = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert len(set(first)) == len(set(second)) == 640
    assert not set(first) & set(second)
    assert shares == others
    assert shares[0] != shares[-1]
