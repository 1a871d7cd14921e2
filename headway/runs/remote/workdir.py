"""The folder in which a process keeps its working copies, and the removal of those that killed processes have left."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

from headway.errors import StoreError
from headway.runs.files import store_error
from headway.runs.jsonable import parse_object
from headway.runs.owner import Owner

OWNER_FILE = "owner.json"


def make_workshop(user_of_it: object) -> Path:
    """Make a folder of this process's own in the folder for temporary files; it goes when an object goes.

    Args:
        user_of_it: the object.

    Raises:
        StoreError: it cannot be made, or others could write where it would be.
    """
    try:
        common = Path(tempfile.gettempdir()) / f"headway-{_user()}"
        with contextlib.suppress(FileExistsError):
            common.mkdir(mode=0o700)
        _check_private(common)
        sweep(common)
        folder = Path(tempfile.mkdtemp(prefix="work-", dir=common))
        weakref.finalize(user_of_it, shutil.rmtree, folder, ignore_errors=True)
        (folder / OWNER_FILE).write_text(json.dumps(Owner.this_process(1.0).to_dict()))
    except OSError as error:
        raise store_error("make", "a folder for working copies; set TMPDIR to one that is writable", error) from error
    return folder


def make_folder(folder: Path) -> None:
    """Make the folder of a working copy.

    Raises:
        StoreError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise store_error("make", folder, error) from error


def sweep(common: Path) -> None:
    """Remove the folders of processes that are gone."""
    for folder in common.glob("work-*"):
        with contextlib.suppress(OSError, StoreError):  # being made, or being removed by somebody else
            owner = Owner.from_dict(parse_object((folder / OWNER_FILE).read_bytes(), OWNER_FILE, StoreError))
            if owner.is_alive() is False:
                shutil.rmtree(folder, ignore_errors=True)


def _user() -> str:
    """What tells this user's folder from others': the number, since in a container the user may have no name."""
    return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()


def _check_private(folder: Path) -> None:
    """Make sure that nobody else can put anything into a folder; anybody can make one of its name beforehand."""
    if not hasattr(os, "getuid"):
        return
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise StoreError(
            f"expected a folder of user {os.getuid()} that is closed to others, got mode {stat.filemode(info.st_mode)} "
            f"of user {info.st_uid} at {folder}; remove it or set TMPDIR to another folder"
        )
