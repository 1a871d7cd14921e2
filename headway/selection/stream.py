"""Iterable sources, drawn by the shares of a mixture in every worker of a DataLoader and every rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker as torch_worker

from headway.errors import SelectionError, StateError
from headway.ranks import rank_and_replicas
from headway.selection.draws import chosen, uniforms
from headway.selection.mixture import FollowsScores, Mixture
from headway.selection.sources import tag

Exhausted = Literal["repeat", "stop", "drop"]
SCHEMA = 1


class SourceStream(FollowsScores, IterableDataset[Any]):
    """Samples of iterable sources, each from a source that is chosen by the shares of that moment.

        stream = SourceStream({"web": web, "books": books}, Mixture(["web", "books"], floor=0.05))
        loader = DataLoader(stream, batch_size=32, num_workers=2)
        for x, y, source in loader:
            scores = meter.backward(losses(x, y))
            stream.update(source, scores)

    The shares are in shared memory: an update in the training process reaches every worker with the next sample that
    the worker draws. Batches that workers have prefetched come first: `lag(loader)` samples.

    Every worker of every rank is a shard. All shards draw with the same shares; each has random choices of its own, and
    takes samples of a source that no other shard takes: its part of the files, where the source divides itself
    (`source.shard(num_shards, index)` with at least as many `num_shards`, as Hugging Face streaming datasets), and
    otherwise every k-th sample. Sources see no worker information, so one that splits itself by worker is not split
    twice.

    A sample says which source it is from, as with `Tagged`. With torchdata's StatefulDataLoader every worker continues
    where it was: a source with `state_dict` is asked, any other is read again up to its place. The loader's state has
    the places; save `stream.mixture.state_dict()` beside it.

    Args:
        sources: iterables by name, such as streaming datasets, webdataset pipelines and torchdata nodes; or functions
            that make one. A function with parameters `shard` and `num_shards` gives the samples of that shard alone.
        mixture: shares for the same names; None for one with the defaults.
        exhausted: what happens when a source has no more samples: "repeat" begins it anew, "stop" ends the epoch of
            that shard, and "drop" leaves the source out until all have ended.
        seed: where the choices' randomness starts; the same in every rank.
        key: the key of the source's number in samples that are dicts; None leaves all samples as they are.
        presplit: the sources divide themselves among workers and ranks; take every sample that they give.
        rank: which replica this is; by default that of torch.distributed, where it is in use.
        num_replicas: how many there are.

    Raises:
        SelectionError: the arguments make no sense.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        mixture: Mixture | None = None,
        *,
        exhausted: Exhausted = "repeat",
        seed: int = 0,
        key: str | None = "source",
        presplit: bool = False,
        rank: int | None = None,
        num_replicas: int | None = None,
    ) -> None:
        _check(sources, mixture, exhausted)
        self.sources = dict(sources)
        self.mixture = Mixture(list(sources), seed=seed) if mixture is None else mixture
        self.mixture.share_memory()
        self.exhausted = exhausted
        self.seed = seed
        self.key = key
        self.presplit = presplit
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # workers may outlive an epoch
        self.shard(*rank_and_replicas(rank, num_replicas))

    @property
    def names(self) -> tuple[str, ...]:
        """The sources, in the order of their numbers."""
        return self.mixture.names

    @property
    def epoch(self) -> int:
        """Which random choices the next iteration makes."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose which random choices the next iteration makes; sources with a `set_epoch` are told as well."""
        self._epoch.fill_(epoch)

    def shard(self, rank: int, num_replicas: int) -> None:
        """Say which replica this is, before the loader's workers start.

        Raises:
            SelectionError: there is no such replica.
        """
        if not 0 <= rank < num_replicas:
            raise SelectionError(f"expected a rank from 0 to {num_replicas - 1}, got {rank}")
        self.rank, self.num_replicas = rank, num_replicas

    def replace_sources(self, change: Callable[[Any], Any]) -> None:
        """Put something else in the place of every source, such as the source after tokenization."""
        self.sources = {name: change(source) for name, source in self.sources.items()}

    def __iter__(self) -> StreamIterator:
        """The samples of this worker and rank, from the beginning of the sources."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return StreamIterator(self, self.rank * workers + worker, self.num_replicas * workers)


class StreamIterator(Iterator[Any]):
    """The samples of one shard of a stream; a StatefulDataLoader saves and loads it in every worker."""

    def __init__(self, stream: SourceStream, shard: int, num_shards: int) -> None:
        self._stream = stream
        self._shard = (shard, num_shards)
        part, hide = ((0, 1), False) if stream.presplit else (self._shard, True)
        sources = stream.sources.items()
        self._cursors = [Cursor(name, source, part, stream.epoch, hide) for name, source in sources]
        self._begin(stream.epoch)

    def _begin(self, epoch: int, place: int = 0, dropped: Collection[int] = ()) -> None:
        """Choose as in an epoch after so many choices, without the sources that are dropped."""
        self._epoch, self._place, self._dropped = epoch, place, set(dropped)
        self._uniforms = uniforms(self._stream.seed, epoch, self._shard[0])

    def __next__(self) -> Any:
        """The next sample, with the number of its source."""
        while True:
            chosen = self._choose()
            if chosen is None:
                raise StopIteration
            try:
                sample = self._cursors[chosen].take(repeat=self._stream.exhausted == "repeat")
            except StopIteration:
                if self._stream.exhausted == "stop":
                    self._dropped = set(range(len(self._cursors)))
                    raise
                self._dropped.add(chosen)
                continue
            key = self._stream.key
            return sample if key is None else tag(sample, chosen, key)

    def _choose(self) -> int | None:
        """A source by the present shares, divided among those that are left; None where none is."""
        if len(self._dropped) == len(self._cursors):
            return None
        uniform = self._uniforms.read(self._place, 1)
        self._place += 1
        if not self._dropped:
            return int(self._stream.mixture.choose(uniform))
        shares = self._stream.mixture.follow().clone()
        shares[list(self._dropped)] = 0
        return int(chosen(shares, uniform)) if bool(shares.any()) else None  # those that are left may have no share

    def _identity(self) -> dict[str, Any]:
        """The entries of the state that must agree when it is loaded."""
        names, shard = list(self._stream.names), list(self._shard)
        return {"schema": SCHEMA, "names": names, "shard": shard, "seed": self._stream.seed}

    def state_dict(self) -> dict[str, Any]:
        """The place of this shard in its choices and in every source; the shares are the mixture's."""
        return {
            **self._identity(),
            "epoch": self._epoch,
            "place": self._place,
            "dropped": sorted(self._dropped),
            "sources": [cursor.state_dict() for cursor in self._cursors],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            StateError: it belongs to another stream, or to another number of workers or ranks.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise StateError(
                    f"expected a stream's state with {name} {value}, got {state.get(name)}; load it with the sources, "
                    f"the seed and the numbers of workers and ranks that it was saved with"
                )
        self._begin(state["epoch"], state["place"], state["dropped"])
        for cursor, saved in zip(self._cursors, state["sources"], strict=True):
            cursor.load_state_dict(saved)


def _check(sources: Any, mixture: Any, exhausted: str) -> None:
    """Refuse what would fail only in a worker."""
    if not isinstance(sources, Mapping) or not sources:
        raise SelectionError(f'expected iterables by name, got {type(sources).__name__}; pass {{"web": web, ...}}')
    if exhausted not in get_args(Exhausted):
        raise SelectionError(f"expected exhausted 'repeat', 'stop' or 'drop', got {exhausted!r}")
    if mixture is not None and not isinstance(mixture, Mixture):
        raise SelectionError(f"expected a Mixture, got {type(mixture).__name__}; make one: Mixture({list(sources)})")
    if mixture is not None and list(mixture.names) != list(sources):
        raise SelectionError(f"expected a mixture of {list(sources)}, in this order, got one of {list(mixture.names)}")
    for name, source in sources.items():
        if not isinstance(source, Iterable) and not callable(source):
            raise SelectionError(
                f"{name}: expected an iterable or a function that makes one, got {type(source).__name__}"
            )
        if exhausted == "repeat" and isinstance(source, Iterator) and not hasattr(source, "reset"):
            raise SelectionError(
                f"{name}: expected an iterable that can begin anew, got a {type(source).__name__}; pass a function "
                f"that makes it, or exhausted='stop' or 'drop'"
            )


class Cursor:
    """Reads the samples of one shard of a source, round after round.

    The epoch is added to the rounds, for sources with a `set_epoch`. With `hide`, the source sees no worker
    information, so that it does not split itself.
    """

    def __init__(self, name: str, source: Any, shard: tuple[int, int], epoch: int = 0, hide: bool = True) -> None:
        self._name = name
        self._hide = hide
        self._epoch = epoch
        self._make, self._shard = _resolved(source, shard)
        self._iterable: Any = None
        self._samples: Any = None
        self._round = 0
        self._read = 0  # samples of this round that were read, those of other shards among them

    def take(self, repeat: bool) -> Any:
        """The next sample of the shard.

        Raises:
            StopIteration: there is none, and `repeat` is off.
            SelectionError: a whole round has none for this shard.
        """
        with _worker_hidden(self._hide):
            for fresh in (False, True):
                if self._samples is None:
                    self._open(None)
                for sample in self._samples:
                    self._read += 1
                    if (self._read - 1) % self._shard[1] == self._shard[0]:
                        return sample
                if not repeat:
                    raise StopIteration
                if fresh:
                    break
                self._samples, self._round, self._read = None, self._round + 1, 0
        raise SelectionError(
            f"{self._name}: expected a sample for every worker and rank, got none in shard {self._shard[0]} of "
            f"{self._shard[1]}; use fewer workers, or a source that can begin anew"
        )

    def _open(self, state: Any) -> None:
        """Begin a round, where the source's own state says or at its beginning."""
        iterable = self._iterable = self._make()
        if _is_node(iterable):
            iterable.reset(state)
            self._samples = iterable
            return
        if hasattr(iterable, "set_epoch"):
            iterable.set_epoch(self._epoch + self._round)
        own = _is_stateful(iterable)
        if state is not None and own:
            iterable.load_state_dict(state)
        self._samples = iter(iterable)
        if state is not None and not own:
            self._samples.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """The round and the place in it, and the source's own state where it has one."""
        own = None
        with _worker_hidden(self._hide):
            if self._samples is not None and self._read:
                if _is_node(self._iterable) or _is_stateful(self._iterable):
                    own = self._iterable.state_dict()
                elif _is_stateful(self._samples):
                    own = self._samples.state_dict()
        return {"round": self._round, "read": self._read, "own": own, "epoch": self._epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; a source without a state of its own is read again up to its place."""
        self._round, self._read, self._epoch = state["round"], state["read"], state["epoch"]
        self._samples = None
        if not self._read:
            return
        with _worker_hidden(self._hide):
            self._open(state["own"])
            if state["own"] is None:
                for place in range(self._read):
                    if next(self._samples, self) is self:
                        raise SelectionError(
                            f"{self._name}: expected at least {self._read} samples, as when the state was saved, "
                            f"got {place}"
                        )


def _resolved(source: Any, shard: tuple[int, int]) -> tuple[Callable[[], Any], tuple[int, int]]:
    """What makes the iterable of a round, and the part of its samples that is left to take."""
    number, of = shard
    if not isinstance(source, Iterable):
        if {"shard", "num_shards"} <= set(inspect.signature(source).parameters):
            return lambda: source(shard=number, num_shards=of), (0, 1)
        return source, shard
    files = getattr(source, "num_shards", None)
    if isinstance(files, int) and files >= of > 1 and hasattr(source, "shard"):
        source, shard = source.shard(num_shards=of, index=number), (0, 1)
    return lambda: source, shard


def _is_node(source: Any) -> bool:
    """Whether it is a torchdata node: it is reset to a state, where others load one."""
    return hasattr(source, "reset") and hasattr(source, "get_state") and hasattr(source, "state_dict")


def _is_stateful(source: Any) -> bool:
    return hasattr(source, "state_dict") and hasattr(source, "load_state_dict")


@contextmanager
def _worker_hidden(hide: bool) -> Iterator[None]:
    """Let `get_worker_info()` give None for a while: a source that splits itself by worker would be split twice."""
    info = torch_worker._worker_info
    if hide:
        torch_worker._worker_info = None
    try:
        yield
    finally:
        torch_worker._worker_info = info
