"""Metrics: rows that a run logs one by one, and the Parquet file that they end in."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias

from headway.errors import DamagedError, MissingExtraError, StoreError
from headway.runs.pages import MAX_PAGE_BYTES, check_pages

Number: TypeAlias = bool | int | float
Value: TypeAlias = Number | str | list[Number] | None
Columns: TypeAlias = dict[str, list[Value]]

MAX_VALUES = 10_000_000
"""How many values the metrics of a run may have: a Parquet file of some kilobytes can hold more than any memory."""
MAX_TEXT = 10_000
"""How many bytes a text in the metrics of a run may have, in UTF-8."""
ROWS_AT_ONCE = 4096
"""How many rows are read before their values are counted."""
_INT64 = 2**63


class RowLog:
    """The rows that a run has logged so far.

    Each row is checked and encoded once, when it is added, so that a checkpoint with n rows costs only the
    writing of their bytes.
    """

    def __init__(self, encoded: bytes = b"") -> None:
        self._rows: list[dict[str, Value]] = []
        self._lines: list[bytes] = []
        self._kinds: dict[str, str] = {}
        self._names: set[str] = set()
        self._items = 0
        for line in encoded.splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as exc:
                raise StoreError(f"expected one JSON object per metrics row, got {line[:40]!r} ({exc})") from None
            self.append(row)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row."""
        if not isinstance(row, Mapping):
            raise StoreError(f"expected a mapping for a metrics row, got {type(row).__name__}")
        for name in row:
            if not isinstance(name, str) or not name or not name.isprintable():
                raise StoreError(f"expected a printable name for a metrics column, got {name!r}")
        clean = {name: _clean(value, name) for name, value in row.items()}
        for name, value in clean.items():
            kind, known = _kind(value), self._kinds.get(name)
            if kind and known and kind != known:
                raise StoreError(f"expected a {known} in metrics column {name!r} as before, got a {kind}")
        self._count(clean)
        self._kinds.update({name: kind for name, value in clean.items() if (kind := _kind(value))})
        self._rows.append(clean)
        self._lines.append(json.dumps(clean).encode() + b"\n")

    def _count(self, row: Mapping[str, Value]) -> None:
        """Refuse a row with which the metrics could not be read back."""
        names = self._names | row.keys()
        items = self._items + sum(len(value) for value in row.values() if isinstance(value, list))
        if (len(self._rows) + 1) * len(names) + items > MAX_VALUES:
            raise StoreError(
                f"expected at most {MAX_VALUES} values in a run's metrics, got more; log less often, or save() a file"
            )
        self._names, self._items = names, items

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def encode(self) -> bytes:
        """Return the rows as lines of JSON, from which they come back bit for bit."""
        return b"".join(self._lines)

    def columns(self) -> Columns:
        """Return a list of values for each column, with None where a row has none."""
        names = dict.fromkeys(name for row in self._rows for name in row)
        return {name: [row.get(name) for row in self._rows] for name in names}


def _clean(value: Any, name: str) -> Value:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, (bool, float)):
        return value if value is None or isinstance(value, bool) else float(value)
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise StoreError(f"expected an integer of at most 64 bits in metrics column {name!r}, got a larger one")
        return int(value)
    if isinstance(value, str):
        try:
            length = len(value.encode())
        except UnicodeEncodeError:
            raise StoreError(f"expected valid Unicode in metrics column {name!r}, got {value!r}") from None
        if length > MAX_TEXT:
            raise StoreError(
                f"expected a text of at most {MAX_TEXT} bytes in metrics column {name!r}, got {length}; save() a file"
            )
        return str.__str__(value)
    if isinstance(value, (list, tuple)):
        return [_clean_item(item, name) for item in value]
    raise StoreError(
        f"expected a number, a string, None or a list of numbers in metrics column {name!r}, got {type(value).__name__}"
    )


def _clean_item(item: Any, name: str) -> Number:
    number = _clean(item, name)
    if isinstance(number, (int, float)):
        return int(number) if isinstance(number, bool) else number
    raise StoreError(f"expected numbers in the lists of metrics column {name!r}, got {type(item).__name__}")


def _kind(value: Value) -> str:
    """Name what a column holds; empty when ``value`` fits any column."""
    if isinstance(value, list):
        return "list"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "truth value"
    return "" if value is None else "number"


def to_parquet(columns: Columns, metadata: Mapping[str, str]) -> bytes:
    """Return the content of a Parquet file; the same columns give the same bytes."""
    arrow, parquet = pyarrow()
    file = io.BytesIO()
    try:
        arrays = [_arrow_array(arrow, values) for values in columns.values()]
        schema = arrow.schema(
            [arrow.field(name, array.type) for name, array in zip(columns, arrays, strict=True)],
            metadata=dict(metadata),
        )
        parquet.write_table(arrow.Table.from_arrays(arrays, schema=schema), file, write_page_checksum=True)
    except arrow.ArrowException as exc:
        raise StoreError(
            f"expected metrics that a Parquet file can hold, got {str(exc)[:200]}; save() a file instead"
        ) from exc
    return file.getvalue()


def from_parquet(data: bytes, what: str) -> tuple[Columns, dict[str, str]]:
    """Return the columns and the metadata of a Parquet file, read by `read_table`."""
    table, metadata = read_table(data, what)
    words: dict[Value, Value] = {}
    columns: Columns = {name: [] for name in table.column_names}
    for batch in table.to_batches():
        for name, array in zip(table.column_names, batch.columns, strict=True):
            columns[name] += _texts(array, words) if hasattr(array, "dictionary") else array.to_pylist()
    return columns, metadata


