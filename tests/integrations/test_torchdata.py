"""Nodes whose weights follow scores, and a sampler in a StatefulDataLoader, on the real torchdata."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.random  # noqa: F401  (workers that are forked must not be the first to import it)
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

pytest.importorskip("torchdata")

from torchdata.nodes import Batcher, IterableWrapper, Loader, MapStyleWrapper, Prefetcher, StopCriteria
from torchdata.stateful_dataloader import StatefulDataLoader

from headway.errors import IntegrationError
from headway.integrations.torchdata import SourceNodes, loader_state
from headway.selection import Mixture, MultiplicativeWeights, SourceSampler, SourceStream
from tests.selection.test_sampler import Samples

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it in newer torch

AT_ONCE = MultiplicativeWeights(strength=40.0, rate=1.0)


def nodes(length: int = 1000, **options: Any) -> SourceNodes:
    parts = {"a": IterableWrapper(range(length)), "b": IterableWrapper(range(10_000, 10_000 + length))}
    return SourceNodes(parts, **{"stop_criteria": StopCriteria.CYCLE_FOREVER, "rank": 0, "world_size": 1, **options})


def take(loader: Any, batches: int) -> list[list[tuple[int, int]]]:
    """Some batches of an iterator, and no more than that."""
    return [next(loader) for _ in range(batches)]


def test_items_say_which_source_they_are_from() -> None:
    node = nodes()
    items = [next(node) for _ in range(200)]
    assert all((value >= 10_000) == bool(source) for value, source in items)
    assert {source for _, source in items} == {0, 1}
    assert isinstance(next(nodes(key=None)), int)
    dicts = SourceNodes({"a": IterableWrapper([{"x": 1}])}, rank=0, world_size=1)
    assert next(dicts) == {"x": 1, "source": 0}


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_source_whose_score_rises_is_drawn_more_within_the_lag(prefetch: int) -> None:
    node = nodes(mixture=Mixture(["a", "b"], AT_ONCE))
    batches = Batcher(node, 8)
    loader = iter(Loader(Prefetcher(batches, prefetch) if prefetch else batches))
    before = [source for batch in take(loader, 5) for _, source in batch]
    node.update(["a", "b"], [0.0, 1.0])
    after = [[source for _, source in batch] for batch in take(loader, 20)]
    assert 0 < sum(before) < len(before)
    late = prefetch + 1 if prefetch else 0  # the queue, and the batch that waits to get in
    assert all(set(batch) == {1} for batch in after[late:])
    if not prefetch:
        assert set(after[0]) == {1}


def test_draws_follow_the_shares_and_ranks_differ() -> None:
    node = nodes(mixture=Mixture(["a", "b"], MultiplicativeWeights(strength=2.0, rate=1.0)))
    node.update([0, 1], [1.0, 0.0])
    drawn = [next(node)[1] for _ in range(8000)]
    assert sum(drawn) / 8000 == pytest.approx(node.mixture.weights["b"], abs=0.02)
    ranks = [[next(node)[1] for _ in range(50)] for node in (nodes(rank=0, world_size=2), nodes(rank=1, world_size=2))]
    assert ranks[0] != ranks[1]


def test_epochs_end_by_torchdatas_criteria_and_differ() -> None:
    node = nodes(length=30, stop_criteria=StopCriteria.ALL_DATASETS_EXHAUSTED)
    loader = Loader(node)
    first, second = list(loader), list(loader)
    assert sorted(first) == sorted(second)
    assert len(first) == 60
    assert first != second


@pytest.mark.parametrize("stop", [0, 7, 30])
def test_saved_and_resumed_equals_uninterrupted(stop: int) -> None:
    def run(loader: Loader, node: SourceNodes, batches: int, start: int = 0) -> list:
        drawn = []
        iterator = iter(loader)
        for step in range(start, start + batches):
            drawn.append(next(iterator))
            sources = [source for _, source in drawn[-1]]
            node.update(sources, [1.0 + step % 3 * source for source in sources])
        return drawn

    def make() -> tuple[Loader, SourceNodes]:
        node = nodes(length=50, stop_criteria=StopCriteria.CYCLE_FOREVER)
        return Loader(Batcher(node, 4)), node

    whole = run(*make(), 60)
    loader, node = make()
    drawn = run(loader, node, stop)
    state = copy.deepcopy(loader.state_dict())
    run(loader, node, 3, stop)  # what comes later does not change it
    again, other = make()
    again.load_state_dict(state)
    assert drawn + run(again, other, 60 - stop, stop) == whole


def test_nodes_of_other_names_are_refused() -> None:
    with pytest.raises(IntegrationError, match=r"a mixture of \['a', 'b'\], got one of \['b', 'a'\]"):
        nodes(mixture=Mixture(["b", "a"]))


def test_what_is_no_node_is_refused() -> None:
    with pytest.raises(IntegrationError, match=r"web: expected a node, got list; .* MapStyleWrapper"):
        SourceNodes({"web": [1, 2]})
    with pytest.raises(IntegrationError, match="got list"):
        SourceNodes([IterableWrapper([1])])


# The sampler in a StatefulDataLoader


def train(loader: Any, sampler: SourceSampler, batches: int | None = None) -> list[int]:
    drawn: list[int] = []
    for number, batch in enumerate(loader, 1):
        drawn += batch.tolist()
        sampler.update(sampler.sources.of(batch), batch % 5 + 1)
        if number == batches:
            break
    return drawn


def stateful(workers: int, seed: int = 0, **options: Any) -> tuple[Any, SourceSampler]:
    sampler = SourceSampler(torch.arange(119) % 3, seed=seed)  # the last batch has 3
    return StatefulDataLoader(Samples(), 4, sampler=sampler, num_workers=workers, **options), sampler


@pytest.mark.parametrize(
    ("workers", "options"),
    [(0, {}), (2, {}), (2, {"snapshot_every_n_steps": 3}), (1, {"persistent_workers": True})],
    ids=str,
)
@pytest.mark.parametrize("stop", [1, 13, 30])
def test_a_stateful_loader_resumes_exactly(workers: int, options: dict, stop: int) -> None:
    loader, sampler = stateful(workers, **options)
    whole = train(loader, sampler) + train(loader, sampler)
    first, drawn_from = stateful(workers, **options)
    drawn = train(first, drawn_from, stop)
    state = loader_state(first)
    second, other = stateful(workers, seed=9, **options)
    second.load_state_dict(state)
    assert drawn + train(second, other) + train(second, other) == whole
    assert other.weights == sampler.weights


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_from_after_an_epoch_continues_with_the_next(workers: int) -> None:
    loader, sampler = stateful(workers)
    drawn = train(loader, sampler)
    state = loader_state(loader)
    expected = train(loader, sampler)
    second, other = stateful(workers, seed=9)
    second.load_state_dict(state)
    assert train(second, other) == expected
    assert len(drawn) == len(expected) == 119


def test_the_loaders_own_state_lacks_only_what_came_within_the_lag() -> None:
    """With workers: the next index is that of the state's time, and the batches in flight are drawn anew."""
    whole = train(*stateful(2))
    loader, sampler = stateful(2)
    drawn = train(loader, sampler, 10)
    second, other = stateful(2, seed=9)
    second.load_state_dict(loader.state_dict())
    rest = train(second, other)
    assert len(drawn + rest) == len(whole) == 119
    assert drawn == whole[:40]
    without, sampler = stateful(0)
    train(without, sampler, 10)
    third, other = stateful(0, seed=9)
    third.load_state_dict(without.state_dict())  # without workers nothing is in flight
    assert train(third, other) == train(*stateful(0))[40:]


