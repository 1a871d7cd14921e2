"""Observations of several parts (Dict, Tuple) as one row of numbers, and which columns belong to which part.

Everything between an environment and a network handles rows. Parts stand in the order of their sorted names, those of
a Tuple in theirs; a part of any shape is flattened.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headway.errors import EnvError

Array = npt.NDArray[Any]


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

    def batch(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: batch(part) for key, part in value.items()}
        return tuple(map(batch, value)) if isinstance(value, tuple) else np.asarray(value)[None]

    return pack(batch(values))[0] if isinstance(values, Mapping | tuple) else values
