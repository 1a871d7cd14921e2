"""Locks of runs in a folder, and the fence that keeps a process out that has lost its run.

A hard link creates a lock file, so it appears with its content in one step, over NFS too; file systems without links
get ``O_EXCL``. Releasing it overwrites its first bytes in place, which works on a full disk. A sign of life is a new
time of the file. An advisory lock (``flock``) would do on one machine, but many NFS mounts keep such locks local to a
client.

Besides what `locks` says, a lock is over when its holder's machine was started anew. A machine of the same name in
another boot may be this one before a restart, or another one altogether. So the lock must also have been silent for
longer than its lease and for longer than this machine has been up: a live namesake would have shown a sign of life
since. That silence lies between the times of two files in the run's folder, its lock and one that is written for this,
so that no clocks are compared. A listing only looks once. It takes a foreign lock for over when its time is many leases
past, which a wrong clock can get wrong, but nobody takes a run over because of it.

The fence: a holder can be stalled at any instant for longer than its lease, between the check of its lock and the write
that follows too. So a check is not enough. Every attempt has a staging folder of its own inside the run's folder, made
before its lock. It writes a file there and renames it into place; it removes a file by renaming it into there. Whoever
takes the run over removes the staging folders of all earlier attempts before reading anything. From then on each
rename of theirs fails, since its source or its target is gone, and they cannot make the folder again under the number
of a lock that is over. That holds on every file system on which a file cannot be renamed out of a removed folder.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.errors import DamagedError, StoreError
from headway.runs.files import disk_errors, open_regular
from headway.runs.jsonable import parse_object
from headway.runs.locks import DEFAULT_LEASE, LeaseWatch, Lock, Owner, SeenLock, is_over, newest_number

LEASES_TO_LIST = 20
"""For how many leases, but half an hour at least, a foreign lock is listed as held after its last sign of life."""
_RELEASED = b"released"
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_STAGING = re.compile(r"\.attempt-([1-9][0-9]{0,8})-[0-9a-f]{16}", re.ASCII)
_REMOVED = re.compile(r"\.removed-[0-9a-f]{16}", re.ASCII)
_ROUNDS = 10


class FolderLock(Lock):
    """Lock ``number`` of a run's folder, which this process has just created, with its staging folder."""

    def __init__(self, folder: Path, number: int, lease: float, staging: Path) -> None:
        self._folder = folder
        self._path = _path(folder, number)
        super().__init__(number, lease, staging, str(self._path))
        self._thread.start()

    def check(self) -> None:
        """Make sure that the run is still this process's."""
        try:
            self._lost = newest(self._folder) != self.number or self._lost
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            got = f"none at {self._folder}: somebody has deleted it; the same command starts the run again"
            raise DamagedError(f"expected the folder of a run under way, got {got}") from None
        super().check()

    def beat(self) -> None:
        """Show a sign of life."""
        try:
            os.utime(self._path)
        except FileNotFoundError:
            self._lost = True
        except OSError:
            pass  # the file system may be away for a moment

    def _give_back(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY)
            try:
                os.write(descriptor, _RELEASED)
            finally:
                os.close(descriptor)


def newest(folder: str | Path) -> int:
    """Return the highest lock number in a run's folder; 0 when it was never locked."""
    with disk_errors("read", folder):
        return newest_number(_names(folder))


