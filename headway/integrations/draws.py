"""Draws of a sampler for a trainer that goes on within an epoch by drawing from its start."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch.utils.data import Sampler

from headway.selection import SourceSampler


class Draws(Sampler[int]):
    """A sampler that can be asked again for what was drawn before a checkpoint, and is not asked to keep it.

    The Trainer goes on within an epoch by drawing what it has had, and dropping it. A `SourceSampler` goes on where it
    was, so these are placeholders; all but an epoch's first indices, with which accelerate fills its last batches up.

    Attributes:
        first: the first indices of the epoch.
    """

    def __init__(self, sampler: SourceSampler) -> None:
        self._sampler = sampler
        self._owed = 0
        self._many = 0
        self.first: list[int] = []

    def remember(self, many: int) -> None:
        """Keep so many of an epoch's first indices."""
        self._many = many

    def owe(self, first: list[int]) -> None:
        """The epoch's indices up to the present will be asked for again; the first of them were these."""
        handed, end = self._sampler.progress
        self._owed = handed if handed < end else 0
        self.first = first[: self._owed]

    def __iter__(self) -> Iterator[int]:
        owed, self._owed = self._owed, 0
        self.first = self.first[:owed]
        placeholder = int(self._sampler.sources.members[0][0])
        yield from self.first[:]
        yield from itertools.repeat(placeholder, owed - len(self.first))
        indices = iter(self._sampler)
        for index in itertools.islice(indices, max(0, self._many - owed)):
            self.first.append(index)
            yield index
        yield from indices

    def __len__(self) -> int:
        return len(self._sampler)

    def set_epoch(self, epoch: int) -> None:
        """See `SourceSampler.set_epoch`; of an epoch before, nothing will be asked for again."""
        if epoch != self._sampler.epoch:
            self._owed = 0
        self._sampler.set_epoch(epoch)
