"""Objects behind a URL, through fsspec: whole objects are written and read, and errors say what to do."""

from __future__ import annotations

import contextlib
import errno
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headway.errors import MissingExtraError, StoreError, UsageError
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
            try:
                data: bytes = self._fs.cat_file(self._path(name))
            except FileNotFoundError:
                return None
            return data

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
            failed: list[tuple[str, BaseException]] = []
            for path, data in found.items():
                if isinstance(data, bytes):
                    result[left.pop(path)] = data
                elif not isinstance(data, FileNotFoundError):
                    failed.append((left[path], data))
            for name, error in failed[:1]:  # the next try reads only what is left
                raise self._error("read", name, error) from _as_oserror(error)

        self._try("read", "", read)
        return result

    def get_file(self, name: str, file: Path) -> bool:
        """Copy an object to a file; False when there is none."""

        def copy() -> bool:
            try:
                self._fs.get_file(self._path(name), str(file))
            except FileNotFoundError:
                return False
            return True

        return self._try("read", name, copy)

    def names(self, folder: str = "") -> dict[str, int]:
        """List the objects in a folder and below, with their lengths; the names begin with the folder's."""
        top = self._path(folder) if folder else self._root
        start = len(self._root) + 1

        def list_all() -> dict[str, int]:
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(top, detail=True)
            except FileNotFoundError:
                return {}
            return {path[start:]: int(info.get("size") or 0) for path, info in found.items()}

        return self._try("read", folder, list_all)

    def names_in(self, folder: str) -> dict[str, int]:
        """The same, by names within the folder."""
        return {name[len(folder) + 1 :]: length for name, length in self.names(folder).items()}

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there are no trouble."""
        for name in names:
            with self._errors("remove", name), contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

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
        for delay in DELAYS:
            try:
                with self._errors(action, name):
                    return act()
            except StoreError as error:
                if isinstance(error.__cause__, PermissionError):
                    raise
                self._sleep(delay)
        with self._errors(action, name):
            return act()

    @contextlib.contextmanager
    def _errors(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # client libraries raise errors of many kinds
            raise self._error(action, name, error) from _as_oserror(error)

    def _error(self, action: str, name: str, error: BaseException) -> StoreError:
        return store_error(action, f"{self.url}/{name}".rstrip("/"), _as_oserror(error), is_disk=False)


def _as_oserror(error: BaseException) -> OSError:
    """An error as one of the operating system, by which the runner knows that it concerns every run."""
    if isinstance(error, OSError):
        return error
    return OSError(errno.EIO, f"{type(error).__name__}: {error}")


def _open(url: str) -> tuple[Any, str]:
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise MissingExtraError("fsspec", "remote") from error
    try:
        fs, root = core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:  # fsspec says which package it wants
        raise UsageError(f"cannot open {url}: {error}") from error
    except ValueError as error:
        raise UsageError(
            f"expected a URL that fsspec can open, such as s3://bucket/runs, got {url} ({error})"
        ) from error
    return fs, root.rstrip("/")
