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
from typing import Any, TypeAlias

import numpy as np

from headway.analysis.results import SUFFIX
from headway.analysis.rundata import Array, Arrays, Failure, Problem, Progress, RunData, frozen, parse_environment
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
_RAGGED = np.dtype("V1")  # The type of what stands for a metric whose lists differ in length; no metric has it
MAX_EXPORT_VALUES, MAX_EXPORT_BYTES = 20 * MAX_VALUES, 1 << 31  # How many values and bytes an export may hold
_STATES = tuple(state.value for state in State if state is not State.CORRUPT)

Stamp: TypeAlias = tuple[int, int]


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
        self._last: tuple[Stamp, list[RunData], list[Problem]] | None = None

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
                names = [name for name in file.schema_arrow.names if self._is_wanted(name)]
                table = file.read(columns=names, use_threads=False)
            rows = table.select([name for name in names if _metric(name) is None]).to_pylist()
            metrics = [(metric, _unpack(table.column(name))) for name in names if (metric := _metric(name))]
        except (arrow.ArrowException, OSError, ValueError, LookupError, OverflowError, TypeError, MemoryError) as error:
            raise DamagedError(f"{self._path}: expected exported runs, got {str(error)[:200]}") from None
        runs: list[RunData] = []
        problems: list[Problem] = []
        for number, row in enumerate(rows):
            what = f"{self._path.name}, row {number + 1}"
            try:
                columns = _columns_of([(name, arrays[number]) for name, arrays in metrics], what)
                runs.append(_run_of(row, columns, what))
            except HeadwayError as error:
                problems.append(Problem(str(row.get("run_id") or self._path.name), "", str(error)))
        return runs, problems

    def _is_wanted(self, name: str) -> bool:
        metric = _metric(name)
        return metric is None or self._wanted is None or metric in self._wanted

    def _check_schema(self, found: Mapping[bytes, bytes]) -> None:
        version = found.get(_SCHEMA_KEY, b"").decode(errors="replace")
        if not version.isdecimal():
            raise DamagedError(f"{self._path}: expected a file that headway export wrote, got another Parquet file")
        if int(version) > EXPORT_SCHEMA:
            raise NewerSchemaError(
                f"{self._path}: expected schema {EXPORT_SCHEMA} or older, got {version}; a newer version of headway "
                "wrote it: upgrade headway"
            )


def _columns_of(found: Iterable[tuple[str, Array | None]], what: str) -> Arrays:
    """The metrics of a run: those that it has, if all have a number or a list of numbers for each of its epochs."""
    columns = {name: array for name, array in found if array is not None}
    ragged = [name for name, array in columns.items() if array.dtype == _RAGGED]
    if ragged:
        raise DamagedError(f"{what}: expected lists of one length in the metric {ragged[0]}, got several")
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
    lengths = [-1 if array is None else len(array) for array in arrays]
    if present[0].dtype == object:
        return arrow.array([None if array is None else array.tolist() for array in arrays], arrow.list_(arrow.string()))
    flat = np.concatenate([array.ravel() for array in present])
    if single and flat.dtype == np.float64:
        flat = flat.astype(np.float32)
    values = arrow.array(flat)
    if present[0].ndim == 2:
        widths = np.concatenate([np.full(len(array), array.shape[1], np.int64) for array in present])
        values = arrow.ListArray.from_arrays(_offsets(widths), values)
    starts = _offsets(np.maximum(lengths, 0))
    missing = arrow.array([length < 0 for length in lengths])
    return arrow.ListArray.from_arrays(starts, values, mask=missing)


def _offsets(lengths: Array) -> Array:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _unpack(column: Any) -> list[Array | None]:
    """Undo `_pack`: an array per run, or None."""
    arrays: list[Array | None] = []
    for chunk in column.chunks:
        valid = chunk.is_valid().to_pylist()
        starts, values = chunk.offsets.to_numpy(), chunk.values
        inner = values.offsets.to_numpy() if hasattr(values, "offsets") else None
        flat = (values if inner is None else values.values).to_numpy(zero_copy_only=False)
        if flat.dtype == np.float32:
            flat = flat.astype(np.float64)
        for number, is_there in enumerate(valid):
            first, last = starts[number], starts[number + 1]
            arrays.append(_piece(flat, inner, first, last) if is_there else None)
    return arrays


def _piece(flat: Array, inner: Array | None, first: int, last: int) -> Array:
    """The values of one run; lists of several lengths give an empty array of the type `_RAGGED`."""
    if inner is None:
        return frozen(flat[first:last])
    rows = last - first
    if len(np.unique(np.diff(inner[first : last + 1]))) > 1:
        return np.empty(0, _RAGGED)
    return frozen(flat[inner[first] : inner[last]].reshape(rows, -1) if rows else np.empty((0, 0)))