def _names(folder: str | Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def look(folder: str | Path, number: int) -> SeenLock | None:
    """Read a lock; None when it is not there (any more)."""
    path = _path(Path(folder), number)
    with disk_errors("read", path):
        try:
            # Opening it, rather than asking for its times, makes an NFS client fetch them anew.
            with os.fdopen(open_regular(path), "rb") as file:
                info = os.fstat(file.fileno())
                content = file.read(4096)
        except FileNotFoundError:
            return None
    beat = (info.st_mtime_ns, info.st_size, info.st_ino)
    try:
        owner = Owner.from_dict(parse_object(content, str(path), StoreError))
    except StoreError:
        owner = None
    return SeenLock(owner, content.startswith(_RELEASED), beat)


def look_at_newest(folder: str | Path) -> SeenLock | None:
    """Read the lock that counts; None when the run was never locked."""
    seen = 0
    while (number := newest(folder)) != seen:
        if seen_lock := look(folder, number):
            return seen_lock
        seen = number  # another process has taken the run over since, and removed it
    return None


def is_held(folder: str | Path) -> bool:
    """Tell whether a live process holds the run, as far as one look can tell: for listings only.

    A foreign lock counts until it was silent for many leases by the clock of this machine, which need not be right.
    """
    seen_lock = look_at_newest(folder)
    if seen_lock is None or seen_lock.released:
        return False
    alive = seen_lock.is_alive()
    if alive is not None:
        return alive
    patience = LEASES_TO_LIST * max(seen_lock.lease(DEFAULT_LEASE), DEFAULT_LEASE)
    now = time.time()
    return now - seen_lock.time < patience and not _is_of_an_earlier_boot(seen_lock, lambda: now)


def try_lock(folder: Path, watch: LeaseWatch, lease: float) -> FolderLock | None:
    """Lock a run if its newest lock is over."""
    number = newest(folder)
    if number:
        seen_lock = look(folder, number)
        if seen_lock is None or not _is_over(_path(folder, number), seen_lock, watch):
            return None  # gone since it was listed: somebody else has locked the run meanwhile
    with contextlib.ExitStack() as undo:
        staging = folder / f".attempt-{number + 1}-{secrets.token_hex(8)}"
        with disk_errors("write", folder):
            staging.mkdir()
        undo.callback(shutil.rmtree, staging, ignore_errors=True)
        if not _create_next(folder, number + 1, lease):
            return None
        lock = FolderLock(folder, number + 1, lease, staging)
        undo.callback(lock.release)
        _shut_out(folder, number + 1, staging)
        undo.pop_all()
    return lock


def _path(folder: Path, number: int) -> Path:
    return folder / f"claim.{number}"


def _is_over(path: Path, seen_lock: SeenLock, watch: LeaseWatch) -> bool:
    if is_over(str(path), seen_lock, watch):
        return True
    return seen_lock.is_alive() is None and _is_of_an_earlier_boot(seen_lock, lambda: _now(path.parent))


def _is_of_an_earlier_boot(seen_lock: SeenLock, now: Callable[[], float]) -> bool:
    """Tell whether a lock has been silent since before this machine was started."""
    if seen_lock.owner is None or not seen_lock.owner.may_be_of_an_earlier_boot():
        return False
    return now() - seen_lock.time > max(uptime(), seen_lock.owner.lease)


def uptime() -> float:
    """Seconds since this machine was started; infinite where the system does not tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return float("inf") if clock is None else time.clock_gettime(clock)


def _now(folder: Path) -> float:
    """The time that a sign of life would have if it were shown now; minus infinity when that cannot be known."""
    try:
        with disk_errors("write", folder), _temporary(folder) as path:
            path.touch(exist_ok=False)
            os.utime(path)
            return path.stat().st_mtime
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    return float("-inf")  # whoever holds the run by now has cleared our temporary file away


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A name for a file that is gone at the end."""
    path = folder / f".claim.{secrets.token_hex(8)}.tmp"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _create_next(folder: Path, number: int, lease: float) -> bool:
    """Create a lock and clear away those before it; False when another process was quicker."""
    if not _create(folder, number, lease):
        return False
    if newest(folder) != number:  # we were so slow that our number had come and gone; the higher one counts
        _path(folder, number).unlink(missing_ok=True)
        return False
    for old in range(max(1, number - 2), number):
        with contextlib.suppress(OSError):
            _path(folder, old).unlink()
    return True


def _create(folder: Path, number: int, lease: float) -> bool:
    """Create a lock file with its content in one step; False when it exists."""
    content = json.dumps(Owner.this_process(lease).to_dict()).encode()
    path = _path(folder, number)
    with disk_errors("write", path), _temporary(folder) as temporary:
        with temporary.open("xb") as file:
            file.write(content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):  # the one who was quicker has cleared our file away
                return temporary.stat().st_nlink == 2  # over NFS a link can succeed and its reply be lost
            return False
        except FileNotFoundError:
            return False  # whoever holds the run by now has cleared our temporary file away
        except OSError as exc:
            if exc.errno not in _NO_LINKS:
                raise
            return _create_exclusively(path, content)
    return True


def _create_exclusively(path: Path, content: bytes) -> bool:
    """Create a lock where there are no hard links; while it is empty, others treat it as held."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True


def _shut_out(folder: Path, number: int, own: Path) -> None:
    """Take away the staging folders of the attempts before this one; when it returns, they cannot write any more.

    Those of the same number belong to processes that did not get the lock of this number, and never will.
    """
    with disk_errors("take over", folder):
        for name in _left_staging(folder):
            match = _STAGING.fullmatch(name)
            if name != own.name and (match is None or int(match[1]) <= number):
                _remove(folder / name)


def has_left_staging(folder: Path) -> bool:
    """Tell whether an attempt has left its staging folder behind."""
    with contextlib.suppress(OSError):
        return bool(_left_staging(folder))
    return False


def _left_staging(folder: Path) -> list[str]:
    """The staging folders of attempts, and those that are being removed."""
    return [name for name in _names(folder) if _STAGING.fullmatch(name) or _REMOVED.fullmatch(name)]


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
