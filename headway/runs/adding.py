"""Adding runs to a store on disk: its folder, and one folder for each run."""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path

from headway.errors import DamagedError, NewerSchemaError, SpecError, StoreError
from headway.runs.files import read_bytes, store_error, write_bytes
from headway.runs.jsonable import MAX_BYTES
from headway.runs.records import SPEC_FILE, read_spec, refuse_link
from headway.runs.spec import RunSpec

STORE_SCHEMA = 1
STORE_FILE = "store.json"
STAGING = ".new-"
"""How the names of folders begin in which a run's files are put together."""


def make_store(root: Path) -> None:
    """Make a store unless it is there.

    Raises:
        StoreError: the folder cannot be made or written to.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise StoreError(f"expected a folder for the run store, got a file at {root}") from None
    except OSError as exc:
        raise store_error("make", root, exc) from exc
    if read_bytes(root / STORE_FILE, MAX_BYTES) is None:
        write_bytes(root / STORE_FILE, json.dumps({"schema": STORE_SCHEMA}).encode() + b"\n")


def add_run(root: Path, spec: RunSpec) -> bool:
    """Make a run's folder, or mend its spec; False when there was nothing to do.

    Raises:
        StoreError: it cannot be written, is a link, is of a newer version, or holds another run.
    """
    folder = root / spec.run_id
    refuse_link(folder)
    try:
        stored = read_spec(folder, spec.run_id)
    except NewerSchemaError:
        raise
    except (SpecError, DamagedError):
        if not folder.is_dir():
            return _make_folder(root, folder, spec)
        write_bytes(folder / SPEC_FILE, spec.to_json().encode())  # safe: the folder's name is its hash
        return False
    if stored != spec:
        raise StoreError(f"expected {spec} in {folder}, got {stored}: two specs share an id; change a name")
    return False


def _make_folder(root: Path, folder: Path, spec: RunSpec) -> bool:
    """Make a run's folder in one step, so that there is never one without a spec."""
    staging = root / f"{STAGING}{folder.name}-{secrets.token_hex(8)}"
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
