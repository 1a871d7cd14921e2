"""`RunStore`: runs in a folder or behind a URL, which survive being stopped at any instant."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from headway.errors import DamagedError, MissingExtraError, StoreError
from headway.runs.files import FileSum
from headway.runs.folder import FolderStorage
from headway.runs.jsonable import check_schema, parse_object
from headway.runs.locks import DEFAULT_LEASE, LeaseWatch, Lock, wait_for_lock
from headway.runs.metrics import MAX_PAGE_BYTES, Columns, RowLog, check_owner, from_parquet
from headway.runs.run import Run
from headway.runs.spec import RunSpec
from headway.runs.status import METRICS_FILE, STORE_FILE, STORE_SCHEMA, RunRecord, State, Status

if TYPE_CHECKING:
    from headway.runs.url_storage import UrlStorage

T = TypeVar("T")
Storage: TypeAlias = "FolderStorage | UrlStorage"
"""How runs are kept: the two have the same methods, which speak of runs and not of files.

They are made safe in different ways: a folder by renames and staging folders (`folder`), a URL by objects that never
change and manifests that name them (`url_storage`).
"""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)


def is_url(place: object) -> bool:
    """Tell whether a text is a URL such as s3://bucket/runs."""
    return isinstance(place, str) and _URL.match(place) is not None


