"""The folder in which a process keeps its working copies, and the removal of those that killed processes have left."""

from __future__ import annotations

import contextlib
import getpass
import json
import shutil
import tempfile
import weakref
from pathlib import Path

from headway.errors import StoreError
from headway.runs.jsonable import parse_object
from headway.runs.owner import Owner

OWNER_FILE = "owner.json"


def make_workshop(user_of_it: object) -> Path:
    """Make a folder of this process's own in the folder for temporary files; it goes when an object goes.

    Args:
        user_of_it: the object.
    """
    common = Path(tempfile.gettempdir()) / f"headway-{getpass.getuser()}"
    common.mkdir(mode=0o700, exist_ok=True)
    sweep(common)
    folder = Path(tempfile.mkdtemp(prefix="work-", dir=common))
    (folder / OWNER_FILE).write_text(json.dumps(Owner.this_process(1.0).to_dict()))
    weakref.finalize(user_of_it, shutil.rmtree, folder, ignore_errors=True)
    return folder


def sweep(common: Path) -> None:
    """Remove the folders of processes that are gone."""
    for folder in common.glob("work-*"):
        with contextlib.suppress(OSError, StoreError):  # being made, or being removed by somebody else
            owner = Owner.from_dict(parse_object((folder / OWNER_FILE).read_bytes(), OWNER_FILE, StoreError))
            if owner.is_alive() is False:
                shutil.rmtree(folder, ignore_errors=True)
