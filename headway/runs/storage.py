"""`Storage`: what a run store needs of the place that it is kept in. A folder and a URL offer it.

The interface speaks of runs and not of files, because the two are made safe in different ways: a folder by renames and
staging folders (`folder`), a URL by objects that never change and manifests that name them (`url_storage`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from headway.errors import StoreError
from headway.runs.checkpoints import Found
from headway.runs.locks import LeaseWatch, Lock, Sighting
from headway.runs.run import WorkingCopy
from headway.runs.spec import RunSpec
from headway.runs.status import RunRecord, Status

STORE_SCHEMA = 1
STORE_FILE = "store.json"
VERSION = json.dumps({"schema": STORE_SCHEMA}).encode() + b"\n"
"""The content of `STORE_FILE`."""
RUN_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)


class Storage(Protocol):
    """Keeps the runs of a store. All methods raise `StoreError` for what they cannot do, or for an unknown run.

    It is pickled without what this process has seen.
    """

    @property
    def place(self) -> str:
        """Where it is, for people."""

    @property
    def root(self) -> Path:
        """The folder; a `StoreError` where there is none."""

    def read_version(self) -> bytes | None:
        """Return the content of store.json; None when there is no store."""

    def make(self) -> None:
        """Make a store unless it is there."""

    def add(self, specs: Sequence[RunSpec]) -> None:
        """Add runs that are not there."""

    def has(self, run_id: str) -> bool:
        """Tell whether a run was added."""

    def folder(self, run_id: str) -> Path:
        """Return a run's folder; a `StoreError` where there is none."""

    def all_records(self) -> list[RunRecord]:
        """Return all runs, in any order."""

    def records(self, run_ids: Iterable[str]) -> list[RunRecord]:
        """Return some runs, in the given order."""

    def status(self, run_id: str) -> Status | None:
        """Return what a run last wrote; None when it never started. `DamagedError` when that cannot be read."""

    def has_metrics(self, run_id: str, status: Status) -> bool:
        """Tell whether the metrics of a run that is done are still there, in full length."""

    def try_lock(self, run_id: str, watch: LeaseWatch, lease: float) -> Lock | None:
        """Lock a run; None when another process holds it."""

    def look(self, run_id: str) -> Sighting | None:
        """Return a run's newest lock as it is now; None when it was never locked."""

    def check_out(self, spec: RunSpec, lock: Lock) -> WorkingCopy:
        """Return the folder in which the holder of a run works, with all that the run has stored."""

    def read(self, run_id: str, name: str, limit: int | None) -> tuple[Status | None, bytes | None]:
        """Return the status of a run and the content of a file that it names, unchecked; None when there is none.

        A file that is longer than the limit is a `DamagedError`.
        """

    def newest_checkpoint(self, run_id: str, with_payload: bool = True) -> tuple[Found | None, tuple[str, ...]]:
        """Return the newest whole checkpoint of a run, and what is wrong with the others; see `find_newest`."""

    def reset(self, run_id: str, lock: Lock) -> None:
        """Forget everything about a run but its spec."""

    def tidy(self, run_id: str, try_lock: Callable[[], Lock | None]) -> None:
        """Remove what a process left that was killed when its run was done but its checkpoints not yet removed."""


def unknown_run(place: str, run_id: str) -> StoreError:
    """The error for an id that no run of a store has."""
    return StoreError(f"expected the id of a run in {place}, got {run_id!r}; status() lists them")
