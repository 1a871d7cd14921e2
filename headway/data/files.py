"""Reading files of unknown origin: never more than was asked for, and errors that name the file."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from headway.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"


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
