"""Reading what a run's folder holds, and one line of a listing: `RunRecord`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headway.errors import DamagedError, SpecError, StoreError
from headway.runs.files import read_bytes
from headway.runs.jsonable import MAX_BYTES
from headway.runs.locks import is_held
from headway.runs.spec import RunSpec
from headway.runs.status import State, Status

SPEC_FILE = "spec.json"
STATUS_FILE = "status.json"


@dataclass(frozen=True)
class RunRecord:
    """A run as a listing shows it."""

    run_id: str
    """The name of its folder."""
    state: State
    """Where it stands: a run whose process has died counts as interrupted, whatever it wrote last."""
    spec: RunSpec | None = None
    """What it is; None when that cannot be read."""
    status: Status | None = None
    """What it last wrote; None when it never started or that cannot be read."""
    reason: str = ""
    """Why it is corrupt."""


def read_record(root: str | Path, run_id: str) -> RunRecord:
    """Read the record of a run; what cannot be read makes it corrupt, with the reason."""
    folder = f"{root}/{run_id}"  # a string: making paths would take a fifth of the time of a listing
    spec = None
    try:
        refuse_link(folder)
        spec = read_spec(folder, run_id)
        status = read_status(folder, run_id)
        if status and status.state is State.RUNNING and not is_held(folder):
            # Its process is gone; it may just have ended in good order, so look again.
            status = read_status(folder, run_id)
            if status and status.state is State.RUNNING:
                return RunRecord(run_id, State.INTERRUPTED, spec, status)
    except (SpecError, StoreError) as exc:
        return RunRecord(run_id, State.CORRUPT, spec, reason=str(exc))
    return RunRecord(run_id, status.state if status else State.PENDING, spec, status)


def refuse_link(folder: str | Path) -> None:
    """Make sure that a run's folder is not a symbolic link, which leads out of the store.

    Raises:
        DamagedError: it is one.
    """
    if os.path.islink(folder):  # noqa: PTH114 - once per run: making paths would take most of the time
        raise DamagedError(f"expected the folder of a run, got a symbolic link at {folder}; remove the link")


def read_spec(folder: str | Path, run_id: str) -> RunSpec:
    """Read a run's spec.

    Raises:
        SpecError: it is not valid.
        DamagedError: it is missing, or that of another run.
        StoreError: it may not be read.
    """
    path = f"{folder}/{SPEC_FILE}"
    text = read_bytes(path, MAX_BYTES)
    if text is None:
        raise DamagedError(f"expected {path}, got no such file")
    spec = RunSpec.from_json(text, path)
    if spec.run_id != run_id:
        raise DamagedError(f"{path}: expected the spec of run {run_id}, got that of run {spec.run_id}")
    return spec


def read_status(folder: str | Path, run_id: str) -> Status | None:
    """Read a run's status; None when it never started.

    Raises:
        DamagedError: it is not valid, or that of another run.
        StoreError: it may not be read.
    """
    path = f"{folder}/{STATUS_FILE}"
    text = read_bytes(path, MAX_BYTES)
    if text is None:
        return None
    status = Status.from_json(text, path)
    if status.run_id != run_id:
        raise DamagedError(f"{path}: expected the status of run {run_id}, got that of {status.run_id[:40]!r}")
    return status


def spec_order(record: RunRecord) -> tuple[bool, str, str, str, int, str]:
    """Sort records by what they are; those without a readable spec come last."""
    spec = record.spec
    if spec is None:
        return (True, "", "", "", 0, record.run_id)
    return (False, spec.experiment, spec.condition, spec.method, spec.seed, record.run_id)
