"""A DataLoader sampler over named sources, whose shares follow scores while the epoch runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from headway.errors import SelectionError
from headway.selection.draws import ShuffledOrder
from headway.selection.epochs import EpochSampler
from headway.selection.mixture import Bound, FollowsScores, Mixture, Prior
from headway.selection.rules import Rule
from headway.selection.sources import Sources


class SourceSampler(FollowsScores, EpochSampler):
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
        prior: the shares to start from, see `Mixture`; "sizes" for those of the sources.
        hold: how far shares are held to the prior, see `Mixture`; 0.2 by default, 0 if a rule is passed.
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
        prior: Prior | Literal["sizes"] = None,
        hold: float | None = None,
        smoothing: float = 0.9,
        replacement: bool = False,
        seed: int = 0,
        rank: int | None = None,
        num_replicas: int | None = None,
        sync: bool = True,
        history: int = 2**16,
    ) -> None:
        self.sources = sources if isinstance(sources, Sources) else Sources(sources)
        if isinstance(prior, str):
            if prior != "sizes":
                raise SelectionError(f"expected a prior by name of source or 'sizes', got {prior!r}")
            prior = self.sources.sizes
        bounds = {"floor": floor, "ceiling": ceiling}
        self.mixture = Mixture(
            self.sources.names, rule, **bounds, prior=prior, hold=hold, smoothing=smoothing, seed=seed, sync=sync
        )
        self._replacement = replacement
        self._orders = self._make_orders(seed)
        total = self.sources.samples if num_samples is None else num_samples
        super().__init__(total, seed, rank, num_replicas, history)

    def _make_orders(self, seed: int) -> list[ShuffledOrder]:
        members = enumerate(self.sources.members)
        return [ShuffledOrder(own, seed, source, self._replacement) for source, own in members]

    @property
    def version(self) -> int:
        """Changes with every update of the shares."""
        return self.mixture.version

    def _draw_new(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        sources = self.mixture.choose(uniforms)
        numbers = torch.bincount(sources, minlength=len(self._orders)).tolist()
        taken = [order.peek(number) for order, number in zip(self._orders, numbers, strict=True) if number]
        indices = torch.empty(len(uniforms), dtype=torch.int64)
        indices[sources.argsort(stable=True)] = torch.cat(taken)
        return indices, sources

    def _take(self, indices: Tensor, origin: Tensor) -> None:
        numbers = torch.bincount(origin, minlength=len(self._orders)).tolist()
        for order, number in zip(self._orders, numbers, strict=True):
            order.taken += number

    @property
    def counts(self) -> dict[str, int]:
        """The indices drawn so far of every source by name, over all epochs and replicas."""
        self._settle()
        return dict(zip(self.sources.names, [order.taken for order in self._orders], strict=True))

    def _identity(self) -> dict[str, Any]:
        return {"sizes": self.sources.sizes, "replacement": self._replacement}

    def _own_state(self) -> dict[str, Any]:
        taken = [order.taken for order in self._orders]
        return {"taken": taken, **self._identity(), "mixture": self.mixture.state_dict()}

    def _load_own(self, state: Mapping[str, Any]) -> None:
        self.mixture.load_state_dict(state["mixture"])
        self._orders = self._make_orders(state["seed"])
        for order, taken in zip(self._orders, state["taken"], strict=True):
            order.taken = taken


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
