"""Metrics: rows that a run logs one by one, and the Parquet file that they end in, which is read within bounds."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias

from headway.errors import DamagedError, StoreError, import_extra

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
MAX_PAGES = 100_000
MAX_PAGE_BYTES = 1 << 28
"""Bytes that all pages of a file may have when they are unpacked."""
_MAGIC = b"PAR1"
_MAX_DEPTH = 16
_TRUE, _FALSE, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 12
_ROW_GROUPS, _COLUMNS, _FILE_PATH, _META = 4, 1, 1, 3
_PACKED, _DATA_OFFSET, _DICTIONARY_OFFSET = 7, 9, 11
_UNPACKED_PAGE, _PACKED_PAGE, _HEADERS = 2, 3, (5, 8)


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
        names = self._names | clean.keys()
        items = self._items + sum(len(value) for value in clean.values() if isinstance(value, list))
        if (len(self._rows) + 1) * len(names) + items > MAX_VALUES:  # they could not be read back
            raise StoreError(
                f"expected at most {MAX_VALUES} values in a run's metrics, got more; log less often, or save() a file"
            )
        self._names, self._items = names, items
        self._kinds.update({name: kind for name, value in clean.items() if (kind := _kind(value))})
        self._rows.append(clean)
        self._lines.append(json.dumps(clean).encode() + b"\n")

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
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value)
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
        items = [_clean(item, name) for item in value]
        numbers = [int(item) if isinstance(item, bool) else item for item in items if isinstance(item, (int, float))]
        if len(numbers) < len(items):
            raise StoreError(
                f"expected numbers in the lists of metrics column {name!r}, got something else in {items}"[:200]
            )
        return list(numbers)
    raise StoreError(
        f"expected a number, a string, None or a list of numbers in metrics column {name!r}, got {type(value).__name__}"
    )


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
    return import_extra("pyarrow", extra), import_extra("pyarrow.parquet", extra)


def check_pages(data: bytes, most_values: int, most_bytes: int = MAX_PAGE_BYTES) -> None:
    """Make sure that a Parquet file does not hold too much, by the headers of its pages, before anything is decoded.

    A file of some kilobytes can declare more values than any memory has: repeated values take no room in it. What it
    says about itself in one place need not agree with another, and pyarrow decodes a list as a whole. So the headers of
    all pages are read here, as the decoder will read them, and their values and bytes are counted.
    """
    values = size = 0
    for pages, header in enumerate(_page_headers(data), start=1):
        # a dictionary has no values of rows, and its bytes are counted
        found = [header[kind] for kind in _HEADERS if kind in header]
        own: list[Any] = [each.get(1, 0) if isinstance(each, dict) else None for each in found]
        unpacked = header.get(_UNPACKED_PAGE, 0)
        if not all(type(each) is int and each >= 0 for each in (*own, unpacked)):
            raise ValueError("a page of a negative or unknown size")
        size += unpacked
        values += sum(own)
        if values > most_values:
            raise ValueError(f"{values} values or more, where {most_values} are the most")
        if size > most_bytes or pages > MAX_PAGES:
            raise ValueError(f"{pages} pages of {size} bytes or more, where {most_bytes} bytes are the most")


def _page_headers(data: bytes) -> Iterator[dict[int, Any]]:
    """The headers of all pages of all columns."""
    length = int.from_bytes(data[-8:-4], "little")
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC or length > len(data) - 12:
        raise ValueError("no Parquet file")
    try:
        footer = _Thrift(data, len(data) - 8 - length).struct()
        for column in (column for group in footer.get(_ROW_GROUPS, ()) for column in group[_COLUMNS]):
            if _FILE_PATH in column:
                raise ValueError("a column in another file")
            meta = column[_META]
            first, dictionary = meta[_DATA_OFFSET], meta.get(_DICTIONARY_OFFSET, 0)
            start = dictionary if 0 < dictionary < first else first
            end = start + meta[_PACKED]
            if not 4 <= start <= end <= len(data):
                raise ValueError("a column outside of the file")
            pages = _Thrift(data, start)
            while pages.place < end:
                header = pages.struct()
                pages.skip(header[_PACKED_PAGE])
                yield header
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"no Parquet file ({type(error).__name__} in its headers)") from None


class _Thrift:
    """Reads values of Thrift's compact protocol from a place in a file onwards: https://github.com/apache/parquet-format."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self.place = place

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields of a struct, by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth + 1)
        return fields

    def skip(self, length: int) -> None:
        """Pass over so many bytes."""
        if not 0 <= length <= len(self._data) - self.place:
            raise ValueError("headers that end before they should")
        self.place += length

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("headers nested too deeply")
        if kind in _INTEGERS:
            return self._integer()
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in _LISTS:
            head = self._byte()
            length = head >> 4 if head >> 4 < 15 else self._varint()
            if length > len(self._data) - self.place:  # every item takes a byte at least
                raise ValueError("a list that is longer than the file")
            return [self._value(head & 15, depth + 1) for _ in range(length)]
        if kind in (_BYTE, _TRUE, _FALSE):  # truth values in a list take a byte each
            return self._byte()
        if kind not in (_BINARY, _DOUBLE):
            raise ValueError(f"a header of an unknown kind ({kind})")
        return self.skip(self._varint() if kind == _BINARY else 8)  # no text matters here

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of too many bytes in its headers")
