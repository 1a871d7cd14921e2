"""Named sources, and datasets that name them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import ConcatDataset, IterableDataset, TensorDataset

from headway.errors import SelectionError
from headway.selection import Sources, Tagged


def test_a_mapping_a_list_of_numbers_and_joined_datasets_mean_the_same() -> None:
    by_name = Sources({"a": range(2), "b": torch.tensor([2, 3, 4])})
    by_number = Sources([0, 0, 1, 1, 1], names=["a", "b"])
    web, books = TensorDataset(torch.zeros(2)), TensorDataset(torch.zeros(3))
    joined = Sources.joined({"a": web, "b": books})
    for sources in (by_name, by_number, joined):
        assert sources.names == ("a", "b")
        assert [own.tolist() for own in sources.members] == [[0, 1], [2, 3, 4]]
        assert sources.of([4, 0, 1, 2]).tolist() == [1, 0, 0, 1]
        assert (sources.sizes, sources.samples, len(sources)) == ([2, 3], 5, 2)
    assert len(ConcatDataset([web, books])) == joined.samples
    assert Sources(torch.tensor([1, 0])).names == ("0", "1")


def test_samples_may_belong_to_no_source() -> None:
    sources = Sources({"a": [5], "b": [2]})
    assert sources.ids.tolist() == [-1, -1, 1, -1, -1, 0]
    for index in (0, 6, -1):
        with pytest.raises(SelectionError, match=f"got index {index}"):
            sources.of([5, index])


@pytest.mark.parametrize(
    ("sources", "names", "message"),
    [
        ({}, (), "at least one source"),
        ([], (), "at least one source"),
        ({"a": [0], "b": []}, (), "none in b"),
        ({"a": [0, 1], "b": [1, 2]}, (), "index 1 twice"),
        ({"a": [0, 3, 3]}, (), "index 3 twice"),
        ({"a": [5, 3, 3]}, (), "index 3 twice"),
        ({"a": [-1]}, (), "indices from 0, got -1"),
        ({"a": [0.5]}, (), "float32"),
        ({"a": [[0]]}, (), r"\[1, 1\]"),
        ({"a": "text"}, (), "a: expected a sequence of indices, got str"),
        ({"a": TensorDataset(torch.zeros(2))}, (), r"got TensorDataset; .* Sources\.joined"),
        ({"a": [0]}, ("b",), "names as the keys"),
        ([0, 1], ("a",), "below 1, got 1"),
        ([0, 1], ("a", "a"), "different names"),
        ([0, 2], (), "none in 1"),
    ],
)
def test_what_makes_no_sense_is_refused(sources, names, message) -> None:
    with pytest.raises(SelectionError, match=message):
        Sources(sources, names)


def test_tagged_samples_carry_their_source() -> None:
    sources = Sources({"a": [1], "b": [0]})
    pairs = Tagged(TensorDataset(torch.arange(3), torch.arange(3)), sources)
    assert pairs[0] == (torch.tensor(0), torch.tensor(0), 1)
    assert pairs[2][-1] == -1
    assert len(pairs) == 3
    assert Tagged([{"x": 1}, {"x": 2}], sources)[1] == {"x": 2, "source": 0}
    assert Tagged([{"x": 1}, {"x": 2}], sources, key="from")[0] == {"x": 1, "from": 1}
    assert Tagged([7, 8], sources)[0] == (7, 1)
    longer = Tagged([7, 8, 9], Sources({"a": [0], "b": [1]}))
    assert [longer[index] for index in (-1, -2, -3)] == [longer[index] for index in (2, 1, 0)]


def test_a_dataset_that_is_smaller_than_its_sources_is_refused() -> None:
    web, books = TensorDataset(torch.zeros(3)), TensorDataset(torch.zeros(2))
    sources = Sources.joined({"web": web, "books": books})
    assert Tagged(ConcatDataset([web, books]), sources)[4][-1] == 1
    with pytest.raises(SelectionError, match=r"at least 5 samples, as the sources have them, got 2; .*ConcatDataset"):
        Tagged(books, sources)


def test_joined_parts_have_names() -> None:
    with pytest.raises(SelectionError, match=r"by name, got list; use Sources\.joined\({"):
        Sources.joined([TensorDataset(torch.zeros(3))])


def test_iterables_are_sent_to_the_stream() -> None:
    class Endless(IterableDataset):
        def __iter__(self) -> Iterator[int]:
            yield 1

    with pytest.raises(SelectionError, match="SourceStream"):
        Sources.joined({"web": Endless()})
    with pytest.raises(SelectionError, match="SourceStream"):
        Tagged(Endless(), Sources([0]))


def test_the_representation_has_names_and_sizes() -> None:
    assert repr(Sources({"web": range(3), "books": range(3, 5)})) == "Sources(web: 3, books: 2)"
