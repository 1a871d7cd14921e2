"""`RunStore`: a folder with one folder per run, which survives being stopped at any instant."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from headway.errors import DamagedError, MissingExtraError, StoreError
from headway.runs.adding import STAGING, STORE_FILE, STORE_SCHEMA, add_run, make_store
from headway.runs.checkpoints import SLOTS, find_newest
from headway.runs.fence import has_left_staging
from headway.runs.files import FileSum, for_each, read_bytes, remove, store_error, sweep, sync_folder
from headway.runs.jsonable import MAX_BYTES, check_schema, parse_object
from headway.runs.locks import DEFAULT_LEASE, LeaseWatch, Sighting, look_at_newest, try_claim, wait_for_claim
from headway.runs.metrics import Columns, RowLog, metrics_of
from headway.runs.pages import MAX_PAGE_BYTES
from headway.runs.records import (
    SPEC_FILE,
    STATUS_FILE,
    RunRecord,
    read_record,
    read_status,
    refuse_link,
    spec_order,
)
from headway.runs.run import Hold, Run
from headway.runs.spec import RunSpec
from headway.runs.status import METRICS_FILE, State, Status

RUN_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)


class RunStore:
    """Runs on disk, one folder each, named by the id of its spec.

        store.json                       the version of the store
        <run_id>/spec.json               what the run is
                 status.json             where it stands
                 checkpoint.0, .1        the two newest checkpoints, each with the metrics rows up to it
                 metrics.parquet         all metrics, once it is done
                 claim.<n>               who holds it

    Every write is atomic. Any number of processes, also on several machines that share a file system, may use
    a store at once. Making a `RunStore` touches nothing; the folder is made when the first run is added.
    Nothing in a store is ever executed: the formats are JSON, Parquet and opaque bytes with checksums.
    """

    def __init__(self, root: str | os.PathLike[str], lease: float = DEFAULT_LEASE) -> None:
        """Use the store in the folder ``root``.

        Args:
            root: the folder.
            lease: seconds without a sign of life after which other machines may take over the runs of
                this process.
        """
        if not 0 < lease < float("inf"):
            raise StoreError(f"expected a lease of more than 0 seconds, got {lease}")
        self.root = Path(root)
        self.lease = lease
        self._watch = LeaseWatch(lease)
        self._checked = False
        self._swept = False

    def __reduce__(self) -> tuple[type[RunStore], tuple[Path, float]]:
        """Pickle without what this process has seen of other machines' claims."""
        return RunStore, (self.root, self.lease)

    def add(self, spec: RunSpec) -> str:
        """Add a run, pending, unless it is there; return its id."""
        return self.add_all([spec])[0]

    def add_all(self, specs: Iterable[RunSpec]) -> list[str]:
        """Add many runs; return their ids.

        Raises:
            StoreError: the folder cannot be written to, or is a store of a newer version.
        """
        self._make()
        specs = list(specs)
        if not self._swept:
            sweep(self.root, STAGING)
            self._swept = True
        if any(for_each(specs, partial(add_run, self.root))):
            try:
                sync_folder(self.root)
            except OSError as exc:
                raise store_error("write", self.root, exc) from exc
        return [spec.run_id for spec in specs]

    def claim(self, spec: RunSpec, *, retry_failed: bool = True) -> Run | None:
        """Add a run if need be, and hold it, so that no other process runs it.

        A run whose process has died, or stopped, or failed, is claimed again and goes on from its last
        checkpoint. One that another machine has claimed is taken over once this store object has seen no sign
        of life for the lease: ask again from time to time.

        Args:
            spec: the run.
            retry_failed: whether to run again what has failed.

        Returns:
            the run, or None when it is done, has failed and is not to be retried, or another process holds
            it; `record` tells which.

        Raises:
            StoreError: the folder cannot be written to, or a newer version wrote it.
            MissingExtraError: pyarrow, which writes the metrics, is not installed.
        """
        if importlib.util.find_spec("pyarrow") is None:
            raise MissingExtraError("pyarrow", "experiments")
        folder = self.root / self.add(spec)
        if self._is_closed(folder, retry_failed):
            self.tidy(spec.run_id)
            return None
        claim = try_claim(folder, self._watch, self.lease)
        if claim is None:
            return None
        try:
            if self._is_closed(folder, retry_failed):  # it ended between the two looks
                claim.release()
                return None
            status, note = self._last_status(folder)
            run = Run(folder, spec, claim, status, note)
            run.begin()
        except BaseException:
            claim.release()
            raise
        return run

    def reset(self, run_id: str) -> None:
        """Forget everything about a run but its spec, so that it is pending again; waits as `held` does.

        Raises:
            StoreError: there is no such run, a process holds it, or it cannot be written to.
        """
        folder = self.folder(run_id)
        with self.held(run_id) as claim:
            status, _ = self._last_status(folder)
            for name in (STATUS_FILE, METRICS_FILE, *SLOTS, *(status.files if status else ())):
                remove(folder / name, claim.staging)

    @contextlib.contextmanager
    def held(self, run_id: str) -> Iterator[Hold]:
        """Hold a run without starting it, to change its files.

        One that a process on another machine has claimed is watched for its lease, until that process shows a sign of
        life or is gone.

        Raises:
            StoreError: there is no such run, or a process holds it.
        """
        claim = wait_for_claim(lambda: self._try_claim(run_id), lambda: self._look(run_id), self.lease)
        if claim is None:
            raise StoreError(f"expected a run that no process holds, got {run_id}; stop its process first")
        try:
            yield claim
        finally:
            claim.release()

    def folder(self, run_id: str) -> Path:
        """Return a run's folder.

        Raises:
            StoreError: there is no such run.
        """
        self._check()
        folder = self.root / run_id
        if not RUN_ID.fullmatch(run_id) or not folder.is_dir():
            raise StoreError(f"expected the id of a run in {self.root}, got {run_id!r}; status() lists them")
        refuse_link(folder)
        return folder

    def status(self) -> list[RunRecord]:
        """List all runs, in the order of their specs; corrupt ones come last, with the reason.

        Raises:
            StoreError: there is no store, or a newer version wrote it.
        """
        self._check()
        try:
            with os.scandir(self.root) as entries:
                names = [entry.name for entry in entries if RUN_ID.fullmatch(entry.name) and _is_run(entry)]
        except OSError as exc:
            raise store_error("read", self.root, exc) from exc
        return sorted((read_record(self.root, name) for name in names), key=spec_order)

    @property
    def place(self) -> str:
        """Where the store is, for people."""
        return str(self.root)

    def has(self, run_id: str) -> bool:
        """Tell whether a run was added.

        Raises:
            StoreError: that cannot be found out.
        """
        return read_bytes(self.root / run_id / SPEC_FILE, MAX_BYTES) is not None

    def exists(self) -> bool:
        """Tell whether there is a store yet.

        Raises:
            StoreError: that cannot be found out.
        """
        return read_bytes(self.root / STORE_FILE, MAX_BYTES) is not None

    def runs(self, where: Callable[[RunRecord], bool]) -> list[RunRecord]:
        """List the runs for which ``where`` holds."""
        return [record for record in self.status() if where(record)]

    def record(self, run_id: str) -> RunRecord:
        """Return one run as `status` lists it.

        Raises:
            StoreError: there is no such run.
        """
        self.folder(run_id)
        return read_record(self.root, run_id)

    def records(self, run_ids: Iterable[str]) -> list[RunRecord]:
        """Return some runs, as `record` does, in the given order.

        Raises:
            StoreError: one of them is not there.
        """
        return [self.record(run_id) for run_id in run_ids]

    def has_metrics(self, record: RunRecord) -> bool:
        """Tell whether the metrics of a run that is done are still there, in full length."""
        return record.status is not None and _has_metrics(self.root / record.run_id, record.status)

    def free(self, run_id: str) -> bool:
        """Give a run back whose process is gone, for others to claim; tell whether it is free now.

        Whether a process on another machine is gone shows only to somebody who watches its claim for the whole
        lease, see `claim`. One process that asks from time to time thus spares the others the waiting.

        Raises:
            StoreError: there is no such run, or its folder cannot be written to.
        """
        claim = self._try_claim(run_id)
        if claim is not None:
            claim.release()
        return claim is not None

    def tidy(self, run_id: str) -> None:
        """Remove what a process left that was killed when its run was done but its checkpoints not yet removed.

        Raises:
            StoreError: there is no such run, or its folder cannot be written to.
        """
        folder = self.folder(run_id)
        slots = [folder / slot for slot in SLOTS if (folder / slot).exists()]
        if (slots or has_left_staging(folder)) and _is_done(folder) and (claim := self._try_claim(run_id)):
            try:
                for slot in slots if _is_done(folder) else ():
                    remove(slot, claim.staging)
            finally:
                claim.release()

    def metrics(self, run_id: str) -> Columns:
        """Return a run's metrics, a list of values for each column.

        They reach up to the last checkpoint while the run is not done.

        Raises:
            StoreError: there is no such run.
            DamagedError: the metrics are not as they were written.
        """
        folder = self.folder(run_id)
        if not _is_done(folder):
            found, _ = find_newest(folder, run_id, with_payload=False)
            if found or not _is_done(folder):  # it may have ended since, which removes its checkpoints
                return RowLog(found.rows if found else b"").columns()
        return metrics_of(self.read_file(run_id, METRICS_FILE, MAX_PAGE_BYTES), run_id, str(folder / METRICS_FILE))

    def read_file(self, run_id: str, name: str, limit: int | None = None) -> bytes:
        """Return a file that a run has saved, after checking that it is whole.

        Args:
            run_id: the run.
            name: the file.
            limit: the greatest length that is read.

        Raises:
            StoreError: there is none of this name.
            DamagedError: it is not as the run wrote it, or longer than the limit.
        """
        folder = self.folder(run_id)
        status = read_status(folder, run_id)
        if status is None or name not in status.files:
            known = ", ".join(status.files if status else ()) or "none"
            raise StoreError(f"expected a file that run {run_id} has saved ({known}), got {name!r}")
        data = read_bytes(folder / name, limit)
        if data is None or FileSum.of(data) != status.files[name]:
            problem = "no file" if data is None else f"{len(data)} other bytes"
            raise DamagedError(
                f"{folder / name}: expected the {status.files[name].length} bytes that the run wrote, "
                f"got {problem}; it was damaged since: reset() the run and run it again"
            )
        return data

    def problems(self, run_id: str) -> list[str]:
        """Read everything that a run has stored and say what is wrong with it; empty when all is well."""
        folder = self.folder(run_id)
        record = read_record(self.root, run_id)
        found = [record.reason] if record.reason else []
        try:
            found += find_newest(folder, run_id)[1]
        except StoreError as exc:
            found.append(str(exc))
        return found + self._problems_of_files(record, bool(found))

    def _problems_of_files(self, record: RunRecord, is_known: bool) -> list[str]:
        """What is wrong with the files that a run has saved, and, unless something is known to be, with its metrics."""
        names = record.status.files if record.status else ()
        reads = [partial(self.read_file, record.run_id, name) for name in names]
        found = [problem for read in reads if (problem := _problem_of(read))]
        if not found and not is_known and (problem := _problem_of(partial(self.metrics, record.run_id))):
            found.append(problem)
        return found

    def _try_claim(self, run_id: str) -> Hold | None:
        return try_claim(self.folder(run_id), self._watch, self.lease)

    def _look(self, run_id: str) -> Sighting | None:
        return look_at_newest(self.folder(run_id))

    def _check(self) -> None:
        """Make sure that ``root`` is a store that this version can read."""
        if self._checked:
            return
        path = self.root / STORE_FILE
        text = read_bytes(path, MAX_BYTES)
        if text is None:
            raise StoreError(f"expected a run store (a folder with {STORE_FILE}) at {self.root}, got none")
        check_schema(parse_object(text, str(path), StoreError), STORE_SCHEMA, str(path), StoreError)
        self._checked = True

    def _make(self) -> None:
        """Make the store unless it is there."""
        if self._checked:
            return
        make_store(self.root)
        self._check()

    def _is_closed(self, folder: Path, retry_failed: bool) -> bool:
        status, _ = self._last_status(folder)
        if status is None:
            return False
        if status.state is State.FAILED:
            return not retry_failed
        return status.state is State.DONE and _has_metrics(folder, status)

    def _last_status(self, folder: Path) -> tuple[Status | None, str]:
        """Return a run's status, or None and why it is unreadable: such a run goes on from its checkpoint."""
        try:
            return read_status(folder, folder.name), ""
        except DamagedError as exc:
            return None, str(exc)


def _is_run(entry: os.DirEntry[str]) -> bool:
    """Whether a listing shows it; a link leads elsewhere, and is shown as corrupt."""
    return entry.is_symlink() or entry.is_dir()


def _problem_of(read: Callable[[], object]) -> str:
    """Why something cannot be read; empty if it can."""
    try:
        read()
    except StoreError as exc:
        return str(exc)
    return ""


def _is_done(folder: Path) -> bool:
    status = read_status(folder, folder.name)
    return status is not None and status.state is State.DONE


def _has_metrics(folder: Path, status: Status) -> bool:
    """Tell whether a done run's metrics are there with the right length; reading checks them in full."""
    expected = status.files.get(METRICS_FILE)
    try:
        return expected is not None and (folder / METRICS_FILE).stat().st_size == expected.length
    except OSError:
        return False
