"""Sources as torchdata nodes whose weights follow scores, and exact states of a StatefulDataLoader with workers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from headway.errors import IntegrationError
from headway.integrations.versions import require
from headway.selection import Mixture, SourceSampler
from headway.selection.draws import uniforms
from headway.selection.sources import tag

require("torchdata")

from torchdata.nodes import BaseNode, MultiNodeWeightedSampler, StopCriteria  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

__all__ = ["SourceNodes", "loader_state"]

AHEAD = 64
"""Choices that are made at a time; an update throws the rest away."""
RANKS = 2**20
"""More than any number of processes: keeps the streams of epochs and ranks apart."""


class SourceNodes(MultiNodeWeightedSampler):
    """Items of several nodes, each from a node that is chosen by the shares of that moment.

        node = SourceNodes({"web": web, "books": books})
        loader = Loader(Batcher(node, 32))
        for batch in loader:
            node.update(sources_of(batch), scores)

    It is torchdata's MultiNodeWeightedSampler, whose weights are fixed and whose choices are drawn in thousands, with
    a `Mixture` in place of both. An update holds from the next item on; nodes behind it that prefetch, or put
    items together, have taken some before.

    Args:
        source_nodes: the nodes by name.
        mixture: shares for the same names; None for one with the defaults.
        stop_criteria: when an epoch ends, see torchdata's StopCriteria.
        rank: which process this is; by default that of torch.distributed. Shares are the same in all, choices are not.
        world_size: how many processes there are.
        seed: where the choices' randomness starts.
        key: items say which source they are from, as with `headway.selection.Tagged`: dicts under this key, tuples in
            their last entry. None leaves them as they are.

    Raises:
        IntegrationError: they are no nodes by name, or the mixture has other names.
    """

    def __init__(
        self,
        source_nodes: Mapping[str, Any],
        mixture: Mixture | None = None,
        *,
        stop_criteria: str = StopCriteria.CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        key: str | None = "source",
    ) -> None:
        if not isinstance(source_nodes, Mapping):
            raise IntegrationError(
                f"expected nodes by name, got {type(source_nodes).__name__}; pass {{name: node, ...}}"
            )
        for name, node in source_nodes.items():
            if not isinstance(node, BaseNode):
                raise IntegrationError(
                    f"{name}: expected a node, got {type(node).__name__}; torchdata.nodes has IterableWrapper and "
                    f"MapStyleWrapper, which make one of a dataset"
                )
        names = list(source_nodes)
        self.mixture = Mixture(names, seed=seed) if mixture is None else mixture
        if list(self.mixture.names) != names:
            raise IntegrationError(f"expected a mixture of {names}, got one of {list(self.mixture.names)}")
        nodes = dict(source_nodes)
        if key is not None:
            nodes = {name: _Tags(node, number, key) for number, (name, node) in enumerate(nodes.items())}
        equal = dict.fromkeys(names, 1.0)  # what the parent asks for; it does not use them
        super().__init__(nodes, equal, stop_criteria, rank, world_size, seed)

    def update(
        self, source_ids: Tensor | Sequence[int] | Sequence[str], scores: Tensor | Sequence[float] | None
    ) -> None:
        """Take in the scores of a batch: the source of each sample [B], by number or name, and its score [B].

        None stands for a batch that the meter did not score; see `Mixture.update`.
        """
        self.mixture.update(source_ids, scores)

    def _get_new_weighted_sampler(self, initial_state: Mapping[str, Any] | None = None) -> _Keys:
        """What the parent asks for the next node."""
        state = None if initial_state is None else initial_state[self.WEIGHTED_SAMPLER_STATE_KEY]
        return _Keys(self.mixture, self.seed, self._epoch * RANKS + self.rank, state)


class _Keys:
    """Names of sources, chosen one after the other."""

    def __init__(self, mixture: Mixture, seed: int, stream: int, state: Mapping[str, Any] | None) -> None:
        self._mixture = mixture
        self._uniforms = uniforms(seed, stream)
        self._place = 0 if state is None else state["place"]
        self._saved: tuple[int, dict[str, Any]] | None = None
        if state is not None:
            mixture.load_state_dict(state["mixture"])
        self._choices: list[int] = []  # the last comes first
        self._version = mixture.version

    def __iter__(self) -> _Keys:
        return self

    def __next__(self) -> str:
        if not self._choices or self._version != self._mixture.version:
            self._version = self._mixture.version
            self._choices = self._mixture.choose(self._uniforms.read(self._place, AHEAD)).tolist()[::-1]
        self._place += 1
        return self._mixture.names[self._choices.pop()]

    def state_dict(self) -> dict[str, Any]:
        if self._saved is None or self._saved[0] != self._mixture.version:  # it is asked for with every item
            self._saved = (self._mixture.version, self._mixture.state_dict())
        return {"place": self._place, "mixture": self._saved[1]}


class _Tags(BaseNode[Any]):
    """The items of a node with the number of their source."""

    def __init__(self, source: Any, number: int, key: str) -> None:
        super().__init__()
        self._source, self._number, self._key = source, number, key

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self._source.reset(None if initial_state is None else initial_state["source"])

    def next(self) -> Any:
        return tag(next(self._source), self._number, self._key)

    def get_state(self) -> dict[str, Any]:
        return {"source": self._source.state_dict()}


def loader_state(loader: StatefulDataLoader[Any]) -> dict[str, Any]:
    """The state of a loader with a `SourceSampler`, exact also where it has workers.

    With workers, `loader.state_dict()` has the sampler as it was when the batch that came last was drawn. What it has
    learned since, and the indices that it has drawn meanwhile, are missing. Here they are in; the state is loaded with
    `loader.load_state_dict` as usual.

    Raises:
        IntegrationError: the loader has another sampler, or no batch size.
    """
    if not isinstance(loader, StatefulDataLoader) or not isinstance(loader.sampler, SourceSampler):
        raise IntegrationError(
            f"expected a StatefulDataLoader with a SourceSampler, got {type(loader).__name__} with "
            f"{type(getattr(loader, 'sampler', None)).__name__}"
        )
    state = copy.copy(loader.state_dict())
    if loader.num_workers == 0:
        return state
    try:
        snapshot = state["_snapshot"] = copy.copy(state["_snapshot"])
        main = snapshot["_main_snapshot"] = copy.copy(snapshot["_main_snapshot"])
        indices = main["_sampler_iter_state"] = copy.copy(main["_sampler_iter_state"])
        indices["sampler_state"] = loader.sampler.state_dict(indices["samples_yielded"])
    except (KeyError, TypeError) as error:
        raise IntegrationError(
            f"expected the state of a loader with sampler= and batch_size=, got one without {error}"
        ) from None
    return state