class RunStore:
    """Runs, each under the id of its spec; `folder` and `url_storage` say how they are kept.

    Every write is atomic. Any number of processes, also on several machines that share the place, may use a store at
    once. Making a `RunStore` touches nothing; the store is made when the first run is added. Nothing in a store is ever
    executed: the formats are JSON, Parquet and opaque bytes with checksums.

    All methods raise `StoreError` when the store cannot be read or written, a newer version wrote it, or it has no such
    run, and its subclass `DamagedError` for what is not as it was written.

    Args:
        place: a folder, a URL that fsspec can open, or a `Storage`.
        lease: seconds without a sign of life after which other machines may take over the runs of this process.

    Raises:
        UsageError: fsspec cannot open the URL.
    """

    def __init__(self, place: str | os.PathLike[str] | Storage, lease: float = DEFAULT_LEASE) -> None:
        if not 0 < lease < float("inf"):
            raise StoreError(f"expected a lease of more than 0 seconds, got {lease}")
        self.storage = _open(place)
        self.lease = lease
        self._watch = LeaseWatch(lease)
        self._is_checked = False

    def __reduce__(self) -> tuple[type[RunStore], tuple[Storage, float]]:
        """Pickle without what this process has seen of other machines' locks."""
        return RunStore, (self.storage, self.lease)

    @property
    def root(self) -> Path:
        """The folder.

        Raises:
            StoreError: the store is behind a URL.
        """
        return self._disk().root

    @property
    def place(self) -> str:
        """Where the store is, for people."""
        return self.storage.place

    def exists(self) -> bool:
        """Tell whether there is a store yet."""
        return self.storage.read_version() is not None

    def has(self, run_id: str) -> bool:
        """Tell whether a run was added."""
        return self.storage.has(run_id)

    def add(self, spec: RunSpec) -> str:
        """Add a run, pending, unless it is there; return its id."""
        return self.add_all([spec])[0]

    def add_all(self, specs: Iterable[RunSpec]) -> list[str]:
        """Add many runs; return their ids."""
        if not self._is_checked:
            self.storage.make()
            self._check()
        specs = list(specs)
        self.storage.add(specs)
        return [spec.run_id for spec in specs]

    def lock(self, spec: RunSpec, *, retry_failed: bool = True) -> Run | None:
        """Add a run if need be, and hold it, so that no other process runs it.

        A run whose process has died, or stopped, or failed, is locked again and goes on from its last
        checkpoint. One that another machine has locked is taken over once this store object has seen no sign
        of life for the lease: ask again from time to time.

        Args:
            spec: the run.
            retry_failed: whether to run again what has failed.

        Returns:
            the run, or None when it is done, has failed and is not to be retried, or another process holds
            it; `record` tells which.

        Raises:
            MissingExtraError: pyarrow, which writes the metrics, is not installed.
        """
        if importlib.util.find_spec("pyarrow") is None:
            raise MissingExtraError("pyarrow", "experiments")
        run_id = self.add(spec)
        status: Status | None = None
        with contextlib.suppress(DamagedError):  # such a run goes on from its checkpoint
            status = self.storage.status(run_id)
        if self._is_over(run_id, status, retry_failed):
            self.tidy(run_id)
            return None
        lock = self._try_lock(run_id)
        if lock is None:
            return None
        try:
            copy = self.storage.check_out(spec, lock)
            if self._is_over(run_id, copy.status, retry_failed):  # it ended between the two looks
                lock.release()
                return None
            run = Run(copy, spec, lock)
            run.begin()
        except BaseException:
            lock.release()
            raise
        return run

    claim = lock
    """The former name of `lock`."""

    def reset(self, run_id: str) -> None:
        """Forget everything about a run but its spec, so that it is pending again; waits as `held` does."""
        with self.held(run_id) as lock:
            self.storage.reset(run_id, lock)

    @contextlib.contextmanager
    def held(self, run_id: str) -> Iterator[Lock]:
        """Hold a run without starting it, to change its files.

        One that a process on another machine has locked is watched for its lease, until that process shows a sign of
        life or is gone.

        Raises:
            StoreError: a process holds it.
        """
        self._check()
        look = partial(self.storage.look, run_id)
        lock = wait_for_lock(partial(self._try_lock, run_id), look, self.lease)
        if lock is None:
            raise StoreError(f"expected a run that no process holds, got {run_id}; stop its process first")
        try:
            yield lock
        finally:
            lock.release()

    def free(self, run_id: str) -> bool:
        """Give a run back whose process is gone, for others to lock; tell whether it is free now.

        Whether a process on another machine is gone shows only to somebody who watches its lock for the whole
        lease, see `lock`. One process that asks from time to time thus spares the others the waiting.
        """
        lock = self._try_lock(run_id)
        if lock is not None:
            lock.release()
        return lock is not None

    def tidy(self, run_id: str) -> None:
        """Remove what a process left that was killed when its run was done but its checkpoints not yet removed."""
        self.storage.tidy(run_id, partial(self._try_lock, run_id))

    def folder(self, run_id: str) -> Path:
        """Return a run's folder.

        Raises:
            StoreError: the store is behind a URL.
        """
        storage = self._disk()  # first: a store behind a URL has no folders, whatever is there
        self._check()
        return storage.folder(run_id)

    def status(self) -> list[RunRecord]:
        """List all runs, in the order of their specs; corrupt ones come last, with the reason."""
        self._check()
        return sorted(self.storage.records(), key=lambda record: record.order)

    def runs(self, where: Callable[[RunRecord], bool]) -> list[RunRecord]:
        """List the runs for which ``where`` holds."""
        return [record for record in self.status() if where(record)]

    def record(self, run_id: str) -> RunRecord:
        """Return one run as `status` lists it."""
        return self.records([run_id])[0]

    def records(self, run_ids: Iterable[str]) -> list[RunRecord]:
        """Return some runs, as `record` does, in the given order."""
        self._check()
        return self.storage.records(run_ids)

    def has_metrics(self, record: RunRecord) -> bool:
        """Tell whether the metrics of a run that is done are still there, in full length."""
        return record.status is not None and self.storage.has_metrics(record.run_id, record.status)

    def metrics(self, run_id: str) -> Columns:
        """Return a run's metrics, a list of values for each column.

        They reach up to the last checkpoint while the run is not done.
        """
        self._check()
        if not self._is_done(run_id):
            found, _ = self.storage.newest_checkpoint(run_id, with_payload=False)
            if found or not self._is_done(run_id):  # it may have ended since, which removes its checkpoints
                return RowLog(found.rows if found else b"").columns()
        what = f"{self.place}/{run_id}/{METRICS_FILE}"
        columns, metadata = from_parquet(self.read_file(run_id, METRICS_FILE, MAX_PAGE_BYTES), what)
        check_owner(metadata, run_id, what)
        return columns

    def read_file(self, run_id: str, name: str, limit: int | None = None) -> bytes:
        """Return a file that a run has saved, after checking that it is whole.

        Args:
            run_id: the run.
            name: the file.
            limit: the greatest length that is read.

        Raises:
            DamagedError: it is not as the run wrote it, or longer than the limit.
        """
        self._check()
        status, data = self.storage.read(run_id, name, limit)
        files = status.files if status else {}
        if name not in files:
            known = ", ".join(files) or "none"
            raise StoreError(f"expected a file that run {run_id} has saved ({known}), got {name!r}")
        if data is None or FileSum.of(data) != files[name]:
            problem = "no file" if data is None else f"{len(data)} other bytes"
            raise DamagedError(
                f"{self.place}/{run_id}/{name}: expected the {files[name].length} bytes that the run wrote, "
                f"got {problem}; it was damaged since: reset() the run and run it again"
            )
        return data

    def problems(self, run_id: str) -> list[str]:
        """Read everything that a run has stored and say what is wrong with it; empty when all is well."""
        record = self.record(run_id)
        found = [record.reason] if record.reason else []

        def read(what: Callable[[], T]) -> T | None:
            try:
                return what()
            except StoreError as exc:
                found.append(str(exc))
                return None

        if checkpoints := read(partial(self.storage.newest_checkpoint, run_id)):
            found += checkpoints[1]
        for name in record.status.files if record.status else ():
            read(partial(self.read_file, run_id, name))
        if not found:
            read(partial(self.metrics, run_id))
        return found

    def _disk(self) -> FolderStorage:
        if not isinstance(self.storage, FolderStorage):
            raise StoreError(
                f"expected a run store on a disk, got {self.place}; copy it: headway fetch {self.place} FOLDER"
            )
        return self.storage

    def _try_lock(self, run_id: str) -> Lock | None:
        return self.storage.try_lock(run_id, self._watch, self.lease)

    def _is_done(self, run_id: str) -> bool:
        status = self.storage.status(run_id)
        return status is not None and status.state is State.DONE

    def _is_over(self, run_id: str, status: Status | None, retry_failed: bool) -> bool:
        if status is None:
            return False
        if status.state is State.FAILED:
            return not retry_failed
        return status.state is State.DONE and self.storage.has_metrics(run_id, status)

    def _check(self) -> None:
        """Make sure that there is a store, and that this version can read it."""
        if self._is_checked:
            return
        text = self.storage.read_version()
        if text is None:
            raise StoreError(f"expected a run store (with {STORE_FILE}) at {self.place}, got none")
        what = f"{self.place}/{STORE_FILE}"
        check_schema(parse_object(text, what, StoreError), STORE_SCHEMA, what, StoreError)
        self._is_checked = True


def _open(place: str | os.PathLike[str] | Storage) -> Storage:
    if isinstance(place, (str, os.PathLike)):
        if not is_url(place):
            return FolderStorage(place)
        from headway.runs.url_storage import UrlStorage  # which needs fsspec

        return UrlStorage(str(place))
    return place
