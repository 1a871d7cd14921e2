"""A DataLoader sampler over named sources, whose shares follow scores while the epoch runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from headway.errors import SelectionError, StateError
from headway.selection.bounds import Bound
from headway.selection.mixture import Mixture
from headway.selection.ranks import rank_and_replicas
from headway.selection.rules import Rule
from headway.selection.sources import Sources
from headway.selection.streams import Deck, Recent, uniforms

SCHEMA = 1
SMALLEST_CHUNK, LARGEST_CHUNK = 64, 4096
"""Indices that are drawn ahead within the sampler; an update throws them away, so they decide its speed alone."""


@dataclass
class _Chunk:
    """Indices that were drawn under the same shares.

    Attributes:
        indices: over all replicas, in turn.
        sources: the source of each; None for indices that a loaded state hands out again.
        own: this replica's.
        version: of the mixture, when they were drawn.
        handed: how many of its own it has handed out.
    """

    indices: Tensor
    sources: Tensor | None
    own: list[int]
    version: int
    handed: int = 0


class SourceIterator(Iterator[int]):
    """One iteration over an epoch of a sampler; a StatefulDataLoader saves it with the sampler, and tells it to go on.

    Args:
        sampler: what it draws from.
    """

    def __init__(self, sampler: SourceSampler) -> None:
        self._sampler = sampler
        self._indices = sampler._indices(resumed=False)

    def __next__(self) -> int:
        """The next index."""
        return next(self._indices)

    def state_dict(self) -> dict[str, Any]:
        """Which epoch it is in; everything else is in the state of the sampler."""
        return {"epoch": self._sampler.epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the sampler is, also if that is at the end of an epoch."""
        self._indices = self._sampler._indices(resumed=True)


