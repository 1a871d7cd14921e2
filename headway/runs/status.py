"""What a store is made of: the names of its files, a run's status, and its line in a listing, `RunRecord`."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headway.errors import DamagedError, StoreError
from headway.runs.files import FileSum
from headway.runs.jsonable import MAX_BYTES, FrozenDict, excerpt, parse_object, read_record
from headway.runs.spec import RunSpec

STORE_SCHEMA = 1
STORE_FILE = "store.json"
VERSION = json.dumps({"schema": STORE_SCHEMA}).encode() + b"\n"
"""The content of `STORE_FILE`."""
RUN_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
STATUS_SCHEMA = 1
SPEC_FILE = "spec.json"
STATUS_FILE = "status.json"
METRICS_FILE = "metrics.parquet"
MAX_ERROR = 1 << 15

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_RESERVED = re.compile(r"spec\.json|status\.json|metrics\.parquet|(checkpoint|claim)\..*", re.ASCII | re.IGNORECASE)


def is_file_name(name: str) -> bool:
    """Tell whether a run may save a file under this name: plain, and not one that the store uses itself.

    Large letters make no other name: not every file system tells them apart.
    """
    return bool(_FILE_NAME.fullmatch(name)) and not _RESERVED.fullmatch(name)


class State(str, enum.Enum):
    """Where a run stands."""

    PENDING = "pending"
    """It has not been started."""
    RUNNING = "running"
    """A process works on it."""
    DONE = "done"
    """It has ended, and its metrics are whole."""
    FAILED = "failed"
    """It raised an error, which the status keeps."""
    INTERRUPTED = "interrupted"
    """It was stopped, or its process died; it can be resumed."""
    CORRUPT = "corrupt"
    """Its files cannot be read; only listings use this state, no status file holds it."""

    def __str__(self) -> str:
        """Return the plain word."""
        return self.value


@dataclass(frozen=True)
class Status:
    """What ``status.json`` holds."""

    run_id: str
    """The run that it belongs to."""
    state: State
    """Where the run stands, as its last process wrote it."""
    attempt: int
    """How many times it has been started."""
    host: str
    """Where it last ran."""
    pid: int
    """The process that last worked on it."""
    started_at: float
    """When the last attempt began, in seconds since 1970."""
    updated_at: float
    """When this was written, in seconds since 1970."""
    seconds: float = 0.0
    """How long processes have worked on it, over all attempts."""
    step: int = 0
    """How far it has come."""
    total: int | None = None
    """The step at which it is done, when known."""
    speed: float | None = None
    """Steps per second in this attempt, when known."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """The latest losses, by name."""
    files: Mapping[str, FileSum] = field(default_factory=dict)
    """The sums of the files that the run has produced, by name."""
    error: str = ""
    """The traceback of a failed run."""
    note: str = ""
    """What a reader should know, such as that a damaged checkpoint was skipped."""

    def to_json(self) -> str:
        """Return the text that is stored as ``status.json``; one too long to be read back is a `StoreError`."""
        losses = {name: float(loss) for name, loss in self.losses.items()}
        data = {
            **vars(self),
            "state": self.state.value,
            "losses": {name: loss if math.isfinite(loss) else str(loss) for name, loss in losses.items()},
            "files": {name: vars(file) for name, file in self.files.items()},
            "error": self.error[-MAX_ERROR:],
            "note": self.note[-MAX_ERROR:],
        }
        text = json.dumps({"schema": STATUS_SCHEMA, **data}, allow_nan=False) + "\n"
        if len(text) > MAX_BYTES:
            raise StoreError(f"expected a status of at most {MAX_BYTES} bytes, got {len(text)}; name fewer losses")
        return text

    @classmethod
    def from_json(cls, text: str | bytes, what: str = "run status") -> Status:
        """Parse what `to_json` gives; anything else is a `DamagedError` that begins with ``what``."""
        data = parse_object(text, what, DamagedError)
        state, losses = partial(_read_state, what=what), partial(_read_losses, what=what)
        status = read_record(cls, data, what, DamagedError, STATUS_SCHEMA, state=state, losses=losses)
        for name in status.files:
            if name != METRICS_FILE and not is_file_name(name):
                raise DamagedError(f"{what}: expected plain file names, got {name[:40]!r}")
        return status


def _read_state(value: Any, what: str) -> State:
    stored = [state.value for state in State if state not in (State.PENDING, State.CORRUPT)]
    if value not in stored:
        raise DamagedError(f"{what}: expected a state among {', '.join(stored)} for state, got {excerpt(repr(value))}")
    return State(value)


def _read_losses(value: Any, what: str) -> FrozenDict:
    """Read losses, of which those that are no finite numbers are written as strings."""
    if not isinstance(value, dict):
        raise DamagedError(f"{what}: expected a mapping for losses, got {excerpt(repr(value))}")
    for loss in value.values():
        is_number = type(loss) in (int, float) and abs(loss) < 2**1023
        if not is_number and loss not in ("nan", "inf", "-inf"):
            raise DamagedError(f"{what}: expected a number for a loss, got {str(loss)[:40]!r}")
    return FrozenDict({name: float(loss) for name, loss in value.items()})


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

    @property
    def order(self) -> tuple[bool, str, str, str, int, str]:
        """By which listings sort: by what the run is; those without a readable spec come last."""
        spec = self.spec
        if spec is None:
            return (True, "", "", "", 0, self.run_id)
        return (False, spec.experiment, spec.condition, spec.method, spec.seed, self.run_id)


def parse_spec(text: bytes | None, run_id: str, what: str) -> RunSpec:
    """Read a run's spec, and make sure that it is this run's."""
    if text is None:
        raise DamagedError(f"expected {what}, got no such file")
    spec = RunSpec.from_json(text, what)
    if spec.run_id != run_id:
        raise DamagedError(f"{what}: expected the spec of run {run_id}, got that of run {spec.run_id}")
    return spec


def unknown_run(place: str, run_id: str) -> StoreError:
    """The error for an id that no run of a store has."""
    return StoreError(f"expected the id of a run in {place}, got {run_id!r}; status() lists them")
