"""The rows that a `SourceMonitor` has left behind, as CSV or Parquet: finding and reading them."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.analysis.report.films import stores_at
from headway.errors import DamagedError, StoreError
from headway.runs.files import open_regular, read_bytes
from headway.runs.metrics import column_names, open_parquet, pyarrow
from headway.runs.status import METRICS_FILE

NUMBERS = ("samples", "share", "loss", "gradient_norm", "gmc", "coupling")
COLUMNS = ("step", "source", *NUMBERS, "state")
"""What a file must have to count as telemetry; it may have more."""
STATES = ("learning", "saturated", "incoherent", "diverged")
"""The states that a row can have."""
CSV, PARQUET = ".csv", ".parquet"
MOST_BYTES = 1 << 26
"""A file larger than this is not read."""
_LONGEST_HEAD = 1 << 16


@dataclass(frozen=True)
class Row:
    """What is known of one source at one step.

    Attributes:
        step: batches so far.
        source: its name.
        state: its state.
        values: its numbers by column; NaN for one that is not known.
    """

    step: int
    source: str
    state: str
    values: Mapping[str, float]


def telemetry_files(source: Path) -> list[Path]:
    """The files with telemetry: the source itself, or those in the folder, in its stores and beside their runs."""
    if source.is_file():
        candidates = {source}
    else:
        stores = stores_at(source)
        folders = {source, *stores, *(child for store in stores for child in _children(store))}
        candidates = {file for folder in folders for file in _children(folder)}
    return [file for file in sorted(candidates) if _has_columns(file)]


def _children(folder: Path) -> list[Path]:
    """What is in a folder; nothing if it is none, or may not be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _has_columns(file: Path) -> bool:
    if file.name.startswith(".") or file.name == METRICS_FILE:
        return False
    if file.suffix == CSV:
        return set(COLUMNS) <= set(_head(file))
    if file.suffix == PARQUET:
        arrow, _ = pyarrow("report")
        try:
            with os.fdopen(open_regular(file), "rb") as content:
                return set(COLUMNS) <= set(column_names(content))
        except (arrow.ArrowException, OSError, StoreError):
            return False
    return False


def _head(file: Path) -> list[str]:
    """The names in the first line of a CSV file; none if it cannot be read."""
    try:
        with os.fdopen(open_regular(file), newline="", encoding="utf-8-sig", errors="replace") as lines:
            return next(csv.reader([lines.readline(_LONGEST_HEAD)]), [])
    except (OSError, StoreError, csv.Error):
        return []


def read_rows(file: Path) -> tuple[list[Row], int]:
    """All rows of a file in the order of their steps, and how many others could not be read.

    The last line of a CSV file that is being written may be one of those.

    Raises:
        DamagedError: the file cannot be read at all.
    """
    arrow, _ = pyarrow("report")
    try:
        data = read_bytes(file, MOST_BYTES) or b""
        if file.suffix == PARQUET:
            content = open_parquet(data, most_bytes=MOST_BYTES)
            found = _rows(content.read(columns=list(COLUMNS), use_threads=False).to_pylist())
        else:
            found = _rows(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    except (arrow.ArrowException, OSError, StoreError, ValueError, MemoryError, csv.Error) as error:
        raise DamagedError(f"{file.name}: expected rows of a SourceMonitor, got {str(error)[:200]}") from None
    rows = [row for row in found if row is not None]
    return sorted(rows, key=lambda row: row.step), len(found) - len(rows)


def _rows(entries: Iterable[Mapping[str, Any]]) -> list[Row | None]:
    return [_row(entry) for entry in entries]


def _row(entry: Mapping[str, Any]) -> Row | None:
    """A row, or None if it is not whole."""
    try:
        values = {name: _number(entry[name]) for name in NUMBERS}
        row = Row(int(entry["step"]), str(entry["source"]), str(entry["state"]), values)
    except (ValueError, TypeError, OverflowError):
        return None
    return row if row.state in STATES else None


def _number(value: Any) -> float:
    """A number; NaN where there is none."""
    return math.nan if value is None or value == "" else float(value)
