"""`FolderStorage`: runs on a disk, one folder each, named by the id of its spec.

    store.json                       the version of the store
    <run_id>/spec.json               what the run is
             status.json             where it stands
             checkpoint.0, .1        the two newest checkpoints, each with the metrics rows up to it
             metrics.parquet         all metrics, once it is done
             claim.<n>               the lock: who holds it

Every write is atomic, and `folder_locks` keeps a process from writing that has lost its run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from headway.errors import DamagedError, NewerSchemaError, SpecError, StoreError
from headway.runs.checkpoints import SLOTS, CheckpointFound, find_newest
from headway.runs.files import disk_errors, for_each, read_bytes, remove, store_error, sync_folder, write_bytes
from headway.runs.folder_locks import has_left_staging, is_held, look_at_newest, try_lock
from headway.runs.jsonable import MAX_BYTES
from headway.runs.locks import LeaseWatch, Lock, SeenLock
from headway.runs.run import WorkingCopy
from headway.runs.spec import RunSpec
from headway.runs.status import (
    METRICS_FILE,
    RUN_ID,
    SPEC_FILE,
    STATUS_FILE,
    STORE_FILE,
    VERSION,
    RunRecord,
    State,
    Status,
    parse_spec,
    unknown_run,
)

STAGING = ".new-"
"""How the names of folders begin in which a run's files are put together."""
STALE = 24 * 3600.0
"""Seconds after which such a folder was left by a process that is gone."""


