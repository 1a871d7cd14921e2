"""Files that are either whole or not there: atomic writes, bounded reads, and errors with a way out."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headway.errors import DamagedError, StoreError
from headway.runs.jsonable import read_record

S = TypeVar("S")
T = TypeVar("T")

THREADS = 8
"""How many files are written at once where there are many."""
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
        return read_record(cls, data, what, DamagedError)


class SummingWriter:
    """Pass bytes on and keep their `FileSum`; it cannot seek, so the sum cannot be wrong.

    It remembers the disk's own error, whatever a library makes of it.
    """

    def __init__(self, target: Writer) -> None:
        self._target = target
        self._hash = hashlib.sha256()
        self._length = 0
        self.error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write ``data`` (any bytes-like object) and return its length in bytes."""
        view = memoryview(data).cast("B")
        try:
            self._target.write(view)
        except OSError as exc:
            self.error = exc
            raise
        self._hash.update(view)
        self._length += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        """Do nothing: the file is flushed and synced once it is complete."""

    def sum(self) -> FileSum:
        """Return the sum of what was written so far."""
        return FileSum(self._length, self._hash.hexdigest())


def store_error(action: str, path: str | Path, exc: OSError, *, is_disk: bool = True) -> StoreError:
    """Return a `StoreError` that says what could not be done, why, and the way out."""
    way_out = _WAYS_OUT.get(exc.errno or 0, exc.strerror or str(exc))
    kind = DamagedError if is_disk and action == "read" and exc.errno == errno.EIO else StoreError
    return kind(f"cannot {action} {path}: {way_out}")


@contextlib.contextmanager
def disk_errors(action: str, path: str | Path) -> Iterator[None]:
    """Raise errors of the disk as `StoreError`, see `store_error`."""
    try:
        yield
    except OSError as exc:
        raise store_error(action, path, exc) from exc


def write_atomic(path: Path, write: Write, staging: Path | None = None) -> FileSum:
    """Write a file so that every reader, at every instant, sees the old content or all of the new; return its sum.

    The bytes go to a temporary file, which is synced and renamed; then the folder is synced. Whatever goes wrong,
    ``path`` keeps what it held.
    """
    temporary = (staging or path.parent) / f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        file_sum = _write_synced(temporary, write)
        with disk_errors("write", path):
            temporary.replace(path)
            sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return file_sum


def _write_synced(path: Path, write: Write) -> FileSum:
    """Write a new file and sync it; disk errors become `StoreError`, those of ``write`` pass through."""
    writer, has_written = None, False
    try:
        with path.open("xb") as file:
            writer = SummingWriter(file)
            write(writer)
            has_written = True
            file.flush()
            os.fsync(file.fileno())
    except Exception as exc:
        error = exc if has_written or writer is None else writer.error
        if not isinstance(error, OSError):
            raise
        # from the disk's error, which callers look for, also where the library has wrapped it in one of its own
        raise store_error("write", path.parent, error) from error
    return writer.sum()


def write_bytes(path: Path, data: bytes, staging: Path | None = None) -> FileSum:
    """Write ``data`` with `write_atomic`."""
    return write_atomic(path, lambda file: file.write(data), staging)


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
    with disk_errors("remove", path):
        if staging and (path.is_symlink() or path.exists()):
            path = path.rename(staging / f".{path.name}.{secrets.token_hex(8)}.tmp")
        path.unlink(missing_ok=True)


def open_regular(path: str | Path) -> int:
    """Open a file for reading and return its descriptor; a pipe or a device is refused, never waited for."""
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedError(f"expected a regular file, got something else at {path}; move it away")
    return descriptor


def read_bytes(path: str | Path, limit: int | None = None) -> bytes | None:
    """Return a file's content, or None when there is no such file."""
    try:
        with os.fdopen(open_regular(path), "rb", buffering=0) as file:
            descriptor = file.fileno()
            size = os.fstat(descriptor).st_size
            if limit is not None and size > limit:
                raise DamagedError(f"{path}: expected at most {limit} bytes, got {size}")
            data = bytearray()
            while len(data) < size and (more := os.read(descriptor, size - len(data))):
                data += more
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise store_error("read", path, exc) from exc
    return bytes(data)
