"""Files that are either whole or not there: atomic writes, bounded reads, and errors with a way out."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from headway.errors import DamagedError, StoreError
from headway.runs.jsonable import COUNT, TEXT, take_fields

S = TypeVar("S")
T = TypeVar("T")

THREADS = 8
"""How many files are written at once where there are many."""
STALE = 24 * 3600.0
"""Seconds after which a folder in the making was left by a process that is gone."""
_WAYS_OUT = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EFBIG: "the file would pass the size limit (ulimit -f); raise it and run the same command again",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "permission denied; make the folder writable for this user or choose another one",
    errno.EPERM: "permission denied; make the folder writable for this user or choose another one",
    errno.ENOTDIR: "expected a folder, got a file on the way there; choose another folder",
    errno.EISDIR: "expected a file, got a folder; move it away",
}
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_DIRECTORY_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


class Writer(Protocol):
    """What a write callback gets: something with ``write``."""

    def write(self, data: Any, /) -> int:
        """Write bytes, and return how many."""


Write = Callable[[Writer], object]


@dataclass(frozen=True)
class FileSum:
    """A file's length and SHA-256, by which a damaged file is recognised."""

    length: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> FileSum:
        """Return the sum of ``data``."""
        return cls(len(data), hashlib.sha256(data).hexdigest())

    @classmethod
    def from_json(cls, data: object, what: str) -> FileSum:
        """Make a sum from parsed JSON."""
        return cls(**take_fields(data, {"length": COUNT, "sha256": TEXT}, what, DamagedError))


class SummingWriter:
    """Pass bytes on and keep their `FileSum`; it cannot seek, so the sum cannot be wrong."""

    def __init__(self, target: Writer) -> None:
        self._target = target
        self._hash = hashlib.sha256()
        self._length = 0

    def write(self, data: Any, /) -> int:
        """Write ``data`` (any bytes-like object) and return its length in bytes."""
        view = memoryview(data).cast("B")
        self._target.write(view)
        self._hash.update(view)
        self._length += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        """Do nothing: the file is flushed and synced once it is complete."""

    def sum(self) -> FileSum:
        """Return the sum of what was written so far."""
        return FileSum(self._length, self._hash.hexdigest())


class _GuardedWriter:
    """Pass bytes on to a file and remember the disk's own error, whatever a library makes of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return self._file.write(data)
        except OSError as exc:
            self.error = exc
            raise

    def flush(self) -> None:
        """Do nothing: the file is flushed and synced once it is complete."""

    def sync(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as exc:
            self.error = exc
            raise


def store_error(action: str, path: str | Path, exc: OSError, *, is_disk: bool = True) -> StoreError:
    """Return a `StoreError` that says what could not be done, why, and the way out."""
    way_out = _WAYS_OUT.get(exc.errno or 0, exc.strerror or str(exc))
    kind = DamagedError if is_disk and action == "read" and exc.errno == errno.EIO else StoreError
    return kind(f"cannot {action} {path}: {way_out}")


def write_atomic(path: Path, write: Write, staging: Path | None = None) -> None:
    """Write a file so that every reader, at every instant, sees the old content or all of the new.

    The bytes go to a temporary file, which is synced and renamed; then the folder is synced. Whatever goes wrong,
    ``path`` keeps what it held.
    """
    temporary = (staging or path.parent) / f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        _write_synced(temporary, write)
        try:
            temporary.replace(path)
            sync_folder(path.parent)
        except OSError as exc:
            raise store_error("write", path, exc) from exc
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _write_synced(path: Path, write: Write) -> None:
    """Write a new file and sync it; disk errors become `StoreError`, those of ``write`` pass through."""
    guarded = None
    try:
        with path.open("xb") as file:
            guarded = _GuardedWriter(file)
            write(guarded)
            guarded.sync()
    except Exception as exc:
        error = guarded.error if guarded else exc
        if not isinstance(error, OSError):
            raise
        # from the disk's error, which callers look for, also where the writer has wrapped it in one of its own
        raise store_error("write", path.parent, error) from error


def write_bytes(path: Path, data: bytes, staging: Path | None = None) -> None:
    """Write ``data`` with `write_atomic`."""
    write_atomic(path, lambda file: file.write(data), staging)


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` last; does nothing where the system cannot sync folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(descriptor)


def for_each(items: Sequence[S], act: Callable[[S], T]) -> list[T]:
    """Act on every item, on several at once where there are many: disks sync a number of files as quickly as one."""
    if len(items) < 2 * THREADS:
        return [act(item) for item in items]
    pool = ThreadPoolExecutor(THREADS, "headway-files")
    try:
        return list(pool.map(act, items))
    finally:
        pool.shutdown(cancel_futures=True)


def remove(path: Path, staging: Path | None = None) -> None:
    """Remove a file if it is there."""
    try:
        if staging and (path.is_symlink() or path.exists()):
            path = path.rename(staging / f".{path.name}.{secrets.token_hex(8)}.tmp")
        path.unlink(missing_ok=True)
    except OSError as exc:
        raise store_error("remove", path, exc) from exc


def sweep(folder: Path, prefix: str) -> None:
    """Remove the folders in ``folder`` whose names begin with ``prefix`` and that were left a day ago or longer.

    A process removes its own; what is still there after a day belonged to one that was killed. What cannot be removed
    stays.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE:
                shutil.rmtree(entry.path, ignore_errors=True)


def open_regular(path: str | Path) -> int:
    """Open a file for reading and return its descriptor; a pipe or a device is refused, never waited for."""
    return _open_sized(path)[0]


def _open_sized(path: str | Path) -> tuple[int, int]:
    """`open_regular`, and the length of the file: one question to the system instead of two."""
    descriptor = os.open(path, _READ)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise DamagedError(f"expected a regular file, got something else at {path}; move it away")
    return descriptor, info.st_size


def read_bytes(path: str | Path, limit: int | None = None) -> bytes | None:
    """Return a file's content, or None when there is no such file."""
    try:
        descriptor, size = _open_sized(path)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise store_error("read", path, exc) from exc
    try:
        if limit is not None and size > limit:
            raise DamagedError(f"{path}: expected at most {limit} bytes, got {size}")
        return _read_all(descriptor, size)
    except OSError as exc:
        raise store_error("read", path, exc) from exc
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, size: int) -> bytes:
    """Read up to ``size`` bytes, however few the system hands over at a time."""
    data = os.read(descriptor, size)
    while 0 < len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            break
        data += more
    return data
