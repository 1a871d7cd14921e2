"""A run's status: where it stands, who works on it, and how it ended."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.errors import DamagedError, StoreError
from headway.runs.files import FileSum
from headway.runs.jsonable import MAX_BYTES, FrozenDict, check_schema, parse_object

STATUS_SCHEMA = 1
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
        """Return the text that is stored as ``status.json``.

        Raises:
            StoreError: it would be too long to be read back.
        """
        data = {
            **vars(self),
            "state": self.state.value,
            "losses": {name: _encode_float(loss) for name, loss in self.losses.items()},
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
        """Parse what `to_json` gives.

        Args:
            text: the JSON text.
            what: where it comes from, for error messages.

        Raises:
            DamagedError: it is something else.
            NewerSchemaError: a newer version of headway wrote it.
        """
        data = parse_object(text, what, DamagedError)
        check_schema(data, STATUS_SCHEMA, what, DamagedError)
        take = _Fields(data, what)
        state = take.text("state")
        if state not in _STORED_STATES:
            raise DamagedError(f"{what}: expected a state among {', '.join(_STORED_STATES)}, got {state[:40]!r}")
        files = take.mapping("files")
        return cls(
            run_id=take.text("run_id"),
            state=State(state),
            attempt=take.count("attempt"),
            host=take.text("host"),
            pid=take.count("pid"),
            started_at=take.number("started_at"),
            updated_at=take.number("updated_at"),
            seconds=take.number("seconds"),
            step=take.count("step"),
            total=None if data.get("total") is None else take.count("total"),
            speed=None if data.get("speed") is None else take.number("speed"),
            losses=FrozenDict({k: _decode_float(v, what) for k, v in take.mapping("losses").items()}),
            files=FrozenDict({_file(k, what): FileSum.from_json(v, what) for k, v in files.items()}),
            error=take.text("error"),
            note=take.text("note"),
        )


_STORED_STATES = tuple(state.value for state in State if state not in (State.PENDING, State.CORRUPT))


class _Fields:
    """Takes fields out of parsed JSON, each with the type that it must have."""

    def __init__(self, data: Mapping[str, Any], what: str) -> None:
        self._data = data
        self._what = what

    def _take(self, name: str, kind: type | tuple[type, ...], words: str) -> Any:
        value = self._data.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DamagedError(f"{self._what}: expected {words} for {name}, got {str(value)[:40]!r}")
        return value

    def text(self, name: str) -> str:
        return str(self._take(name, str, "a string"))

    def mapping(self, name: str) -> Mapping[str, Any]:
        value: Mapping[str, Any] = self._take(name, dict, "a mapping")
        return value

    def count(self, name: str) -> int:
        value = int(self._take(name, int, "an integer"))
        if not 0 <= value < 2**63:
            raise DamagedError(f"{self._what}: expected a count for {name}, got one out of range")
        return value

    def number(self, name: str) -> float:
        value = self._take(name, (int, float), "a number")
        if not abs(value) < 1e300:
            raise DamagedError(f"{self._what}: expected a number for {name}, got one out of range")
        return float(value)


def _file(name: str, what: str) -> str:
    if name != METRICS_FILE and not is_file_name(name):
        raise DamagedError(f"{what}: expected plain file names, got {name[:40]!r}")
    return name


def _encode_float(value: float) -> float | str:
    """Return a number, or the word for one that JSON does not have."""
    return float(value) if math.isfinite(value) else str(float(value))


def _decode_float(value: object, what: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**1023:
        return float(value)
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    raise DamagedError(f"{what}: expected a number for a loss, got {str(value)[:40]!r}")
