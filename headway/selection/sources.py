"""Named sources: which samples of a dataset come from where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from headway.errors import HeadwayError, SelectionError, did_you_mean

NOWHERE = -1
"""The number of a sample that belongs to no source."""


class Sources:
    """The named sources of a dataset, numbered from 0 in the order in which they are given.

        Sources({"web": range(0, 1000), "books": range(1000, 1400)})
        Sources([0, 0, 1, 2, 1], names=["web", "books", "code"])   # the number of each sample's source
        Sources.joined({"web": web, "books": books})               # as torch's ConcatDataset([web, books]) joins them

    Args:
        sources: the indices of each source's samples by name, or the source's number of every sample [N].
        names: names for numbers; they are named by their number if it is left out.

    Raises:
        SelectionError: no sources, a source without samples, a sample in two sources.
    """

    def __init__(self, sources: Mapping[str, Any] | Sequence[int] | Tensor | Any, names: Sequence[str] = ()) -> None:
        if isinstance(sources, Mapping):
            if names:
                raise SelectionError(f"expected names as the keys of the sources, got names={list(names)} as well")
            self.names = tuple(map(str, sources))
            self.members = tuple(_indices(own, name) for name, own in sources.items())
        else:
            ids = _indices(sources, "sources")
            number = int(ids.max()) + 1 if len(ids) else 0
            self.names = tuple(names) or tuple(map(str, range(number)))
            if number > len(self.names):
                raise SelectionError(f"expected source numbers below {len(self.names)}, got {number - 1}")
            self.members = tuple(torch.nonzero(ids == source).flatten() for source in range(len(self.names)))
        if not self.names:
            raise SelectionError("expected at least one source, got none")
        if len(set(self.names)) < len(self.names):
            raise SelectionError(f"expected sources of different names, got {list(self.names)}")
        empty = [name for name, size in zip(self.names, self.sizes, strict=True) if size == 0]
        if empty:
            raise SelectionError(f"expected samples in every source, got none in {', '.join(empty)}; leave it out")
        self.ids = self._number()

    @classmethod
    def joined(cls, parts: Mapping[str, Any]) -> Sources:
        """Sources that lie one after the other: datasets, or their lengths, by name.

        Raises:
            SelectionError: they have no names, or one of them no samples or no length.
        """
        if not isinstance(parts, Mapping):
            raise SelectionError(
                f"expected datasets or lengths by name, got {type(parts).__name__}; "
                f'use Sources.joined({{"web": web, "books": books}})'
            )
        start, ranges = 0, {}
        for name, part in parts.items():
            if not isinstance(part, int | Sized):
                raise SelectionError(
                    f"{name}: expected a dataset with a length, got {type(part).__name__}; for iterables there is "
                    f"SourceStream({{...}})"
                )
            length = part if isinstance(part, int) else len(part)
            ranges[name] = range(start, start + length)
            start += length
        return cls(ranges)

    def _number(self) -> Tensor:
        """The source of every index up to the largest: [N], NOWHERE where an index has none."""
        ids = torch.full((max(int(own.max()) for own in self.members) + 1,), NOWHERE, dtype=torch.int64)
        for source, own in enumerate(self.members):
            ids[own] = source
        if self.samples > int((ids != NOWHERE).sum()):
            values, counts = torch.cat(self.members).unique(return_counts=True)
            raise SelectionError(
                f"expected every sample once, in one source, got index {int(values[counts.argmax()])} twice; "
                f"the sampler's floors and ceilings, not repetition, say how often a source is drawn"
            )
        return ids

    def __len__(self) -> int:
        """The number of sources."""
        return len(self.names)

    def __repr__(self) -> str:
        return f"Sources({', '.join(f'{name}: {size}' for name, size in zip(self.names, self.sizes, strict=True))})"

    @property
    def sizes(self) -> list[int]:
        """The number of samples of each source."""
        return [len(own) for own in self.members]

    @property
    def samples(self) -> int:
        """The number of samples of all sources."""
        return sum(self.sizes)

    def of(self, indices: Tensor | Sequence[int]) -> Tensor:
        """The source of each of these samples: [B].

        Raises:
            SelectionError: a sample belongs to no source.
        """
        wanted = torch.as_tensor(indices, dtype=torch.int64)
        inside = (wanted >= 0) & (wanted < len(self.ids))
        found = torch.where(inside, self.ids[wanted.clamp(0, len(self.ids) - 1)], NOWHERE)
        if bool((found == NOWHERE).any()):
            raise SelectionError(f"expected samples of the sources, got index {int(wanted[found == NOWHERE][0])}")
        return found


def listed(names: Sequence[str], most: int = 10) -> str:
    """Names in words; of many, the first ones and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def numbers_of(names: Sequence[str], given: Any, error: type[HeadwayError] = SelectionError) -> Tensor:
    """The numbers of some of the names [B], which are given by number or by name; an error for any others."""
    if isinstance(given, str):
        raise error(f"expected several names or numbers, got {given!r}; pass [{given!r}]")
    if not isinstance(given, Tensor) and len(given) and isinstance(given[0], str):
        return places_of(names, given, error)
    ids = torch.as_tensor(given).detach().flatten()
    if not ids.numel():
        return ids.long()
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise error(f"expected numbers or names, got {ids.dtype}")
    low, high = (int(end) for end in ids.aminmax())
    if low < 0 or high >= len(names):
        raise error(f"expected numbers from 0 to {len(names) - 1} ({listed(names)}), got {low} to {high}")
    return ids.long()


