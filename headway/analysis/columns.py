"""Metrics as NumPy arrays, straight from Parquet: no Python object per number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.errors import DamagedError
from headway.runs.metrics import MAX_VALUES, pyarrow, read_table

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = dict[str, Array]

TIMES = frozenset({"steps_per_second"})
"""Metrics that measure the machine and not the run."""


def read_parquet(data: bytes, what: str, wanted: Collection[str] | None = None) -> tuple[Arrays, dict[str, str]]:
    """Read a run's metrics."""
    pyarrow("report")
    table, metadata = read_table(data, what, wanted)
    try:
        columns = {name: frozen(from_arrow(table.column(name).combine_chunks())) for name in table.column_names}
    except (ValueError, MemoryError) as error:
        raise DamagedError(f"{what}: expected metrics of a run, got {error}") from None
    return columns, metadata


def from_arrow(array: Any) -> Array:
    """Turn an Arrow array into a NumPy array.

    Numbers become [rows]; lists of numbers become [rows, longest list] with NaN where a list is shorter; strings
    become an object array. A missing number is NaN.
    """
    arrow, _ = pyarrow("report")
    if isinstance(array, arrow.ChunkedArray):  # one of no chunks does not become an array by itself
        array = arrow.concat_arrays(array.chunks) if array.num_chunks else arrow.array([], array.type)
    if arrow.types.is_list(array.type):
        array = array.fill_null([]) if array.null_count else array
        starts = array.offsets.to_numpy()
        values: Array = array.values.to_numpy(zero_copy_only=False)
        return _rectangle(values[starts[0] : starts[-1]], np.diff(starts))
    if arrow.types.is_boolean(array.type) and array.null_count:
        array = array.cast("int8").cast("float64")
    result: Array = array.to_numpy(zero_copy_only=False)
    return result


def from_lists(values: Sequence[Any]) -> Array:
    """Turn a column of Python values into the array that `from_arrow` gives for it."""
    present = [value for value in values if value is not None]
    if present and isinstance(present[0], list):
        lists = [value or [] for value in values]
        flat = np.array([item for value in lists for item in value])
        return _rectangle(flat, np.array([len(value) for value in lists]))
    if present and isinstance(present[0], str):
        return np.array(values, dtype=object)
    if len(present) < len(values):
        return np.array([np.nan if value is None else float(value) for value in values])
    return np.array(values) if present else np.empty(0)


def same_numbers(first: Array, second: Array) -> bool:
    """Whether two arrays are equal; what is missing in both is."""
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def is_rounded(first: Array, second: Array) -> bool:
    """Whether the first array is the second one rounded to single precision, and not the second one itself."""
    if first.dtype.kind != "f" or second.dtype.kind != "f" or same_numbers(first, second):
        return False
    with np.errstate(over="ignore"):  # what is too large becomes infinite, as it did in the first array
        rounded = second.astype(np.float32)
    return same_numbers(first, rounded.astype(first.dtype))


def agree(first: Array, second: Array) -> bool:
    """Whether two arrays have the same numbers, one of them perhaps in single precision."""
    return same_numbers(first, second) or is_rounded(first, second) or is_rounded(second, first)


def frozen(array: Array) -> Array:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


def freeze_lists(columns: Mapping[str, Sequence[Any]], wanted: Collection[str] | None = None) -> Arrays:
    """Turn columns of Python values into read-only arrays; only the wanted ones, if told."""
    chosen = {name: values for name, values in columns.items() if wanted is None or name in wanted}
    try:
        return {name: frozen(from_lists(values)) for name, values in chosen.items()}
    except (ValueError, MemoryError) as error:
        raise DamagedError(f"expected metrics of a run, got {error}") from None


def _rectangle(values: Array, lengths: Array) -> Array:
    """Put lists under each other: all values in a row, and the length of each list -> [lists, longest]."""
    if not len(lengths):
        return np.empty((0, 0))
    longest = int(lengths.max())
    if (lengths == longest).all():
        return values.reshape(len(lengths), longest)
    if len(lengths) * longest > MAX_VALUES:
        raise ValueError(f"lists of up to {longest} values in {len(lengths)} rows, where {MAX_VALUES} fit")
    padded = np.full((len(lengths), longest), np.nan)
    padded[np.arange(longest) < lengths[:, None]] = values
    return padded