def test_a_node_takes_the_sampler_too() -> None:
    sampler = SourceSampler({"a": range(50), "b": range(50, 100)})
    node = MapStyleWrapper(TensorDataset(torch.arange(100)), sampler)
    values = [int(item[0]) for item in Loader(node)]
    assert values == list(SourceSampler({"a": range(50), "b": range(50, 100)}))


def test_other_loaders_are_refused() -> None:
    data = Samples()
    for loader in (
        DataLoader(data, 4, sampler=SourceSampler([0, 1])),
        StatefulDataLoader(data, 4, sampler=RandomSampler(data)),
    ):
        with pytest.raises(IntegrationError, match="a StatefulDataLoader with a SourceSampler"):
            loader_state(loader)


# Streams in a StatefulDataLoader


class Plain:
    """Whole numbers without a state."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10**6))


def stream() -> SourceStream:
    """A plain source, a node, and a streaming dataset with files and a state of its own."""
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": list(range(2 * 10**5, 2 * 10**5 + 400))})
    sources = {
        "plain": Plain(),
        "node": lambda: IterableWrapper(range(10**7, 10**7 + 50)),  # repeats
        "files": table.to_iterable_dataset(num_shards=4).map(lambda row: {"x": row["x"]}),
    }
    return SourceStream(sources, Mixture(list(sources), AT_ONCE, prior=[0.5, 0.3, 0.2]))


def batches_of(rows: list[Any]) -> list[tuple[int, int]]:
    pairs = [(row["x"], row["source"]) if isinstance(row, dict) else row for row in rows]
    return [(int(x), int(source)) for x, source in pairs]


def stream_loader(workers: int) -> StatefulDataLoader:
    return StatefulDataLoader(stream(), 8, num_workers=workers, collate_fn=batches_of)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_continues_with_the_samples_that_would_have_come(workers: int) -> None:
    loader = stream_loader(workers)
    batches = iter(loader)
    for _ in range(21):
        next(batches)
    state = copy.deepcopy(loader.state_dict())
    expected = [next(batches) for _ in range(20)]
    again = stream_loader(workers)
    again.load_state_dict(state)
    assert list(itertools.islice(again, 20)) == expected
    seen = [sample for batch in expected for sample in batch if sample[1] != 1]
    assert len(set(seen)) == len(seen)


def train_and_be_killed(path: str) -> None:
    loader = stream_loader(2)
    for number, batch in enumerate(loader):
        if number == 12:
            torch.save((loader.state_dict(), batch), path)
        if number == 15:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_run_continues_with_the_samples_that_would_have_come(tmp_path: Path) -> None:
    path = str(tmp_path / "state.pt")
    process = multiprocessing.get_context("fork").Process(target=train_and_be_killed, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    state, last = torch.load(path, weights_only=False)
    whole = list(itertools.islice(stream_loader(2), 20))
    assert whole[12] == last
    again = stream_loader(2)
    again.load_state_dict(state)
    assert list(itertools.islice(again, 7)) == whole[13:]
