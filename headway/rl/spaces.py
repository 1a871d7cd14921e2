"""Observations and actions as rows of numbers, by the Gymnasium space that they come from.

Observations of several parts (Dict, Tuple) become one row: everything between an environment and a network handles
rows. Parts stand in the order of their sorted names, those of a Tuple in theirs; a part of any shape is flattened.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import EnvError, MethodError
from headway.rl.envs.make import gymnasium

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

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
                raise MethodError(f"expected actions from {start} to {start + size - 1}, got {found}")

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


class Bits(Numbers):
    """Numbers that are 0 or 1 (MultiBinary). The loss is the sum of the cross-entropies."""

    def losses(self, guesses: Tensor, values: Tensor) -> Tensor:
        """See `Coding.losses`."""
        targets = self.encode(values).to(guesses)
        return F.binary_cross_entropy_with_logits(guesses, targets, reduction="none").sum(1)


def coding_of(space: Any, what: str) -> Coding:
    """The coding of a Gymnasium space of one environment, which is an "observation" or "action" space in messages.

    Raises:
        EnvError: a space that has no coding.
    """
    spaces = gymnasium().spaces
    match space:
        case spaces.Box():
            return Numbers(math.prod(space.shape))
        case spaces.Discrete():
            return Choices([int(space.n)], [int(space.start)])
        case spaces.MultiDiscrete():
            return Choices(space.nvec.flatten().tolist(), space.start.flatten().tolist())
        case spaces.MultiBinary():
            return Bits(math.prod(space.shape))
    raise EnvError(
        f"expected an {what} space out of Box, Discrete, MultiDiscrete, MultiBinary, got {type(space).__name__}; "
        f"wrap the environment so that an {what} is one array, as gymnasium.wrappers.FlattenObservation does"
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


def unclear_image(space: Any) -> tuple[int, ...] | None:
    """The shape of the first image among the parts of a space that looks like [C, H, W]; None for none."""
    shapes = (part.shape for _, part in leaves(space) if is_image(part))
    return next(filter(looks_channels_first, shapes), None)


def is_joint(space: Any) -> bool:
    """Whether observations have several parts."""
    return type(space).__name__ in ("Dict", "Tuple")


def leaves(space: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The parts of a space with their names, such as "camera" or "sensors.0"; an array has one without a name.

    Raises:
        EnvError: a part that is no array.
    """
    if is_joint(space):
        parts = space.spaces.items() if type(space).__name__ == "Dict" else enumerate(space.spaces)
        for key, part in sorted(parts):
            yield from leaves(part, f"{name}.{key}" if name else str(key))
    elif getattr(space, "shape", None) is None:
        raise EnvError(
            f"expected observations of arrays, got {type(space).__name__}{f' for {name}' if name else ''}; "
            f"wrap the environment in gymnasium.wrappers.FlattenObservation"
        )
    else:
        yield name, space


def width(space: Any) -> int:
    """Numbers in a row of a space."""
    return sum(math.prod(part.shape) for _, part in leaves(space))


def pack(values: Any) -> Any:
    """Observations of N environments: arrays or tensors [N, ...] as they are, parts as one row each [N, width].

    Rows are float32, which holds bytes and whole numbers up to 2^24 as they are.
    """
    if not isinstance(values, Mapping | tuple):
        return values
    parts = [pack(values[key]) for key in sorted(values)] if isinstance(values, Mapping) else [*map(pack, values)]
    if any(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat([torch.as_tensor(part).reshape(len(part), -1).float() for part in parts], dim=1)
    rows = [np.asarray(part) for part in parts]
    return np.concatenate([row.reshape(len(row), -1).astype(np.float32) for row in rows], axis=1)


def pick(values: Any, index: int) -> Any:
    """What an array, or parts of arrays, say about one environment; Gymnasium's masks beside them are left out."""
    if isinstance(values, Mapping):
        return {key: pick(value, index) for key, value in values.items() if not str(key).startswith("_")}
    if isinstance(values, tuple):
        return tuple(pick(value, index) for value in values)
    return values[index]


def pack_one(values: Any) -> Any:
    """The observation of one environment as a row [width]; an array as it is."""
    if not isinstance(values, Mapping | tuple):
        return values
    parts = [values[key] for key in sorted(values)] if isinstance(values, Mapping) else values
    return np.concatenate([np.asarray(pack_one(part), dtype=np.float32).reshape(-1) for part in parts])


class Layout(tuple[int, ...]):
    """The shape [D] of rows that hold several observations, one after the other, each of a shape of its own."""

    parts: list[tuple[int, ...]]

    def __new__(cls, parts: Sequence[tuple[int, ...]]) -> Layout:
        """Add up the sizes."""
        made = super().__new__(cls, (sum(map(math.prod, parts)),))
        made.parts = list(parts)
        return made


class Observations:
    """Turns observations of the space of one environment into what networks take.

    Attributes:
        shape: of one observation as networks see it: [C, H, W] for an image, [D] for anything else. For several parts
            (Dict, Tuple) a `Layout`: rows with all of them; the factor on observations is then one on images alone.

    Raises:
        EnvError: a space, or a part of it, that has no coding.
    """

    def __init__(self, space: Any, config: Any) -> None:
        self._parts: list[tuple[Observations, tuple[int, ...]]] = []
        self._scale = config.observation_scale
        if is_joint(space):
            for _, part in leaves(space):
                reader = Observations(part, config)
                reader._scale = self._scale if is_image(part) else 1.0
                self._parts.append((reader, tuple(part.shape)))
            self._given: tuple[int, ...] = (width(space),)
            self.shape: tuple[int, ...] = Layout([part.shape for part, _ in self._parts])
            return
        self._coding: Coding = coding_of(space, "observation")
        self._given = tuple(space.shape)
        self._permute = is_image(space) and not config.channels_first
        if not is_image(space):
            self.shape = (self._coding.size,)
        elif config.channels_first:
            self.shape = self._given
        else:
            self.shape = (self._given[2], *self._given[:2])

    @property
    def size(self) -> int:
        """Numbers in one observation."""
        return math.prod(self.shape)

    def read(self, values: Tensor) -> Tensor:
        """Observations [N, ...] as [N, *shape].

        Raises:
            MethodError: they have another shape than the space.
        """
        if tuple(values.shape[1:]) != self._given:
            raise MethodError(
                f"expected observations of shape {list(self._given)} each, got {list(values.shape[1:])}; "
                f"make the predictor with the observation space of one environment (env.single_observation_space)"
            )
        if self._parts:
            columns = values.split([math.prod(given) for _, given in self._parts], dim=1)
            parts = zip(self._parts, columns, strict=True)
            return torch.cat([part.read(own.reshape(-1, *given)).flatten(1) for (part, given), own in parts], dim=1)
        if len(self.shape) == 1:
            numbers = self._coding.encode(values)
        else:
            numbers = (values.permute(0, 3, 1, 2) if self._permute else values).to(torch.get_default_dtype())
        scaled = type(self._coding) is Numbers and self._scale != 1
        return numbers * self._scale if scaled else numbers
