"""Random draws: numbers that a few whole numbers identify, and samples that are used up before they repeat."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headway.errors import SelectionError

BLOCK = 4096
"""Random numbers that are made at a time."""


def generator_for(seed: int, *path: int | str) -> torch.Generator:
    """A generator of its own for every path, the same on every machine and in every process."""
    text = "/".join(map(str, (seed, *path)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


class Stream:
    """A sequence without end that can be read from any place; `make` gives its blocks of a length by their number."""

    def __init__(self, length: int, make: Callable[[int], Tensor]) -> None:
        self._length, self._make = length, make
        self._number, self._block = -1, torch.empty(0)

    def read(self, place: int, count: int) -> Tensor:
        """The entries from a place on: [count]."""
        pieces = []
        while True:
            number, start = divmod(place, self._length)
            if number != self._number:
                self._block, self._number = self._make(number), number
            piece = self._block[start : start + count]
            pieces.append(piece)
            size = piece.numel()
            place, count = place + size, count - size
            if count == 0:
                return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def uniforms(seed: int, epoch: int, *shard: int) -> Stream:
    """Uniform numbers in [0, 1); every epoch has its own, and so has every shard of it."""

    def make(number: int) -> Tensor:
        return torch.rand(BLOCK, dtype=torch.float64, generator=generator_for(seed, "sources", epoch, *shard, number))

    return Stream(BLOCK, make)


def chosen(shares: Tensor, uniforms: Tensor) -> Tensor:
    """What uniform numbers in [0, 1) stand for, each entry by its share of the sum: [S], [n] -> [n]."""
    edges = shares.cumsum(0)
    found = torch.searchsorted(edges, uniforms * edges[-1], right=True)
    return found.clamp(max=int(shares.nonzero().max()))  # rounding must not lead to an entry without a share


class ShuffledOrder:
    """The samples of one source in an order that is drawn anew each time it is used up.

    Nothing but the number of samples taken so far is needed to continue.
    """

    def __init__(self, members: Tensor, seed: int, source: int, replacement: bool = False) -> None:
        size = len(members)
        rounds = max(1, BLOCK // size)  # several orders at a time where one is short
        self.taken = 0

        def make(number: int) -> Tensor:
            generator = generator_for(seed, "samples", source, number)
            if replacement:
                chosen = torch.randint(size, (BLOCK,), generator=generator)
            elif rounds == 1:
                chosen = torch.randperm(size, generator=generator)
            else:
                chosen = torch.rand(rounds, size, dtype=torch.float64, generator=generator).argsort(dim=1).flatten()
            return members[chosen]

        self._stream = Stream(BLOCK if replacement else rounds * size, make)

    def peek(self, count: int) -> Tensor:
        """The next samples [count], without taking them."""
        return self._stream.read(self.taken, count)


class Recent:
    """The latest whole numbers of a sequence that comes in pieces; at least `limit`, as soon as there are so many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: deque[Tensor] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, piece: Tensor) -> None:
        """Remember some more [n]."""
        self._pieces.append(piece)
        self._count += len(piece)
        while self._count - len(self._pieces[0]) >= self._limit:
            self._count -= len(self._pieces.popleft())

    def last(self, count: int) -> Tensor:
        """The latest numbers, oldest first: [count]."""
        found = [torch.empty(0, dtype=torch.int64)]
        for piece in reversed(self._pieces):
            if count <= 0:
                break
            found.append(piece[-count:])
            count -= len(found[-1])
        return torch.cat(found[::-1])


class Pools:
    """The samples of every source, each source shuffled, used up, and shuffled again.

    Args:
        members: for each source the indices of its samples.
        generator: where the shuffles come from.
        replacement: draw at random each time instead.

    Raises:
        SelectionError: a source has no samples.
    """

    def __init__(self, members: Sequence[Tensor], generator: torch.Generator, replacement: bool = False) -> None:
        empty = [source for source, own in enumerate(members) if len(own) == 0]
        if empty:
            raise SelectionError(f"expected samples in every source, got none in {empty}")
        self._generator = generator
        self._replacement = replacement
        self._order = [self._shuffled(own.to(torch.int32)) for own in members]
        self._used = [0] * len(members)

    def __len__(self) -> int:
        """The number of sources."""
        return len(self._order)

    def reshuffled(self) -> Pools:
        """The same sources in an order of their own."""
        return Pools(self._order, self._generator, self._replacement)

    def draw(self, sources: Tensor) -> Tensor:
        """Take the next sample of every named source: sources [B] -> indices [B]. Loops over sources, not samples."""
        counts = torch.bincount(sources, minlength=len(self)).tolist()
        taken = torch.cat([self._take(source, count) for source, count in enumerate(counts) if count])
        picks = torch.empty_like(taken)
        picks[sources.argsort(stable=True)] = taken
        return picks.long()

    def _take(self, source: int, count: int) -> Tensor:
        if self._replacement:
            own = self._order[source]
            return own[torch.randint(len(own), (count,), generator=self._generator)]
        pieces = []
        while count:
            order, used = self._order[source], self._used[source]
            piece = order[used : used + count]
            pieces.append(piece)
            count -= len(piece)
            self._used[source] = used + len(piece)
            if self._used[source] == len(order):
                self._order[source], self._used[source] = self._shuffled(order), 0
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _shuffled(self, members: Tensor) -> Tensor:
        return members[torch.randperm(len(members), generator=self._generator)]

    def state_dict(self) -> dict[str, Any]:
        """The order of every source, and how far it is used up."""
        return {"order": [order.clone() for order in self._order], "used": list(self._used)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._order = [order.clone() for order in state["order"]]
        self._used = list(state["used"])
