"""Copying a store behind a URL to a folder, where reports and figures are made of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from headway.errors import StoreError
from headway.integrations.remote.store import RemoteStore
from headway.runs import RunRecord, RunStore, State
from headway.runs.files import write_bytes
from headway.runs.records import STATUS_FILE, read_status

Told = Callable[[RunRecord, bool], object]


def fetch(remote: RemoteStore, local: RunStore, told: Told = lambda record, is_new: None) -> int:
    """Copy the runs that are new or have changed; return how many.

    A run appears in the folder only with all of its files. Checkpoints of runs that are not done come along, so that
    a run can be resumed from the copy.

    Args:
        remote: where from.
        local: where to; nothing of it is removed.
        told: told each run, and whether it was copied.

    Raises:
        StoreError: the store cannot be read, the folder cannot be written to, or a process works on a run there.
    """
    records = [record for record in remote.status() if record.state is not State.CORRUPT]
    local.add_all(record.spec for record in records if record.spec)
    copied = 0
    for record in records:
        is_new = record.status is not None and not _is_same(local, record)
        if is_new:
            _copy(remote, local, record.run_id)
            copied += 1
        told(record, is_new)
    return copied


def _is_same(local: RunStore, record: RunRecord) -> bool:
    try:
        return read_status(local.folder(record.run_id), record.run_id) == record.status
    except StoreError:
        return False


def _copy(remote: RemoteStore, local: RunStore, run_id: str) -> None:
    """Bring a run's files beside its folder, then move them in; its status comes last."""
    if not local.free(run_id):
        raise StoreError(f"expected a copy that nobody works on, got run {run_id} under way in {local.root}")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=local.root) as staging:
        manifest = remote.bring(run_id, Path(staging))
        if manifest is None:
            return
        folder = local.folder(run_id)
        for path in Path(staging).iterdir():
            shutil.move(str(path), folder / path.name)
        write_bytes(folder / STATUS_FILE, manifest.status.to_json().encode())