def places_of(names: Sequence[str], wanted: Iterable[str], error: type[HeadwayError] = SelectionError) -> Tensor:
    """The places of some names [B] among all; an error for any others."""
    known = {name: number for number, name in enumerate(names)}
    wanted = list(wanted)
    for name in wanted:
        if name not in known:
            raise error(f"expected one of {listed(names)}, got {name!r}{did_you_mean(str(name), names)}")
    return torch.tensor([known[name] for name in wanted], dtype=torch.int64)


def check_limits(**limits: tuple[float, float, float]) -> None:
    """Refuse a value outside its limits: name=(value, least, greatest)."""
    for name, (value, least, greatest) in limits.items():
        if not least <= value <= greatest:
            raise SelectionError(f"expected {name} from {least:g} to {greatest:g}, got {value!r}")


class Tagged(Dataset[Any]):
    """A dataset whose samples say which source they are from.

    A tuple gets the source's number as its last entry, a dict under a key; anything else becomes a pair with it.

    Args:
        dataset: gives samples by index.
        sources: what they belong to.
        key: the key for samples that are dicts.

    Raises:
        SelectionError: the sources reach beyond the dataset, so they are those of another; or it has no index.
    """

    def __init__(self, dataset: Any, sources: Sources, key: str = "source") -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise SelectionError(
                f"expected a dataset that gives samples by index, got {type(dataset).__name__}; for iterables there is "
                f"SourceStream({{...}}), whose samples say which source they are from"
            )
        if isinstance(dataset, Sized) and len(dataset) < len(sources.ids):
            raise SelectionError(
                f"expected a dataset of at least {len(sources.ids)} samples, as the sources have them, "
                f"got {len(dataset)}; Sources.joined({{...}}) and ConcatDataset([...]) take the same parts"
            )
        self.dataset = dataset
        self.sources = sources
        self._key = key

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """The sample, with the number of its source."""
        place = index + len(self) if index < 0 else index
        source = int(self.sources.ids[place]) if 0 <= place < len(self.sources.ids) else NOWHERE
        return tag(self.dataset[index], source, self._key)


def tag(item: Any, source: int, key: str = "source") -> Any:
    """A sample with the number of its source: last in a tuple, under a key in a dict, or else as a pair."""
    if isinstance(item, Mapping):
        return {**item, key: source}
    return (*item, source) if isinstance(item, tuple) else (item, source)


def _indices(values: Any, what: str) -> Tensor:
    """Whole numbers from 0 as a tensor [n]."""
    if isinstance(values, Dataset):  # some would become a tensor of their samples
        raise SelectionError(
            f"{what}: expected a sequence of indices, got {type(values).__name__}; for datasets there is "
            f"Sources.joined({{...}})"
        )
    try:
        found = torch.arange(values.start, values.stop, values.step) if isinstance(values, range) else values
        found = torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SelectionError(f"{what}: expected a sequence of indices, got {type(values).__name__} ({error})") from None
    if found.numel() == 0:
        return torch.zeros(0, dtype=torch.int64)
    if found.dim() != 1 or found.is_floating_point() or found.dtype == torch.bool:
        raise SelectionError(f"{what}: expected indices [n], got {found.dtype} of shape {list(found.shape)}")
    if int(found.min()) < 0:
        raise SelectionError(f"{what}: expected indices from 0, got {int(found.min())}")
    return found.to(torch.int64)