class SourceSampler(Sampler[int]):
    """Draws indices of a dataset, each from a source that is chosen by the shares of that moment.

        sampler = SourceSampler({"web": range(0, 1000), "books": range(1000, 1400)})
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
        for x, y, source in loader:
            scores = meter.backward(losses(x, y))
            sampler.update(source, scores)

    An update holds from the next index on. A loader with workers has drawn some indices ahead by then: see `lag`.
    Each source is shuffled and used up before it repeats, also across epochs.

    Args:
        sources: the indices of each source by name, the source of every sample, or a `Sources`.
        rule: how scores become shares; multiplicative weights if it is left out.
        num_samples: indices of an epoch over all replicas; by default as many as there are samples.
        floor: the least share of every source, or of some by name.
        ceiling: the greatest share of every source, or of some by name.
        smoothing: how much of a source's smoothed score is kept when new scores of it come.
        replacement: draw from all samples of a source each time.
        seed: where all randomness starts; the same in every replica.
        rank: which replica this is; by default that of torch.distributed, where it is in use.
        num_replicas: how many there are. All draw the same indices, and each hands out its own.
        sync: add scores up over the processes of torch.distributed, see `Mixture`.
        history: the indices of this replica that are remembered, so that a state can go back to them.

    Raises:
        SelectionError: the arguments make no sense.
    """

    def __init__(
        self,
        sources: Sources | Mapping[str, Any] | Sequence[int] | Tensor,
        rule: Rule | None = None,
        *,
        num_samples: int | None = None,
        floor: Bound = 0.0,
        ceiling: Bound = 1.0,
        smoothing: float = 0.9,
        replacement: bool = False,
        seed: int = 0,
        rank: int | None = None,
        num_replicas: int | None = None,
        sync: bool = True,
        history: int = 2**16,
    ) -> None:
        self.sources = sources if isinstance(sources, Sources) else Sources(sources)
        self.mixture = Mixture(
            self.sources.names, rule, floor=floor, ceiling=ceiling, smoothing=smoothing, seed=seed, sync=sync
        )
        if history < 1:
            raise SelectionError(f"expected a history of at least 1, got {history}")
        self._total = self.sources.samples if num_samples is None else num_samples
        self._history = history
        self._replacement = replacement
        self.seed = seed
        self.epoch = 0
        self._decks = self._deal()
        self._uniforms = uniforms(seed, 0)
        self._handed = 0  # indices of this epoch that were handed out, over all replicas
        self._pending = torch.empty(0, dtype=torch.int64)  # drawn before a state was saved, to be handed out again
        self._chunk: _Chunk | None = None
        self._size = SMALLEST_CHUNK
        self._unchanged = 0  # indices since the last update
        self._loaded = False  # a state was loaded, and no index has been asked for since
        self._named: int | None = None  # where the epoch was when set_epoch named it, if it had begun or was loaded
        self._turn = 0
        self._stretch = (0, 0)
        self.rank, self.num_replicas = 0, 0  # until it is sharded
        self.shard(*rank_and_replicas(rank, num_replicas))

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

    def _deal(self) -> list[Deck]:
        members = enumerate(self.sources.members)
        return [Deck(own, self.seed, source, self._replacement) for source, own in members]

    # Drawing

    def __len__(self) -> int:
        """The indices of an epoch, for this replica."""
        return self._length

    def __iter__(self) -> SourceIterator:
        """An iteration over an epoch: the rest of the one that a loaded state is in the midst of, or a new one.

        Nothing happens before its first index is asked for.
        """
        return SourceIterator(self)

    def _indices(self, resumed: bool) -> Iterator[int]:
        turn = self._begin(resumed)
        mixture = self.mixture
        while self._handed < self._length * self.num_replicas:
            if turn != self._turn:
                raise SelectionError("expected one iteration at a time, got another one that has begun since")
            chunk = self._chunk = self._draw()
            for index in chunk.own:
                chunk.handed += 1
                yield index
                if mixture.version != chunk.version or self._chunk is not chunk:
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
            self._enter(self.epoch if again else self.epoch + 1)
        self._begin_stretch()
        self._turn += 1
        return self._turn

    def _begin_stretch(self) -> None:
        self._stretch = (self._stretch[0] + 1, self._handed)

    def _draw(self) -> _Chunk:
        """The next indices under the present shares; what an update leaves of them is drawn again."""
        groups = min(self._size, self._length - self._handed // self.num_replicas)
        count = groups * self.num_replicas
        if len(self._pending):
            indices, sources = self._pending[:count], None
        else:
            sources = self.mixture.choose(self._uniforms.read(self._handed, count))
            numbers = torch.bincount(sources, minlength=len(self._decks)).tolist()
            taken = [deck.peek(number) for deck, number in zip(self._decks, numbers, strict=True) if number]
            indices = torch.empty(count, dtype=torch.int64)
            indices[sources.argsort(stable=True)] = torch.cat(taken)
        return _Chunk(indices, sources, indices[self.rank :: self.num_replicas].tolist(), self.mixture.version)

    def _settle(self) -> None:
        """Take from the sources what was handed out of the chunk, and drop the rest of it."""
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            return
        handed = chunk.handed * self.num_replicas
        self._handed += handed
        self._recent.append(chunk.indices[:handed])
        if chunk.sources is None:
            self._pending = self._pending[handed:]
            return
        numbers = torch.bincount(chunk.sources[:handed], minlength=len(self._decks)).tolist()
        for deck, number in zip(self._decks, numbers, strict=True):
            deck.taken += number
        self._adapt(chunk)

    def _adapt(self, chunk: _Chunk) -> None:
        """Draw as many at a time as there are between two updates."""
        self._unchanged += chunk.handed
        if chunk.version == self.mixture.version:
            self._size = min(2 * self._size, LARGEST_CHUNK)
        else:
            self._size = min(max(self._unchanged, SMALLEST_CHUNK), LARGEST_CHUNK)
            self._unchanged = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is. Shares, and what is used up of each source, stay as they are.

        The epoch that a loaded state is in, and one that is under way, go on if they are the one that is named: a
        loader with workers may have begun, or even have drawn all of it, before its framework comes to name the epoch.
        One that was left or used up begins anew, with the next iteration.
        """
        handed = self.progress[0]
        if epoch == self.epoch and (self._loaded or handed):
            self._named = handed
        else:
            self._enter(epoch)

    def _enter(self, epoch: int) -> None:
        self._settle()
        self.epoch = epoch
        self._uniforms = uniforms(self.seed, epoch)
        self._handed = 0
        self._pending = self._pending[:0]
        self._recent.clear()
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

    # Scores

    def update(
        self, source_ids: Tensor | Sequence[int] | Sequence[str], scores: Tensor | Sequence[float] | None
    ) -> None:
        """Take in the scores of a batch: the source of each sample [B], by number or name, and its score [B].

        None, for a batch that the meter did not score, changes nothing.
        """
        self.mixture.update(source_ids, scores)

    @property
    def weights(self) -> dict[str, float]:
        """The share of every source by name."""
        return self.mixture.weights

    @property
    def counts(self) -> dict[str, int]:
        """The indices drawn so far of every source by name, over all epochs and replicas."""
        self._settle()
        return dict(zip(self.sources.names, [deck.taken for deck in self._decks], strict=True))

    # State

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Shares, position and random numbers, as a state that continues with the next index.

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
            "taken": [deck.taken for deck in self._decks],
            "sizes": self.sources.sizes,
            "replacement": self._replacement,
            "mixture": self.mixture.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, also one that was saved with another number of replicas.

        Raises:
            StateError: it belongs to other sources, or its position to no index of this number of replicas.
        """
        self._check_state(state)
        self.mixture.load_state_dict(state["mixture"])
        self._chunk = None
        self.seed, self.epoch = state["seed"], state["epoch"]
        self._decks = self._deal()
        for deck, taken in zip(self._decks, state["taken"], strict=True):
            deck.taken = taken
        self._uniforms = uniforms(self.seed, self.epoch)
        self._handed = state["position"]
        self._pending = state["pending"].clone()
        self._recent.clear()
        self._loaded, self._named = True, None
        self._begin_stretch()

    def _check_state(self, state: Mapping[str, Any]) -> None:
        if state.get("schema") != SCHEMA:
            raise StateError(f"expected a sampler's state of schema {SCHEMA}, got {state.get('schema')!r}")
        for key, own in (("sizes", self.sources.sizes), ("replacement", self._replacement)):
            if state[key] != own:
                raise StateError(f"expected a state with {key} {own}, got {state[key]}")
        position, end = state["position"], self._length * self.num_replicas
        if position > end or position % self.num_replicas or len(state["pending"]) % self.num_replicas:
            raise StateError(
                f"expected a position up to {end} that {self.num_replicas} replicas share, got {position}; "
                f"load it with the num_samples and num_replicas that it was saved with"
            )

    def __repr__(self) -> str:
        """The sources and their shares."""
        shares = ", ".join(f"{name}: {share:.3f}" for name, share in self.weights.items())
        return f"SourceSampler({shares})"


def lag(loader: DataLoader[Any], lookahead: int = 0) -> int:
    """The indices of a replica that a loader has drawn before training has seen them.

    A change of the shares shows in the batches after so many samples: num_workers * prefetch_factor * batch_size, and
    none without workers.

    Args:
        loader: a DataLoader with a batch size.
        lookahead: further batches that a framework fetches early: 1 for a loader that was prepared by accelerate.
    """
    if loader.batch_size is None:
        raise SelectionError("expected a loader with a batch size, got one without; add up its batches in flight")
    prefetched = loader.num_workers * (loader.prefetch_factor or 0)
    return (prefetched + lookahead) * loader.batch_size
