"""Reading a run store into `RunData`, with what was read before kept for the next time."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from headway.analysis.columns import Arrays, freeze_lists, read_parquet
from headway.analysis.rundata import Failure, Problem, Progress, RunData, parse_environment
from headway.errors import DamagedError, HeadwayError, MissingExtraError
from headway.runs import RunRecord, RunStore, State
from headway.runs.checkpoints import SLOTS
from headway.runs.jsonable import MAX_BYTES
from headway.runs.metrics import check_owner
from headway.runs.pages import MAX_PAGE_BYTES
from headway.runs.status import METRICS_FILE

PROVENANCE_FILE = "provenance.json"

Stamp: TypeAlias = tuple[object, ...]
Cached: TypeAlias = tuple[Stamp, Arrays, Mapping[str, Any]]


class StoreReader:
    """Reads the runs of a store, again and again: only what has changed on disk is read anew.

    Args:
        root: the folder of the store.
        wanted: the columns to read; None for all.
    """

    def __init__(self, root: Path, wanted: Collection[str] | None = None) -> None:
        self._store = RunStore(root)
        self._wanted = wanted
        self._cache: dict[str, Cached] = {}

    def read(self) -> tuple[list[RunData], list[Problem]]:
        """Read all runs as they are now."""
        runs: list[RunData] = []
        problems: list[Problem] = []
        records = self._store.status()
        for record in records:
            run, problem = self._read_run(record)
            runs += [run] if run else []
            problems += [problem] if problem else []
        present = {record.run_id for record in records}
        self._cache = {run_id: cached for run_id, cached in self._cache.items() if run_id in present}
        return runs, problems

    def _read_run(self, record: RunRecord) -> tuple[RunData | None, Problem | None]:
        """Read one run; whatever is wrong with it is a problem of its own and stops nothing else."""
        if record.spec is None:
            return None, Problem(record.run_id, "", record.reason)
        try:
            if record.state is State.CORRUPT:
                raise DamagedError(record.reason)
            columns, environment = self._metrics(record)
        except MissingExtraError:
            raise
        except (HeadwayError, MemoryError, RecursionError) as error:
            run = _run_data(record, State.CORRUPT, {}, {})
            return run, Problem(record.run_id, run.label, str(error) or type(error).__name__)
        return _run_data(record, record.state, columns, environment), None

    def _metrics(self, record: RunRecord) -> tuple[Arrays, Mapping[str, Any]]:
        """The metrics and the environment of a run, from memory if its files are as they were."""
        stamp = self._stamp(record)
        stored = self._cache.get(record.run_id)
        if stored and stored[0] == stamp:
            return stored[1], stored[2]
        if record.state is State.DONE:
            columns, environment = self._finished(record), self._environment(record)
        elif record.status is None:
            columns, environment = {}, {}
        else:
            columns, environment = freeze_lists(self._store.metrics(record.run_id), self._wanted), {}
        self._cache[record.run_id] = (stamp, columns, environment)
        return columns, environment

    def _finished(self, record: RunRecord) -> Arrays:
        """The metrics of a finished run, checked as `RunStore.metrics` does, but without a list on the way."""
        run_id, what = record.run_id, f"run {record.run_id}: {METRICS_FILE}"
        data = self._store.read_file(run_id, METRICS_FILE, MAX_PAGE_BYTES)
        columns, metadata = read_parquet(data, what, self._wanted)
        check_owner(metadata, run_id, what)
        return columns

    def _environment(self, record: RunRecord) -> Mapping[str, Any]:
        """What the run wrote down about versions and data; empty when it did not."""
        if record.status is None or PROVENANCE_FILE not in record.status.files:
            return {}
        text = self._store.read_file(record.run_id, PROVENANCE_FILE, MAX_BYTES)
        return parse_environment(text, f"run {record.run_id}: {PROVENANCE_FILE}")

    def _stamp(self, record: RunRecord) -> Stamp:
        """A value that changes when the run's metrics do."""
        folder = f"{self._store.root}/{record.run_id}"
        names = (METRICS_FILE, PROVENANCE_FILE) if record.state is State.DONE else SLOTS
        return (record.state is State.DONE, *(_file_stamp(f"{folder}/{name}") for name in names))


def _file_stamp(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.stat(path)  # noqa: PTH116 - twice per run: making paths would take most of the time
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def _run_data(record: RunRecord, state: State, columns: Arrays, environment: Mapping[str, Any]) -> RunData:
    status = record.status
    assert record.spec is not None
    if status is None:
        return RunData(record.run_id, record.spec, state, columns)
    return RunData(
        record.run_id,
        record.spec,
        state,
        columns,
        Progress(status.step, status.total, status.seconds, status.speed, status.updated_at),
        Failure.of(status.error) if state is State.FAILED else None,
        status.note,
        status.host,
        environment,
    )
