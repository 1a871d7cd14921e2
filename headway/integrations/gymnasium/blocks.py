"""Steps that wait to be scored together: one pass of the predictor for many costs little more than one for a single."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headway.rl.episodes import Transitions
from headway.rl.reward import IntrinsicReward

Array = npt.NDArray[Any]
PARTS = ("obs", "actions", "next_obs")
Scale = Callable[[Array, Array], Array]
"""From raw rewards [T, N], and where there are any [T, N], to scaled ones [T, N]."""


class Block:
    """The steps since the predictor last learned.

    Args:
        reward: scores them. It must not change before `settle` was called.
        scale: as above; asked once per step, while nothing has changed.
    """

    def __init__(self, reward: IntrinsicReward, scale: Scale) -> None:
        self._reward, self._scale = reward, scale
        self._steps: list[tuple[Array, Array, Array, Array]] = []
        self._raw: list[Array] = []
        self._scaled: list[Array] = []
        self.transitions = 0

    def add(self, obs: Array, actions: Array, next_obs: Array, valid: Array) -> int:
        """Take in a step of N environments; returns its number."""
        self._steps.append((obs, actions, next_obs, valid))
        self.transitions += int(valid.sum())
        return len(self._steps) - 1

    def raw(self, index: int) -> Array:
        """What the scorer says about a step [N], zero where there was no transition."""
        if index >= len(self._raw):
            self._score()
        return self._raw[index]

    def scaled(self, index: int) -> Array:
        """The same, scaled."""
        if index >= len(self._scaled):
            self._score()
        return self._scaled[index]

    def joined(self) -> Transitions:
        """All transitions, in the order of time."""
        return self._joined(0)

    def settle(self) -> tuple[Array, Array]:
        """Score what has not been; returns raw rewards [T, N], and where there are any [T, N]."""
        if self._steps:
            self.raw(len(self._steps) - 1)
        return np.stack(self._raw), np.stack([valid for *_, valid in self._steps])

    def state(self) -> list[dict[str, torch.Tensor]]:
        """The steps, as tensors."""
        names = (*PARTS, "valid")
        return [dict(zip(names, map(torch.from_numpy, step), strict=True)) for step in self._steps]

    def resume(self, state: list[Mapping[str, torch.Tensor]]) -> None:
        """Take in the steps of a state."""
        for step in state:
            self.add(*(step[name].numpy() for name in (*PARTS, "valid")))

    def _joined(self, first: int) -> Transitions:
        steps = self._steps[first:]
        kept = [[step[part][step[3]] for step in steps] for part in range(3)]
        return Transitions(*(torch.from_numpy(np.concatenate(part)) for part in kept))

    def _score(self) -> None:
        """Score the steps that wait, all in one pass."""
        first = len(self._raw)
        valid = np.stack([step[3] for step in self._steps[first:]])
        raw = np.zeros(valid.shape)
        if valid.any():
            raw[valid] = self._reward.rewards(self._joined(first)).double().cpu().numpy()
        self._raw += list(raw)
        self._scaled += list(self._scale(raw, valid))


class Pending(np.lib.mixins.NDArrayOperatorsMixin):
    """An array [N] that is computed when somebody looks at it.

    It is used like an array, in arithmetic, indexing and `np.stack`.

    Args:
        values: computes it.
        count: N.
    """

    dtype = np.dtype(np.float64)
    ndim = 1

    def __init__(self, values: Callable[[], Array], count: int) -> None:
        self._values = values
        self.shape = (count,)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The array itself: a copy, which is yours."""
        return np.array(self._values(), dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute with the arrays."""
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, Pending) else x for x in inputs), **options)

    def __getattr__(self, name: str) -> Any:
        """Everything else that an array has."""
        if name.startswith("__"):  # numpy asks for some of them before it asks for the array
            raise AttributeError(name)
        return getattr(self.__array__(), name)

    def __len__(self) -> int:
        """N."""
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """Some of it."""
        return np.asarray(self)[index]

    def __iter__(self) -> Iterator[Any]:
        """One after the other."""
        return iter(np.asarray(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """To pickle and to copy it is the array."""
        return np.array, (np.asarray(self),)

    def __repr__(self) -> str:
        """As an array."""
        return repr(np.asarray(self))
