"""Fences: a process that has lost its run cannot write to it any more, whatever it was about to do.

A holder can be stalled at any instant for longer than its lease: between the check of its claim and the write that
follows, too. So a check is not enough. Every attempt has a staging folder of its own inside the run's folder, made
before its claim. It writes a file there and renames it into place; it removes a file by renaming it into there. Whoever
takes the run over removes the staging folders of all earlier attempts before reading anything. From then on each
rename of theirs fails, since its source or its target is gone, and they cannot make the folder again under the number
of a claim that is over. That holds on every file system on which a file cannot be renamed out of a removed folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from pathlib import Path

from headway.runs.files import store_error

_STAGING = re.compile(r"\.attempt-([1-9][0-9]{0,8})-[0-9a-f]{16}", re.ASCII)
_REMOVED = re.compile(r"\.removed-[0-9a-f]{16}", re.ASCII)
_ROUNDS = 10


def make_staging(folder: Path, number: int) -> Path:
    """Make the staging folder of an attempt; its claim must be made after this.

    Raises:
        StoreError: it cannot be made.
    """
    staging = folder / f".attempt-{number}-{secrets.token_hex(8)}"
    try:
        staging.mkdir()
    except OSError as error:
        raise store_error("write", folder, error) from error
    return staging


def shut_out(folder: Path, number: int, own: Path) -> None:
    """Take away the staging folders of the attempts before this one; when it returns, they cannot write any more.

    Those of the same number belong to processes that did not get the claim of this number, and never will.

    Args:
        folder: the run's folder.
        number: of the claim that this process has just made.
        own: its staging folder.

    Raises:
        StoreError: one of them cannot be removed.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            match = _STAGING.fullmatch(name)
            if (match and int(match[1]) <= number and name != own.name) or _REMOVED.fullmatch(name):
                _remove(folder / name)
    except OSError as error:
        raise store_error("take over", folder, error) from error


def has_left_staging(folder: Path) -> bool:
    """Tell whether an attempt has left its staging folder behind."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return any(_STAGING.fullmatch(entry.name) or _REMOVED.fullmatch(entry.name) for entry in entries)
    return False


def _remove(staging: Path) -> None:
    """Rename a staging folder, so that nobody finds it, and remove it with what is in it.

    A network file system may let a process on another machine use the folder that it has found before. Then there is
    something in it again, and another round follows: only a folder that is removed is out of reach for all.
    """
    hidden = staging.with_name(f".removed-{secrets.token_hex(8)}")
    try:
        staging.rename(hidden)
    except FileNotFoundError:
        return  # somebody else has taken the run over since
    for _ in range(_ROUNDS):
        shutil.rmtree(hidden, ignore_errors=True)
        if not hidden.exists():
            return
    hidden.rmdir()
