"""The files of a dataset: where they may be, and reading them without trusting them.

Nothing is read beyond a given size, and every error names its file.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from headway.data.catalogue import Spec
from headway.errors import DataError

VARIABLE = "HEADWAY_DATA"
PLATFORMS = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": ("", "~/Library/Caches")}
GZIP_MAGIC = b"\x1f\x8b"
DataDir = str | os.PathLike[str] | None


@dataclass(frozen=True)
class SearchPath:
    """A folder to look in, and how it came to be on the list."""

    folder: Path
    origin: str


@dataclass(frozen=True)
class Found:
    """A complete copy of a dataset.

    Attributes:
        source: the folder or archive that holds it.
        files: the path of each of the contents, empty if source is an archive.
    """

    source: Path
    files: Mapping[str, Path]


def cache_dir() -> Path:
    """Give the user's cache directory for headway, by the custom of the platform; nothing is created."""
    variable, custom = PLATFORMS.get(sys.platform, ("XDG_CACHE_HOME", "~/.cache"))
    given = Path(os.environ.get(variable, ""))
    # The XDG specification says to ignore a path that is not absolute.
    return (given if given.is_absolute() else _expanded(custom)) / "headway"


def _expanded(path: str | os.PathLike[str]) -> Path:
    """Replace a leading ~ by the home directory, if there is one."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def roots(data_dir: DataDir) -> list[SearchPath]:
    """List the data directories in the order in which they are searched: argument, environment, cache."""
    paths = []
    if data_dir is not None:
        paths.append(SearchPath(_expanded(data_dir), "data_dir"))
    if os.environ.get(VARIABLE):
        paths.append(SearchPath(_expanded(os.environ[VARIABLE]), f"${VARIABLE}"))
    paths.append(SearchPath(cache_dir(), "cache"))
    return paths


def search_paths(spec: Spec, data_dir: DataDir) -> list[SearchPath]:
    """List every folder that may hold the dataset, in the order in which they are searched."""
    within = [SearchPath(root.folder / folder, root.origin) for root in roots(data_dir) for folder in spec.folders]
    return within + [SearchPath(Path(folder), "system package") for folder in spec.system_folders]


def present(spec: Spec, folder: Path) -> dict[str, Path]:
    """Map each of the dataset's contents that a folder holds, gzipped or not, to its path."""
    files = {}
    for name in spec.contents:
        for path in (folder / f"{name}.gz", folder / name):
            if is_file(path):
                files[name] = path
                break
    return files


def find(spec: Spec, paths: list[SearchPath]) -> Found | None:
    """Give the first complete copy on the paths. A folder with only some of the files is passed over."""
    for path in paths:
        files = present(spec, path.folder)
        if len(files) == len(spec.contents):
            return Found(path.folder, files)
        if spec.archive and is_file(path.folder / spec.archive):
            return Found(path.folder / spec.archive, {})
    return None


def describe(spec: Spec, path: SearchPath) -> str:
    """Say in one line what was found on a path that has no complete copy."""
    missing = [name for name in spec.contents if name not in present(spec, path.folder)]
    if len(missing) == len(spec.contents):
        state = "none of the files"
    else:
        state = f"only some of the files, {', '.join(missing)} missing"
    return f"{path.folder} ({path.origin}): {state}"


def bad_file(where: Path | str, expected: str, got: str) -> DataError:
    """Make the error for a file that is there but cannot be used."""
    return DataError(
        f"{where}: expected {expected}, got {got}; replace it with the official file, "
        "or remove it and load again to download it"
    )


def is_file(path: Path) -> bool:
    """Tell whether there is a file; one that may not be looked at counts as absent."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


@contextmanager
def reading(where: Path | str) -> Iterator[None]:
    """Turn what the operating system and gzip raise while reading into a DataError that names the file."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise bad_file(where, "a readable, complete file", f"{type(error).__name__}: {error}") from error


@contextmanager
def open_maybe_gzip(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, through gzip if its first bytes (not its name) say so."""
    with reading(path), path.open("rb") as file:
        packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        file.seek(0)
        if not packed:
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            yield cast(BinaryIO, unpacked)


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a whole file, unpacked if it is gzipped, of at most `limit` bytes.

    A file that would unpack to more is refused after limit + 1 bytes, so a gzip bomb costs no memory.
    """
    with open_maybe_gzip(path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise bad_file(path, f"at most {limit} bytes", "more")
    return data


def matches(data: bytes, checksum: str) -> bool:
    """Tell whether data has a checksum, written as "md5:..." or "sha256:..."."""
    algorithm, _, expected = checksum.partition(":")
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() == expected
