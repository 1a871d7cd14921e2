"""Observations and actions as rows of numbers, by the Gymnasium space that they come from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import EnvError, MethodError, MissingExtraError

PICTURES = (1, 3, 4)
"""Numbers of channels that pictures have: grey, colours, and colours with a depth, or four frames."""


class Coding(ABC):
    """How values of a space are written as numbers, and how far a guess is from a value.

    Attributes:
        size: numbers that one value takes.
    """

    size: int

    @abstractmethod
    def encode(self, values: Tensor) -> Tensor:
        """Values [N, ...] as numbers [N, size]."""

    def check(self, values: Tensor) -> None:  # noqa: B027 - most spaces have no values that cannot be
        """Refuse values [N, ...] that are not in the space.

        Raises:
            MethodError: there are such.
        """

    @abstractmethod
    def losses(self, guesses: Tensor, values: Tensor) -> Tensor:
        """How wrong a network's outputs [N, size] are about values [N, ...]: one loss per value [N]."""


class Numbers(Coding):
    """Real numbers (Box), as they are. The loss is the mean squared error."""

    def __init__(self, size: int) -> None:
        """Keep the size."""
        self.size = size

    def encode(self, values: Tensor) -> Tensor:
        """See `Coding.encode`."""
        return values.reshape(len(values), self.size).to(torch.get_default_dtype())

    def losses(self, guesses: Tensor, values: Tensor) -> Tensor:
        """See `Coding.losses`."""
        return (guesses - self.encode(values).to(guesses)).square().mean(1)


class Choices(Coding):
    """One choice (Discrete) or several (MultiDiscrete), one-hot. The loss is the sum of the cross-entropies.

    Args:
        sizes: how many possibilities each choice has.
        starts: the number of the first possibility of each.
    """

    def __init__(self, sizes: list[int], starts: list[int]) -> None:
        """Keep the sizes."""
        self.sizes = sizes
        self.starts = starts
        self.size = sum(sizes)

    @property
    def is_single(self) -> bool:
        """Whether there is one choice only."""
        return len(self.sizes) == 1

    def indices(self, values: Tensor) -> Tensor:
        """Which possibility each value of a single choice is, counted from 0: [N]."""
        return self._columns(values)[0]

    def check(self, values: Tensor) -> None:
        """See `Coding.check`."""
        for column, size, start in zip(self._columns(values), self.sizes, self.starts, strict=True):
            low, high = (int(end) for end in column.aminmax())
            if low < 0 or high >= size:
                found = f"{low + start} to {high + start}"
                raise MethodError(f"expected actions from {start} to {start + size - 1}, got some from {found}")

    def _columns(self, values: Tensor) -> list[Tensor]:
        columns = values.reshape(len(values), len(self.sizes)).long().unbind(1)
        return [column - start for column, start in zip(columns, self.starts, strict=True)]

    def encode(self, values: Tensor) -> Tensor:
        """See `Coding.encode`."""
        columns = zip(self._columns(values), self.sizes, strict=True)
        return torch.cat([F.one_hot(column, size) for column, size in columns], dim=1).to(torch.get_default_dtype())

    def losses(self, guesses: Tensor, values: Tensor) -> Tensor:
        """See `Coding.losses`."""
        pairs = zip(guesses.split(self.sizes, dim=1), self._columns(values), strict=True)
        return torch.stack([F.cross_entropy(guess, value, reduction="none") for guess, value in pairs]).sum(0)


class Bits(Coding):
    """Numbers that are 0 or 1 (MultiBinary). The loss is the sum of the cross-entropies."""

    def __init__(self, size: int) -> None:
        """Keep the size."""
        self.size = size

    def encode(self, values: Tensor) -> Tensor:
        """See `Coding.encode`."""
        return values.reshape(len(values), self.size).to(torch.get_default_dtype())

    def losses(self, guesses: Tensor, values: Tensor) -> Tensor:
        """See `Coding.losses`."""
        targets = self.encode(values).to(guesses)
        return F.binary_cross_entropy_with_logits(guesses, targets, reduction="none").sum(1)


def coding_of(space: Any, what: str) -> Coding:
    """The coding of a space.

    Args:
        space: a Gymnasium space, of one environment.
        what: whose space it is, for messages: "observation" or "action".

    Raises:
        EnvError: a space that has no coding.
    """
    try:
        from gymnasium import spaces
    except ImportError:
        raise MissingExtraError("gymnasium", "rl") from None
    match space:
        case spaces.Box():
            return Numbers(math.prod(space.shape))
        case spaces.Discrete():
            return Choices([int(space.n)], [int(space.start)])
        case spaces.MultiDiscrete():
            return Choices(space.nvec.flatten().tolist(), space.start.flatten().tolist())
        case spaces.MultiBinary():
            return Bits(math.prod(space.shape))
    if what == "observation":
        way_out = "wrap the environment in gymnasium.wrappers.FlattenObservation"
    else:
        way_out = "wrap the environment so that an action is one array"
    raise EnvError(
        f"expected an {what} space out of Box, Discrete, MultiDiscrete, MultiBinary, "
        f"got {type(space).__name__}; {way_out}"
    )


def is_image(space: Any) -> bool:
    """Whether observations are images: a Box of three dimensions."""
    return type(space).__name__ == "Box" and len(space.shape) == 3


def looks_channels_first(shape: Sequence[int]) -> bool | None:
    """Whether images of a shape look like [C, H, W] rather than [H, W, C]; None where as much speaks for either.

    For an end of the shape to be the channels speaks that it is 1, 3 or 4, as in pictures, and that the two other sides
    are equal. A grid one-hot, [7, 7, 20], has more channels than cells in a row: small alone says nothing.
    """
    first, middle, last = shape
    for_first = (first in PICTURES) + (middle == last)
    for_last = (last in PICTURES) + (first == middle)
    return None if for_first == for_last else for_first > for_last
