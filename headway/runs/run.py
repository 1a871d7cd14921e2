"""`Run`: a run that this process holds, from its lock to its end."""

from __future__ import annotations

import contextlib
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from headway.errors import DamagedError, LockLostError, StoreError
from headway.runs.checkpoints import SLOTS, Checkpoint, find_newest, write_checkpoint
from headway.runs.files import Write, remove, write_atomic, write_bytes
from headway.runs.jsonable import canonical, freeze
from headway.runs.locks import Lock, Owner
from headway.runs.metrics import Columns, RowLog, to_parquet
from headway.runs.spec import RunSpec
from headway.runs.status import METRICS_FILE, STATUS_FILE, State, Status, is_file_name

METRICS_SCHEMA = 1
PROGRESS_INTERVAL = 1.0

_LEFTOVER = re.compile(r"\.(?!spec\.json\.).+\.[0-9a-f]{16}\.tmp", re.ASCII)


@dataclass(frozen=True)
class WorkingCopy:
    """Where the holder of a run works, and the run's last status, if that can be read."""

    folder: Path
    status: Status | None
    note: str = ""
    """What is worth knowing about the status."""
    publish: Callable[[bool], object] = lambda with_checkpoints: None
    """Called when the folder holds a new state to resume from, or how the run ended, before the run is given back; its
    argument says whether the checkpoints stay. What it raises counts as a failure to write."""


