"""Drawing from sources without replacement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headway.errors import SelectionError


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
