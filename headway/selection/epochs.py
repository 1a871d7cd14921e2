"""Epochs of indices that can be handed out ahead, divided among replicas, and continued from a state to the index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from headway.errors import SelectionError, StateError
from headway.ranks import rank_and_replicas
from headway.selection.draws import Recent, uniforms

SCHEMA = 1
SMALLEST_CHUNK, LARGEST_CHUNK = 64, 4096
"""Indices that are drawn ahead within the sampler; an update throws them away, so they decide its speed alone."""


@dataclass
class Chunk:
    """Indices that were drawn under the same shares or priorities."""

    indices: Tensor  # over all replicas, in turn
    origin: Tensor | None  # what the sampler knows of each; None where a loaded state hands them out again
    own: list[int]  # this replica's
    version: int  # of the shares or priorities, when they were drawn
    handed: int = 0  # how many of its own were handed out


class EpochIterator(Iterator[int]):
    """One iteration over an epoch of a sampler; a StatefulDataLoader saves it, and tells it to go on."""

    def __init__(self, sampler: EpochSampler) -> None:
        self._sampler = sampler
        self._indices = sampler._indices(resumed=False)

    def __next__(self) -> int:
        return next(self._indices)

    def state_dict(self) -> dict[str, Any]:
        """Which epoch it is in; everything else is in the state of the sampler."""
        return {"epoch": self._sampler.epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the sampler is, also if that is at the end of an epoch."""
        self._indices = self._sampler._indices(resumed=True)