class Run:
    """A run that this process holds: it logs, checkpoints and ends it.

        with store.lock(spec) as run:
            checkpoint = run.restore()
            start = load(checkpoint.payload) if checkpoint else 0
            for step in range(start, total):
                run.log({"loss": train_one_epoch()})
                run.progress(step + 1, total, {"loss": loss})
                run.checkpoint(step + 1, lambda file: torch.save(state(), file))
            run.finish()

    Leaving the block with an exception records the run as failed, with the traceback; with Ctrl-C or an exit,
    or without `finish`, as interrupted. Killed at any instant, it resumes from its last checkpoint, with the
    metrics rows up to there. ``RunStore.lock`` makes it and calls `begin`.

    What cannot be written raises `StoreError`; what was kept before is whole, and the run can be resumed. A run that
    another process has taken over raises `LockLostError`.
    """

    def __init__(
        self, copy: WorkingCopy, spec: RunSpec, lock: Lock, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.spec = spec
        self.folder = copy.folder
        self._lock = lock
        self._publish = copy.publish
        self._clock = clock
        self._began = clock()
        self._written = -PROGRESS_INTERVAL
        self._rows: RowLog | None = None
        self._step = 0
        self._first_step = 0
        self._slot = SLOTS[0]
        self._over = False
        owner, now, previous = Owner.this_process(0.0), time.time(), copy.status
        self._earlier_seconds = previous.seconds if previous else 0.0
        self._status = Status(
            run_id=spec.run_id,
            state=State.RUNNING,
            attempt=lock.number,
            host=owner.host,
            pid=owner.pid,
            started_at=now,
            updated_at=now,
            note=copy.note,
            **({name: getattr(previous, name) for name in ("step", "total", "losses", "files")} if previous else {}),
        )

    @property
    def run_id(self) -> str:
        """The id of the run's spec."""
        return self.spec.run_id

    @property
    def attempt(self) -> int:
        """How many times the run has been started, this time included."""
        return self._status.attempt

    def begin(self) -> None:
        """Clear away what a killed process left half-written, and record the run as running."""
        with self._writing():
            for path in self.folder.iterdir():
                if _LEFTOVER.fullmatch(path.name):
                    remove(path)
            self._write_status()

    def restore(self) -> Checkpoint | None:
        """Go back to the newest whole checkpoint and to the metrics rows up to it; call it once, first.

        A damaged checkpoint is skipped for the one before, and the status says so. None means that the run
        starts from its beginning.
        """
        self._check_open()
        if self._rows is not None:
            raise StoreError("expected restore() once and before anything is logged, got a second call")
        found, problems = find_newest(self.folder, self.run_id)
        self._rows = RowLog(found.rows) if found else RowLog()
        self._step = self._first_step = found.step if found else 0
        if found:
            self._slot = _other(found.slot)
        if self._status.total is None:  # otherwise it counts what progress() counts, perhaps not the same steps
            self._status = replace(self._status, step=self._step)
        if problems:
            origin = f"resumed from step {self._step}" if found else "started from the beginning"
            self._status = replace(self._status, note="; ".join((self._status.note, *problems, origin)).strip("; "))
        return Checkpoint(found.step, found.payload) if found else None

    def log(self, row: Mapping[str, Any]) -> None:
        """Add a row of metrics: scalars, strings and lists of numbers by name, always of the same kind.

        It is kept with the next checkpoint or at the end.
        """
        self._logged().append(row)

    def columns(self) -> Columns:
        """Return the metrics so far: a list of values for each column."""
        return self._logged().columns()

    def checkpoint(self, step: int, write: Write) -> None:
        """Keep the run's state and the rows logged so far, in one atomic file.

        Args:
            step: how far the run has come; more than at the last checkpoint.
            write: called with a file-like object that has ``write`` (not ``seek``), to write the state.
        """
        rows = self._logged()
        if step <= self._step and (step or self._step):
            raise StoreError(f"expected a checkpoint after step {self._step}, got step {step}")
        with self._writing():
            path = self.folder / self._slot
            write_checkpoint(path, self.run_id, step, rows.encode(), write, self._lock.staging)
        self._step = step
        self._slot = _other(self._slot)
        self._publish(True)

    def progress(
        self,
        step: int,
        total: int | None = None,
        losses: Mapping[str, float] | None = None,
        speed: float | None = None,
    ) -> None:
        """Tell readers how far the run is; written at most once a second, so call it as often as you like.

        Args:
            step: how far the run has come.
            total: the step at which it is done.
            losses: the latest losses, by name.
            speed: steps per second; measured over this attempt when left out.
        """
        self._check_open()
        now = self._clock()
        if speed is None and now > self._began:
            speed = max(0.0, (step - self._first_step) / (now - self._began))
        losses = {str(name): float(loss) for name, loss in (losses or {}).items()}
        self._status = replace(self._status, step=step, total=total or self._status.total, losses=losses, speed=speed)
        if now - self._written >= PROGRESS_INTERVAL:
            with self._writing():
                self._write_status()

    def save(self, name: str, write: Write) -> None:
        """Keep a file with the run, such as its final weights; read it with ``RunStore.read_file``.

        Args:
            name: the file's name, of letters, digits, dots, dashes and underscores.
            write: called with a file-like object that has ``write``, to write the content.
        """
        self._check_open()
        if not is_file_name(name):
            raise StoreError(f"expected a plain file name that the store does not use itself, got {name!r}")
        with self._writing():
            self._keep(name, write)
            self._write_status()

    def finish(self) -> None:
        """Write the metrics as Parquet, record the run as done, remove its checkpoints, and give it back."""
        spec = canonical(freeze(self.spec.to_dict(), "spec")).decode()
        metadata = {"schema": str(METRICS_SCHEMA), "run_id": self.run_id, "spec": spec}
        content = to_parquet(self.columns(), {f"headway.{name}": text for name, text in metadata.items()})
        with self._writing():
            self._keep(METRICS_FILE, lambda file: file.write(content))
        step = self._status.step if self._status.total else max(self._step, self._status.step)
        self._status = replace(self._status, step=step, total=self._status.total or step or None, state=State.DONE)
        try:
            with self._writing():
                self._write_status()
                self._publish(False)
        except BaseException:
            self._status = replace(self._status, state=State.RUNNING)
            raise
        for slot in SLOTS:
            with contextlib.suppress(StoreError):  # done all the same; it only takes up room
                remove(self.folder / slot, self._lock.staging)
        self._release()

    def fail(self, error: BaseException) -> None:
        """Record the run as failed, with the error's traceback, and give it back."""
        self._stop(State.FAILED, error="".join(traceback.format_exception(error)))

    def interrupt(self, note: str = "") -> None:
        """Record the run as interrupted, and give it back."""
        self._stop(State.INTERRUPTED, note=note)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record how the block ended, unless the run has ended already; exceptions pass on."""
        if self._over:
            return
        try:
            if error is None:
                self.interrupt("left without finish()")
            elif isinstance(error, LockLostError):
                self._release()  # the status is the new holder's
            elif isinstance(error, Exception):
                self.fail(error)
            else:
                self.interrupt(f"stopped by {type(error).__name__}")
        except StoreError as exc:
            if error is None:
                raise
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(f"and its status could not be recorded: {exc}")

    def _stop(self, state: State, error: str = "", note: str = "") -> None:
        """Record the end of an attempt that did not finish the run; gives it back even on a full disk."""
        self._check_open()
        try:
            with self._writing():
                self._status = replace(self._status, state=state, error=error, note=note or self._status.note)
                self._write_status()
                self._publish(True)
        finally:
            self._release()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Check the lock before files are written, and again if the staging folder is found to be gone."""
        self._lock.check()
        try:
            yield
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                self._lock.check()
                raise DamagedError(f"{self.folder}: expected the files of a run under way, got some deleted") from error
            raise

    def _release(self) -> None:
        self._over = True
        self._lock.release()

    def _logged(self) -> RowLog:
        self._check_open()
        if self._rows is None:
            raise StoreError("expected restore() first, got none; it makes the metrics go on where the checkpoint ends")
        return self._rows

    def _check_open(self) -> None:
        if self._over:
            raise StoreError(f"expected a run that this process holds, got {self.run_id}, which it has given back")

    def _keep(self, name: str, write: Write) -> None:
        """Write a file, and its sum with the status."""
        file_sum = write_atomic(self.folder / name, write, self._lock.staging)
        self._status = replace(self._status, files={**self._status.files, name: file_sum})

    def _write_status(self) -> None:
        now = self._clock()
        seconds = self._earlier_seconds + now - self._began
        self._status = replace(self._status, updated_at=time.time(), seconds=seconds)
        write_bytes(self.folder / STATUS_FILE, self._status.to_json().encode(), self._lock.staging)
        self._written = now


def _other(slot: str) -> str:
    return SLOTS[1 - SLOTS.index(slot)]
