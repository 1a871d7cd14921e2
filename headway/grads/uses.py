"""What forward passes have done with the scored parameters: how often, in which calls and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from headway.grads.layout import Layouts
from headway.grads.observe import reached


class Uses:
    """The uses of parameters since the last pass.

    Args:
        model: the model.
        names: the scored parameters' names by id.
    """

    def __init__(self, model: nn.Module, names: Mapping[int, str]) -> None:
        self._model = model
        owners = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
        self._shared = {name for own, name in names.items() if owners[own] > 1}
        self._counts: dict[str, int] = {}
        self._calls: set[tuple[Any, ...]] = set()

    def add(self, names: Sequence[str], place: str, tensors: Sequence[Tensor], call: Hashable) -> None:
        """Count a use of these parameters, and note the call: its place and the shapes of its tensors."""
        for name in names:
            self._counts[name] = self._counts.get(name, 0) + 1
        self._calls.add((place, call, *(tensor.shape[:2] for tensor in tensors)))

    def once(self, name: str) -> bool:
        """Whether a parameter has had exactly one use, so that it can be reduced at once."""
        return name not in self._shared and self._counts.get(name) == 1

    def is_shared(self, name: str) -> bool:
        """Whether several modules own a parameter."""
        return name in self._shared

    def situation(self, layouts: Layouts, samples: int) -> tuple[object, ...]:
        """What a batch has to have in common with an earlier one for the earlier checks to hold for it too.

        That is whatever decides where the samples are: which calls saw samples, and how those are read off the
        shapes of their tensors.
        """
        modes = tuple(module.training for module in self._model.modules())
        calls = frozenset(
            (place, call, *layouts.reading(place, shapes, samples)) for place, call, *shapes in self._calls
        )
        return samples, modes, tuple(self._counts.items()), calls

    def order(self, losses: Tensor) -> list[str]:
        """What decides when a backward pass of some losses reduces which parameter.

        That is which parameters have had a use, and whether it was the only one, and which of them the losses reach.
        """
        found = [name if self.once(name) else f"{name} (several calls)" for name in self._counts]
        seen: set[str] = set()
        for names in reached(losses):
            found += [f"{name} in the losses" for name in names if self.once(name) or name not in seen]
            seen.update(names)
        return found

    def forget(self) -> None:
        """Begin anew."""
        self._counts.clear()
        self._calls.clear()

    @contextmanager
    def forgotten_on_error(self) -> Iterator[None]:
        """Before a pass: after an error inside the block, forward passes so far count no more."""
        try:
            yield
        except Exception:
            self.forget()
            raise