class EpochSampler(Sampler[int]):
    """What samplers whose draws follow scores have in common; a subclass says what is drawn.

    All replicas draw the same indices, and each hands out its own. An update drops what was drawn and not handed out.
    For the arguments see the subclasses; `total` are the indices of an epoch over all replicas.

    Raises:
        SelectionError: the arguments make no sense.
    """

    def __init__(self, total: int, seed: int, rank: int | None, num_replicas: int | None, history: int) -> None:
        if history < 1:
            raise SelectionError(f"expected a history of at least 1, got {history}")
        self._total, self._history, self.seed = total, history, seed
        self._size = SMALLEST_CHUNK
        self._unchanged = 0  # indices since the last update
        self._turn = 0  # the number of the iteration
        self._stretch = (-1, 0)
        self._handed = 0
        self._chunk: Chunk | None = None
        self._loaded: bool  # a state was loaded, and no index has been asked for since
        self._named: int | None  # where the epoch was when set_epoch named it, if it had begun or was loaded
        self._pending: Tensor  # drawn before a state was saved, to be handed out again
        self.rank, self.num_replicas = 0, 0  # until it is sharded
        self.shard(*rank_and_replicas(rank, num_replicas))
        self._go_to(0)

    # What a subclass adds

    @property
    def version(self) -> int:
        """Changes with every update of what draws depend on."""
        raise NotImplementedError

    def _draw_new(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Indices for uniform numbers in [0, 1), and what `_take` needs to know of each: [n] -> [n], [n]."""
        raise NotImplementedError

    def _take(self, indices: Tensor, origin: Tensor) -> None:
        """Note that these indices [n] were handed out."""
        raise NotImplementedError

    def _identity(self) -> dict[str, Any]:
        """The entries of the state that must agree when it is loaded."""
        raise NotImplementedError

    def _own_state(self) -> dict[str, Any]:
        """What the subclass adds to the state, these among it."""
        raise NotImplementedError

    def _load_own(self, state: Mapping[str, Any]) -> None:
        """Continue from what `_own_state` gave."""
        raise NotImplementedError

    def shard(self, rank: int, num_replicas: int) -> None:
        """Say which replica this is, where that was not known yet when the sampler was made.

        Raises:
            SelectionError: there is no such replica, or indices have been handed out to another one.
        """
        if not 0 <= rank < num_replicas:
            raise SelectionError(f"expected a rank from 0 to {num_replicas - 1}, got {rank}")
        if self._total < num_replicas:
            raise SelectionError(f"expected an index for each of {num_replicas} replicas, got {self._total} samples")
        if (rank, num_replicas) == (self.rank, self.num_replicas):
            return
        if self._handed or self._chunk is not None:
            raise SelectionError("expected a sampler that has handed out nothing, got one that has; shard it first")
        self.rank, self.num_replicas = rank, num_replicas
        self._length = self._total // num_replicas
        self._recent = Recent(self._history * num_replicas)

    # Drawing

    def __len__(self) -> int:
        """The indices of an epoch, for this replica."""
        return self._length

    def __iter__(self) -> EpochIterator:
        """An iteration over an epoch: the rest of the one that a loaded state is in the midst of, or a new one.

        Nothing happens before its first index is asked for.
        """
        return EpochIterator(self)

    def _indices(self, resumed: bool) -> Iterator[int]:
        turn = self._begin(resumed)
        while self._handed < self._length * self.num_replicas:
            if turn != self._turn:
                raise SelectionError("expected one iteration at a time, got another one that has begun since")
            chunk = self._chunk = self._draw()
            for index in chunk.own:
                chunk.handed += 1
                yield index
                if self.version != chunk.version or self._chunk is not chunk:
                    break
            self._settle()

    def _begin(self, resumed: bool) -> int:
        """Decide which epoch an iteration belongs to, when it asks for its first index."""
        self._settle()
        loaded, named = self._loaded, self._named
        self._loaded, self._named = False, None
        end = self._length * self.num_replicas
        goes_on = resumed or (loaded and (self._handed < end or named is not None))
        if not goes_on and self._handed:
            again = named is not None and (self._handed < end or named == end)
            self._go_to(self.epoch if again else self.epoch + 1)
        self._begin_stretch()
        self._turn += 1
        return self._turn

    def _begin_stretch(self) -> None:
        self._stretch = (self._stretch[0] + 1, self._handed)

    def _draw(self) -> Chunk:
        """The next indices under the present shares or priorities; what an update leaves of them is drawn again."""
        count = min(self._size, self._length - self._handed // self.num_replicas) * self.num_replicas
        if len(self._pending):
            indices, origin = self._pending[:count], None
        else:
            indices, origin = self._draw_new(self._uniforms.read(self._handed, count))
        return Chunk(indices, origin, indices[self.rank :: self.num_replicas].tolist(), self.version)

    def _settle(self) -> None:
        """Take what was handed out of the chunk, and drop the rest of it."""
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            return
        handed = chunk.handed * self.num_replicas
        self._handed += handed
        self._recent.append(chunk.indices[:handed])
        if chunk.origin is None:
            self._pending = self._pending[handed:]
            return
        self._take(chunk.indices[:handed], chunk.origin[:handed])
        self._unchanged += chunk.handed  # draw as many at a time as there are between two updates
        if chunk.version == self.version:
            self._size = min(2 * self._size, LARGEST_CHUNK)
        else:
            self._size = min(max(self._unchanged, SMALLEST_CHUNK), LARGEST_CHUNK)
            self._unchanged = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is. What draws depend on stays as it is.

        The epoch that a loaded state is in, and one that is under way, go on if they are the one that is named: a
        loader with workers may have begun, or even have drawn all of it, before its framework comes to name the epoch.
        One that was left or used up begins anew, with the next iteration.
        """
        handed = self.progress[0]
        if epoch == self.epoch and (self._loaded or handed):
            self._named = handed
        else:
            self._go_to(epoch)

    def _go_to(self, epoch: int, handed: int = 0, pending: Tensor | None = None) -> None:
        """Begin a stretch of indices at a place of an epoch.

        Args:
            epoch: its number.
            handed: indices of it that were handed out, over all replicas.
            pending: drawn before a state was saved, to be handed out again.
        """
        self.epoch, self._uniforms = epoch, uniforms(self.seed, epoch)
        self._handed = handed
        self._pending = torch.empty(0, dtype=torch.int64) if pending is None else pending.clone()
        self._chunk = None
        self._recent = Recent(self._history * self.num_replicas)
        self._loaded, self._named = False, None
        self._begin_stretch()

    @property
    def progress(self) -> tuple[int, int]:
        """How many indices of this epoch have been handed out, and how many it has, over all replicas."""
        self._settle()
        return self._handed, self._length * self.num_replicas

    @property
    def stretch(self) -> tuple[int, int]:
        """The number of the stretch of indices that is being handed out, and the index of the epoch that it began with.

        An iteration begins a new one; so does another epoch, or a state that is loaded. Whoever counts the samples that
        training has used counts them from there: an epoch may begin anew under the number that it has.
        """
        return self._stretch

    # State

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Everything that later draws depend on, as a state that continues with the next index.

        Args:
            consumed: the samples of this epoch and replica that training has used. A loader with workers, or one that
                looks ahead, has drawn more; with this number, those are handed out again after loading. An epoch's
                last batch may have fewer than a whole one.

        Raises:
            StateError: more than were drawn, or further back than `history`.
        """
        self._settle()
        handed = self._handed if consumed is None else min(consumed, len(self)) * self.num_replicas
        behind = self._handed - handed
        if behind < 0:
            raise StateError(
                f"expected at most the {self._handed // self.num_replicas} samples that were drawn in epoch "
                f"{self.epoch}, got {consumed} consumed"
            )
        if behind > len(self._recent):
            raise StateError(
                f"expected at least {(self._handed - len(self._recent)) // self.num_replicas} consumed samples, "
                f"got {consumed}; a larger history= reaches further back"
            )
        return {
            "schema": SCHEMA,
            "seed": self.seed,
            "epoch": self.epoch,
            "position": handed,
            "pending": torch.cat([self._recent.last(behind), self._pending]),
            **self._own_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, also one that was saved with another number of replicas.

        Raises:
            StateError: it belongs to another sampler, or its position to no index of this number of replicas.
        """
        if state.get("schema") != SCHEMA:
            raise StateError(f"expected a sampler's state of schema {SCHEMA}, got {state.get('schema')!r}")
        for key, own in self._identity().items():
            if state.get(key) != own:
                raise StateError(f"expected a state with {key} {own}, got {state.get(key)}")
        position, end = state["position"], self._length * self.num_replicas
        if position > end or position % self.num_replicas or len(state["pending"]) % self.num_replicas:
            raise StateError(
                f"expected a position up to {end} that {self.num_replicas} replicas share, got {position}; "
                f"load it with the num_samples and num_replicas that it was saved with"
            )
        self._load_own(state)
        self.seed = state["seed"]
        self._go_to(state["epoch"], position, state["pending"])
        self._loaded = True