class FolderStorage:
    """Keeps runs in a folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._is_swept = False

    def __reduce__(self) -> tuple[type[FolderStorage], tuple[Path]]:
        """Pickle a path that means the same folder in a process with another working directory."""
        return FolderStorage, (self.root.absolute(),)

    @property
    def place(self) -> str:
        """The path."""
        return str(self.root)

    def read_version(self) -> bytes | None:
        """Return the content of store.json; None when there is no store."""
        return read_bytes(self.root / STORE_FILE, MAX_BYTES)

    def make(self) -> None:
        """Make a store unless it is there."""
        with disk_errors("make", self.root):
            try:
                self.root.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise StoreError(f"expected a folder for the run store, got a file at {self.root}") from None
        if self.read_version() is None:
            write_bytes(self.root / STORE_FILE, VERSION)

    def add(self, specs: Sequence[RunSpec]) -> None:
        """Add runs that are not there; mend specs that are damaged."""
        if not self._is_swept:
            self._sweep()
        if any(for_each(specs, self._add)):
            with disk_errors("write", self.root):
                sync_folder(self.root)

    def _sweep(self) -> None:
        """Remove folders in the making that a process has left which was killed; it removes its own otherwise."""
        self._is_swept = True
        for folder in self.root.glob(f"{STAGING}*"):
            with contextlib.suppress(OSError):
                if time.time() - folder.lstat().st_mtime > STALE:
                    shutil.rmtree(folder, ignore_errors=True)

    def _add(self, spec: RunSpec) -> bool:
        """Make a run's folder, or mend its spec; False when there was nothing to do."""
        folder = self.root / spec.run_id
        refuse_link(folder)
        try:
            stored = read_spec(folder, spec.run_id)
        except NewerSchemaError:
            raise
        except (SpecError, DamagedError):
            if not folder.is_dir():
                return self._make_folder(folder, spec)
            write_bytes(folder / SPEC_FILE, spec.to_json().encode())  # safe: the folder's name is its hash
            return False
        if stored != spec:
            raise StoreError(f"expected {spec} in {folder}, got {stored}: two specs share an id; change a name")
        return False

    def _make_folder(self, folder: Path, spec: RunSpec) -> bool:
        """Make a run's folder in one step, so that there is never one without a spec."""
        staging = self.root / f"{STAGING}{folder.name}-{secrets.token_hex(8)}"
        try:
            staging.mkdir()
            write_bytes(staging / SPEC_FILE, spec.to_json().encode())
            staging.rename(folder)
        except OSError as exc:
            if not folder.is_dir():
                raise store_error("make", folder, exc) from exc
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return True

    def has(self, run_id: str) -> bool:
        """Tell whether a run was added."""
        return read_bytes(self.root / run_id / SPEC_FILE, MAX_BYTES) is not None

    def folder(self, run_id: str) -> Path:
        """Return a run's folder; a symbolic link, which would lead out of the store, is refused."""
        folder = self.root / run_id
        if not RUN_ID.fullmatch(run_id) or not folder.is_dir():
            raise unknown_run(self.place, run_id)
        refuse_link(folder)
        return folder

    def records(self, run_ids: Iterable[str] | None = None) -> list[RunRecord]:
        """Return some runs, in the given order, or all."""
        if run_ids is not None:
            return [read_run_record(self.root, self.folder(run_id).name) for run_id in run_ids]
        with disk_errors("read", self.root), os.scandir(self.root) as entries:
            runs = [entry for entry in entries if RUN_ID.fullmatch(entry.name)]
            # a link leads elsewhere, and is shown as corrupt
            names = [entry.name for entry in runs if entry.is_symlink() or entry.is_dir()]
        return [read_run_record(self.root, name) for name in names]

    def status(self, run_id: str) -> Status | None:
        """Return what a run last wrote; None when it never started."""
        return read_status(self.folder(run_id), run_id)

    def has_metrics(self, run_id: str, status: Status) -> bool:
        """Tell whether the metrics are there with the right length; reading checks them in full."""
        expected = status.files.get(METRICS_FILE)
        try:
            return expected is not None and (self.root / run_id / METRICS_FILE).stat().st_size == expected.length
        except OSError:
            return False

    def try_lock(self, run_id: str, watch: LeaseWatch, lease: float) -> Lock | None:
        """Lock a run unless another process holds it."""
        return try_lock(self.folder(run_id), watch, lease)

    def look(self, run_id: str) -> SeenLock | None:
        """Return a run's newest lock as it is now."""
        return look_at_newest(self.folder(run_id))

    def check_out(self, spec: RunSpec, lock: Lock) -> WorkingCopy:
        """Return the run's own folder: what is written there counts at once."""
        folder = self.root / spec.run_id
        try:
            return WorkingCopy(folder, read_status(folder, spec.run_id))
        except DamagedError as exc:
            return WorkingCopy(folder, None, str(exc))

    def read(self, run_id: str, name: str, limit: int | None) -> tuple[Status | None, bytes | None]:
        """Return the status of a run and the content of a file that it names; None when there is no such file."""
        folder = self.folder(run_id)
        status = read_status(folder, run_id)
        is_named = status is not None and name in status.files
        return status, read_bytes(folder / name, limit) if is_named else None

    def newest_checkpoint(
        self, run_id: str, with_payload: bool = True
    ) -> tuple[CheckpointFound | None, tuple[str, ...]]:
        """Return the newest whole checkpoint, and what is wrong with the others."""
        return find_newest(self.folder(run_id), run_id, with_payload=with_payload)

    def reset(self, run_id: str, lock: Lock) -> None:
        """Forget everything about a run but its spec."""
        folder = self.folder(run_id)
        status = self.check_out(read_spec(folder, run_id), lock).status
        for name in (STATUS_FILE, METRICS_FILE, *SLOTS, *(status.files if status else ())):
            remove(folder / name, lock.staging)

    def tidy(self, run_id: str, try_lock: Callable[[], Lock | None]) -> None:
        """Remove what a process left that was killed when its run was done but its checkpoints not yet removed."""
        folder = self.folder(run_id)
        slots = [folder / slot for slot in SLOTS if (folder / slot).exists()]
        if (slots or has_left_staging(folder)) and _is_done(folder) and (lock := try_lock()):
            try:
                for slot in slots if _is_done(folder) else ():
                    remove(slot, lock.staging)
            finally:
                lock.release()


def _is_done(folder: Path) -> bool:
    status = read_status(folder, folder.name)
    return status is not None and status.state is State.DONE


def read_run_record(root: str | Path, run_id: str) -> RunRecord:
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
    """Make sure that a run's folder is not a symbolic link, which leads out of the store."""
    if os.path.islink(folder):  # noqa: PTH114 - once per run: making paths would take most of the time
        raise DamagedError(f"expected the folder of a run, got a symbolic link at {folder}; remove the link")


def read_spec(folder: str | Path, run_id: str) -> RunSpec:
    """Read a run's spec, as `parse_spec` does."""
    path = f"{folder}/{SPEC_FILE}"
    return parse_spec(read_bytes(path, MAX_BYTES), run_id, path)


def read_status(folder: str | Path, run_id: str) -> Status | None:
    """Read a run's status; None when it never started."""
    path = f"{folder}/{STATUS_FILE}"
    text = read_bytes(path, MAX_BYTES)
    if text is None:
        return None
    status = Status.from_json(text, path)
    if status.run_id != run_id:
        raise DamagedError(f"{path}: expected the status of run {run_id}, got that of {status.run_id[:40]!r}")
    return status
