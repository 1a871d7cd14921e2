"""Objects behind a URL, through fsspec: whole objects are written and read, and errors say what to do."""

from __future__ import annotations

import contextlib
import copy
import errno
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from headway.errors import UsageError, import_extra
from headway.runs.files import store_error

T = TypeVar("T")

DELAYS = (1.0, 2.0, 4.0, 8.0)
"""Seconds to wait before something is tried again; a network is away for a moment now and then."""
_TAKEN = {errno.EEXIST, errno.EBUSY, errno.EINVAL}
"""How file systems answer when an object that was to be created is there already."""


class Bucket:
    """The objects below a URL, by names such as "a/b"."""

    def __init__(self, url: str, sleep: Callable[[float], object] = time.sleep) -> None:
        self.url = url.rstrip("/")
        self._sleep = sleep
        self._fs, self._root = _open(self.url)

    def folder(self, name: str) -> Bucket:
        """The objects in a folder, by names within it."""
        objects = copy.copy(self)
        objects.url, objects._root = f"{self.url}/{name}", self._path(name)
        return objects

    def put(self, name: str, data: bytes) -> None:
        """Write an object, in the place of one that may be there."""
        self._try("write", name, lambda: self._below(name, lambda path: self._fs.pipe_file(path, data)))

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Write many objects, at once where the file system can."""
        paths = {self._path(name): data for name, data in objects.items()}
        if paths and self._fs.async_impl:
            self._try("write", "", lambda: self._fs.pipe(paths))
            return
        for name, data in objects.items():
            self.put(name, data)

    def put_file(self, name: str, file: Path) -> None:
        """Write a file's content as an object."""
        self._try("write", name, lambda: self._below(name, lambda path: self._fs.put_file(str(file), path)))

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one of this name; tell whether it was written.

        Where the store can create exclusively (S3, Google Cloud Storage, memory), only one of several writers succeeds.
        """

        def write() -> None:
            try:
                self._below(name, lambda path: self._fs.pipe_file(path, data, mode="create"))
            except OSError as error:
                if not isinstance(error, FileExistsError) and error.errno not in _TAKEN:
                    raise

        self._try("write", name, write)
        # What is there may be ours although the store says "taken", if the reply to a first try was lost; and somebody
        # else's although it does not, where the condition is ignored.
        return self.get(name) == data

    def get(self, name: str) -> bytes | None:
        """Return an object, or None when there is none."""

        def read() -> bytes | None:
            with contextlib.suppress(FileNotFoundError):
                data: bytes = self._fs.cat_file(self._path(name))
                return data
            return None

        return self._try("read", name, read)

    def get_all(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return many objects, at once where the file system can; those that are not there are left out."""
        if not names:
            return {}
        left = {self._path(name): name for name in names}
        result: dict[str, bytes] = {}

        def read() -> None:
            found = self._fs.cat(list(left), on_error="return")
            if isinstance(found, bytes):  # a single path
                found = {next(iter(left)): found}
            result.update({left.pop(path): data for path, data in found.items() if isinstance(data, bytes)})
            for data in found.values():
                if not isinstance(data, (bytes, FileNotFoundError)):
                    raise data  # the next try reads only what is left

        self._try("read", "", read)
        return result

    def get_file(self, name: str, file: Path) -> bool:
        """Copy an object to a file; False when there is none."""

        def fetch() -> bool:
            with contextlib.suppress(FileNotFoundError):
                self._fs.get_file(self._path(name), str(file))
                return True
            return False

        return self._try("read", name, fetch)

    def names(self) -> dict[str, int]:
        """List the objects, with their lengths."""

        def list_all() -> dict[str, int]:
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._root, detail=True)
            except FileNotFoundError:
                return {}
            return {path[len(self._root) + 1 :]: int(info.get("size") or 0) for path, info in found.items()}

        return self._try("read", "", list_all)

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there are no trouble."""

        def remove_one(path: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(path)

        for name in names:
            self._try("remove", name, partial(remove_one, self._path(name)))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _below(self, name: str, act: Callable[[str], object]) -> None:
        """Act on an object's path; where there are real folders, make the one that is missing."""
        path = self._path(name)
        try:
            act(path)
        except FileNotFoundError:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            act(path)

    def _try(self, action: str, name: str, act: Callable[[], T]) -> T:
        """Act, and try again a few times if that fails; what is forbidden stays so, and is said at once."""
        waits = iter(DELAYS)
        while True:
            try:
                return act()
            except Exception as exc:  # client libraries raise errors of many kinds
                wait = next(waits, None)
                if wait is None or isinstance(exc, PermissionError):
                    # an error of the operating system, by which the runner knows that it concerns every run
                    error = exc if isinstance(exc, OSError) else OSError(errno.EIO, f"{type(exc).__name__}: {exc}")
                    place = f"{self.url}/{name}".rstrip("/")
                    raise store_error(action, place, error, is_disk=False) from error
            self._sleep(wait)


def _open(url: str) -> tuple[Any, str]:
    core = import_extra("fsspec.core", "remote")
    try:
        fs, root = core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:  # fsspec says which package it wants
        raise UsageError(f"cannot open {url}: {error}") from error
    except ValueError as error:
        raise UsageError(
            f"expected a URL that fsspec can open, such as s3://bucket/runs, got {url} ({error})"
        ) from error
    return fs, root.rstrip("/")
