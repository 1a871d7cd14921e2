"""Copying runs from a store behind a URL, such as s3://bucket/runs, to a folder."""

from __future__ import annotations

from collections.abc import Callable

from headway.errors import DamagedError, UsageError
from headway.runs.files import read_bytes, store_error, write_bytes
from headway.runs.folder import read_status
from headway.runs.jsonable import MAX_BYTES
from headway.runs.status import STATUS_FILE, RunRecord, State, Status
from headway.runs.store import RunStore
from headway.runs.url_storage import UrlStorage

FETCHED_FILE = ".fetched.json"
"""The status that a run was copied with: another one beside it was written here."""


def fetch(
    remote: RunStore, local: RunStore, report: Callable[[RunRecord, bool], object] = lambda record, is_new: None
) -> int:
    """Copy the runs that are new or have changed; return how many.

    A run appears in the folder only with all of its files. Checkpoints of runs that are not done come along, so that
    a run can be resumed from the copy. One that was, and has come as far here, is left alone.
    """
    if not isinstance(remote.storage, UrlStorage):
        raise UsageError(f"expected a run store behind a URL, got {remote.place}, which can be used as it is")
    records = [record for record in remote.status() if record.state is not State.CORRUPT]
    local.add_all(record.spec for record in records if record.spec)
    copied = 0
    for record in records:
        is_new = record.status is not None and _is_wanted(local, record.run_id, record.status)
        if is_new:
            is_new = _copy(remote.storage, local, record.run_id)
            copied += is_new
        report(record, is_new)
    return copied


def _is_wanted(local: RunStore, run_id: str, theirs: Status) -> bool:
    """Tell whether a run's copy is to be replaced."""
    folder = local.folder(run_id)
    try:
        ours = read_status(folder, run_id)
    except DamagedError:
        return True
    if ours is None:
        return True
    has_metrics = ours.state is State.DONE and local.has_metrics(local.record(run_id))
    if ours == theirs:
        is_whole = all((folder / name).is_file() for name in ours.files)
        return not is_whole or (ours.state is State.DONE and not has_metrics)
    if read_bytes(folder / STATUS_FILE, MAX_BYTES) == read_bytes(folder / FETCHED_FILE, MAX_BYTES):
        return True  # nobody has worked on it here
    if has_metrics:
        return False
    return theirs.state is State.DONE or theirs.step > ours.step


def _copy(remote: UrlStorage, local: RunStore, run_id: str) -> bool:
    """Bring a run's files beside its folder, then move them in; its status comes last. False when it need not be."""
    folder = local.folder(run_id)
    with local.held(run_id) as lock:
        staging = lock.staging
        theirs, _ = remote.bring(run_id, staging)
        if theirs is None or not _is_wanted(local, run_id, theirs):  # it was worked on here just now
            return False
        status = theirs.to_json().encode()
        try:
            for path in list(staging.iterdir()):
                lock.check()
                path.replace(folder / path.name)
        except OSError as error:
            raise store_error("write", folder, error) from error
        lock.check()
        write_bytes(folder / STATUS_FILE, status, staging)
        write_bytes(folder / FETCHED_FILE, status, staging)
    return True