def read_table(data: bytes, what: str, wanted: Collection[str] | None = None) -> tuple[Any, dict[str, str]]:
    """Read the metrics of a run: the one place where that is done, and where it is made sure that they fit."""
    arrow, _ = pyarrow()
    try:
        file = open_parquet(data)
        schema = file.schema_arrow
        _check_types(arrow, schema)
        _check_count(file.metadata.num_rows)
        if texts := [field.name for field in schema if field.type == arrow.string()]:
            file = _open(data, metadata=file.metadata, read_dictionary=texts)
        metadata = {key.decode(): text.decode() for key, text in (schema.metadata or {}).items()}
        return _read(arrow, file, [name for name in schema.names if wanted is None or name in wanted]), metadata
    except (arrow.ArrowException, OSError, LookupError, ValueError, OverflowError, MemoryError) as exc:
        raise DamagedError(f"{what}: expected a whole Parquet file, got {str(exc)[:200]}") from None


def open_parquet(data: bytes, most_values: int = MAX_VALUES, most_bytes: int = MAX_PAGE_BYTES) -> Any:
    """Open the content of a Parquet file, as a `pyarrow.parquet.ParquetFile`."""
    check_pages(data, most_values, most_bytes)
    return _open(data)


def column_names(file: BinaryIO) -> list[str]:
    """The names of the columns of an open Parquet file; nothing else of it is read."""
    return list(_open(file).schema_arrow.names)


def _open(source: bytes | BinaryIO, **options: Any) -> Any:
    """Open a Parquet file so that pyarrow starts no thread to read it.

    Its threads outlive what they were started for. One that lets go of a Python object when the interpreter has
    ended aborts the process ("terminate called without an active exception").
    """
    arrow, parquet = pyarrow()
    source = arrow.BufferReader(source) if isinstance(source, bytes) else source
    return parquet.ParquetFile(source, page_checksum_verification=True, pre_buffer=False, **options)


def check_owner(metadata: Mapping[str, str], run_id: str, what: str) -> None:
    """Make sure that metrics belong to a run."""
    if metadata.get("headway.run_id") != run_id:
        raise DamagedError(f"{what}: expected the metrics of this run, got those of another one")


def _check_types(arrow: Any, schema: Any) -> None:
    """Refuse a file with columns that `to_parquet` does not write."""
    numbers = [arrow.int64(), arrow.float64()]
    known = [arrow.bool_(), arrow.string(), *numbers, *map(arrow.list_, numbers)]
    if len(set(schema.names)) < len(schema.names):
        raise ValueError("two columns of one name")
    for field in schema:
        if field.type not in known:
            raise ValueError(f"a column {field.name!r} of type {field.type}")


def _check_count(values: int) -> None:
    """Refuse more values than `RowLog` takes."""
    if values > MAX_VALUES:
        raise ValueError(f"{values} values or more, where {MAX_VALUES} are the most")


def _read(arrow: Any, file: Any, names: list[str]) -> Any:
    """Read a file piece by piece and stop when there is more than `RowLog` takes, whatever the file says about itself.

    What it says about its columns is not asked for: pyarrow ends the process if that is damaged.
    """
    compute = importlib.import_module("pyarrow.compute")
    batches, count = [], 0
    for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=names, use_threads=False):
        count += sum(len(array.flatten()) if hasattr(array, "offsets") else len(array) for array in batch.columns)
        _check_count(count)
        for texts in (array.dictionary for array in batch.columns if hasattr(array, "dictionary")):
            longest = compute.max(compute.binary_length(texts)).as_py() or 0
            if longest > MAX_TEXT:
                raise ValueError(f"a text of {longest} bytes, where {MAX_TEXT} are the most")
        batches.append(batch)
    if batches:
        return arrow.Table.from_batches(batches)
    return file.schema_arrow.empty_table().select(names)


def _texts(array: Any, words: dict[Value, Value]) -> list[Value]:
    """The texts of an array; equal ones are one object, so that repeating a long one takes no room."""
    own = [words.setdefault(word, word) for word in array.dictionary.to_pylist()]
    return [None if index is None else own[index] for index in array.indices.to_pylist()]


def _arrow_array(arrow: Any, values: Sequence[Value]) -> Any:
    """An array of the type that holds all values: float64 as soon as one is a float, or if there is none."""
    kind = next(filter(None, map(_kind, values)), "number")
    if kind in ("string", "truth value"):
        return arrow.array(values, type=arrow.string() if kind == "string" else arrow.bool_())
    lists = [value if isinstance(value, list) else [value] for value in values if value is not None]
    items = [item for each in lists for item in each]
    number = arrow.int64() if items and all(isinstance(item, int) for item in items) else arrow.float64()
    if number == arrow.float64():  # to which pyarrow converts small integers only
        values = [_as_floats(value) for value in values]
    return arrow.array(values, type=arrow.list_(number) if kind == "list" else number)


def _as_floats(value: Value) -> Value:
    if isinstance(value, list):
        return [float(item) for item in value]
    return float(value) if isinstance(value, int) else value


def pyarrow(extra: str = "experiments") -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as exc:
        raise MissingExtraError("pyarrow", extra) from exc
