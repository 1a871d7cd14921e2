"""Exports: many runs in one Parquet file, with everything that the analysis needs and nothing else.

An export has one row per run: its id, its spec as JSON, its state and progress, its environment as JSON, and for each
metric a list with a value (or a list of values) per epoch. Checkpoints and weights are not in it.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from headway.analysis.results import SUFFIX
from headway.analysis.rundata import (
    Array,
    Arrays,
    Failure,
    Problem,
    Progress,
    RunData,
    from_arrow,
    frozen,
    parse_environment,
)
from headway.errors import DamagedError, HeadwayError, NewerSchemaError, StoreError
from headway.runs import RunSpec, State
from headway.runs.files import read_bytes, store_error, write_atomic
from headway.runs.metrics import MAX_VALUES, open_parquet, pyarrow
from headway.runs.provenance import version_of

EXPORT_SCHEMA = 1
_SCHEMA_KEY, _MADE_WITH_KEY = b"headway.lot", b"headway.made_with"
_KINDS = {"numbers": "metric.", "lists": "arms.", "words": "words."}
"""What the columns of metrics begin with: a metric may be a number per epoch in some runs, and a list in others."""
_RUNS_PER_ROW_GROUP = 64
MAX_EXPORT_VALUES, MAX_EXPORT_BYTES = 20 * MAX_VALUES, 1 << 31  # How many values and bytes an export may hold
_STATES = tuple(state.value for state in State if state is not State.CORRUPT)


def write_export(
    runs: Iterable[RunData], path: Path, columns: Collection[str] | None = None, single: bool = False
) -> int:
    """Write runs, such as `Results`, to one file, atomically; corrupt ones are left out. Returns how many were written.

    Args:
        runs: the runs.
        path: the file, ending in ".parquet".
        columns: the metrics to keep; None for all.
        single: keep 32 bits of each fraction instead of 64, which halves the file.

    Raises:
        StoreError: the name does not end in ".parquet", no run is left, or the file cannot be written.
    """
    if path.suffix != SUFFIX:
        raise StoreError(f"expected a file name that ends in {SUFFIX}, got {path}")
    kept = [run for run in runs if run.state is not State.CORRUPT]
    if not kept:
        raise StoreError(f"expected at least one readable run for {path}, got none")
    arrow, parquet = pyarrow("report")
    metrics: dict[str, list[Array | None]] = {}
    for place, run in enumerate(kept):
        for name, array in run.columns.items():
            if columns is None or name in columns:
                kind = "words" if array.dtype == object else "lists" if array.ndim == 2 else "numbers"
                metrics.setdefault(f"{_KINDS[kind]}{name}", [None] * len(kept))[place] = array
    table = arrow.table(
        {
            "run_id": [run.id for run in kept],
            "spec": [json.dumps(run.spec.to_dict()) for run in kept],
            "seed": [run.seed for run in kept],
            "state": [run.state.value for run in kept],
            "progress": [json.dumps(asdict(run.progress)) for run in kept],
            "error": [run.error.traceback if run.error else "" for run in kept],
            "note": [run.note for run in kept],
            "host": [run.host for run in kept],
            "environment": [json.dumps(dict(run.environment)) for run in kept],
            **{name: _pack(arrow, arrays, single) for name, arrays in metrics.items()},
        }
    )
    made_with = {name: version_of(name) for name in ("headway", "numpy", "pyarrow")}
    made_with = {"python": platform.python_version(), **made_with}
    table = table.replace_schema_metadata({_SCHEMA_KEY: str(EXPORT_SCHEMA), _MADE_WITH_KEY: json.dumps(made_with)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("make", path.parent, error) from error

    sink = arrow.BufferOutputStream()
    options = {"compression": "zstd", "row_group_size": _RUNS_PER_ROW_GROUP, "write_page_checksum": True}
    parquet.write_table(table, sink, **options)
    write_atomic(path, lambda file: file.write(memoryview(sink.getvalue())))
    return len(kept)


class ExportReader:
    """Reads one export, and reads it again only when the file has changed."""

    def __init__(self, path: Path, wanted: Collection[str] | None = None) -> None:
        self._path = path
        self._wanted = wanted
        self._last: tuple[object, list[RunData], list[Problem]] | None = None

    def read(self) -> tuple[list[RunData], list[Problem]]:
        """Read the runs; a file that is no whole export is a problem, and so is each row that is no run."""
        try:
            info = self._path.stat()
            stamp = (info.st_mtime_ns, info.st_size)
            if self._last is None or self._last[0] != stamp:
                self._last = (stamp, *self._parse())
        except (OSError, StoreError) as error:
            return [], [Problem(self._path.name, "", str(error))]
        return self._last[1], self._last[2]

    def _parse(self) -> tuple[list[RunData], list[Problem]]:
        arrow, _ = pyarrow("report")
        data = read_bytes(self._path, MAX_EXPORT_BYTES)
        if data is None:
            raise DamagedError(f"expected {self._path}, got no such file")
        try:
            with open_parquet(data, MAX_EXPORT_VALUES, MAX_EXPORT_BYTES) as file:
                self._check_schema(file.schema_arrow.metadata or {})
                stored, wanted = file.schema_arrow.names, self._wanted
                names = [name for name in stored if wanted is None or _metric(name) in (None, *wanted)]
                table = file.read(columns=names, use_threads=False)
            rows = table.select([name for name in names if _metric(name) is None]).to_pylist()
            metrics = [(metric, table.column(name)) for name in names if (metric := _metric(name))]
        except (arrow.ArrowException, OSError, ValueError, LookupError, OverflowError, TypeError, MemoryError) as error:
            raise DamagedError(f"{self._path}: expected exported runs, got {str(error)[:200]}") from None
        runs: list[RunData] = []
        problems: list[Problem] = []
        for number, row in enumerate(rows):
            what = f"{self._path.name}, row {number + 1}"
            try:
                lists = {name: column[number] for name, column in metrics if column[number].is_valid}
                runs.append(_run_of(row, _columns_of(lists, what), what))
            except HeadwayError as error:
                problems.append(Problem(str(row.get("run_id") or self._path.name), "", str(error)))
        return runs, problems

    def _check_schema(self, found: Mapping[bytes, bytes]) -> None:
        version = found.get(_SCHEMA_KEY, b"").decode(errors="replace")
        if not version.isdecimal():
            raise DamagedError(f"{self._path}: expected a file that headway export wrote, got another Parquet file")
        if int(version) > EXPORT_SCHEMA:
            raise NewerSchemaError(
                f"{self._path}: expected schema {EXPORT_SCHEMA} or older, got {version}; a newer version of headway "
                "wrote it: upgrade headway"
            )


def _columns_of(lists: Mapping[str, Any], what: str) -> Arrays:
    """The metrics of a run, if all have a number, or a list of one length, for each of its epochs."""
    columns = {}
    for name, found in lists.items():
        values = found.values
        if hasattr(values, "offsets") and len(np.unique(np.diff(values.offsets))) > 1:
            raise DamagedError(f"{what}: expected lists of one length in the metric {name}, got several")
        array = from_arrow(values)
        columns[name] = frozen(array.astype(np.float64) if array.dtype == np.float32 else array)
    lengths = {len(array): name for name, array in columns.items()}
    if len(lengths) > 1:
        parts = ", ".join(f"{rows} of {name}" for rows, name in sorted(lengths.items()))
        raise DamagedError(f"{what}: expected as many values of each metric, got {parts}")
    return columns


def _progress_of(text: str) -> Progress:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise TypeError(f"{type(content).__name__} for progress")
    for name, value in content.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number and not (value is None and name in ("total", "speed", "updated_at")):
            raise TypeError(f"{str(value)[:40]!r} for {name}")
    return Progress(**content)


def _run_of(row: Mapping[str, Any], columns: Arrays, what: str) -> RunData:
    """Make a run from a row of an export."""
    spec = RunSpec.from_json(str(row.get("spec")), what)
    if row.get("state") not in _STATES:
        raise DamagedError(f"{what}: expected a state among {', '.join(_STATES)}, got {str(row.get('state'))[:40]!r}")
    try:
        progress = _progress_of(row["progress"])
        environment = parse_environment(row["environment"], what)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedError(f"{what}: expected progress and environment as JSON, got {error}") from None
    failure, note, host = (str(row.get(name) or "") for name in ("error", "note", "host"))
    told = progress, Failure.of(failure), note, host, environment
    return RunData(spec.run_id, spec, State(row["state"]), columns, *told)


def _metric(stored_name: str) -> str | None:
    """The metric that a column of an export holds; None if it holds something else."""
    return next((stored_name.removeprefix(p) for p in _KINDS.values() if stored_name.startswith(p)), None)


def _pack(arrow: Any, arrays: list[Array | None], single: bool) -> Any:
    """One metric of all runs as an Arrow array: a list per run, of numbers or of lists; null where a run has none."""
    present = [array for array in arrays if array is not None]
    dtype = np.result_type(*present)
    dtype = np.dtype(np.float32) if single and dtype == np.float64 else dtype
    kind = arrow.string() if dtype.kind == "O" else arrow.from_numpy_dtype(dtype)
    if present[0].ndim == 2:
        kind = arrow.list_(kind)
    values = [None if array is None else list(array.astype(dtype)) for array in arrays]
    return arrow.array(values, arrow.list_(kind))
