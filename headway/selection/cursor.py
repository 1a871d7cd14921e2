"""One shard's place in one iterable source."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.utils.data._utils import worker as torch_worker

from headway.errors import SelectionError


class Cursor:
    """Reads the samples of one shard of a source, round after round.

    Args:
        name: the source's, for errors.
        source: an iterable, a torchdata node, or a function that makes one.
        shard: the number of this shard, and how many there are.
        epoch: added to the rounds, for sources with a `set_epoch`.
        hide: let the source see no worker information, so that it does not split itself.
    """

    def __init__(self, name: str, source: Any, shard: tuple[int, int], epoch: int = 0, hide: bool = True) -> None:
        self._name = name
        self._hide = hide
        self._epoch = epoch
        self._factory, self._source, self._shard = _resolved(source, shard)
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
        iterable = self._iterable = self._source() if self._factory else self._source
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


def is_iterable_source(source: Any) -> bool:
    """Whether a `Cursor` can read it."""
    return isinstance(source, Iterable) or callable(source)


def _resolved(source: Any, shard: tuple[int, int]) -> tuple[bool, Any, tuple[int, int]]:
    """Whether it is a function, the source or function, and the part of its samples that is left to take."""
    if isinstance(source, Iterable):
        files = getattr(source, "num_shards", None)
        if isinstance(files, int) and files >= shard[1] > 1 and hasattr(source, "shard"):
            return False, source.shard(num_shards=shard[1], index=shard[0]), (0, 1)
        return False, source, shard
    if {"shard", "num_shards"} <= set(inspect.signature(source).parameters):
        return True, lambda: source(shard=shard[0], num_shards=shard[1]), (0, 1)
    return True, source, shard


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
