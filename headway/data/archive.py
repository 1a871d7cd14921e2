"""Chosen members of a tar archive, read in one pass and held in memory.

Nothing is written to disk, so no name in an archive can escape a folder. This is a reader of its own because
archives come from strangers: the standard library's follows size fields of extended headers wherever they
lead (unbounded memory, endless loops), and none of that is needed for plain short names.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from headway.data.files import bad_file, open_maybe_gzip

BLOCK = 512
CHUNK = 1 << 20
REGULAR = (b"0", b"\0")


def iter_members(path: Path, names: Collection[str], limit: int, total: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each regular file among `names`, in the archive's order.

    Args:
        path: a tar archive, gzipped or not.
        names: full member names; the others are passed over.
        limit: the most bytes that one member may have.
        total: the most bytes that the whole archive may unpack to.

    Raises:
        DataError: not an archive, truncated, too large, or a member that occurs twice.
    """
    seen: set[str] = set()
    with open_maybe_gzip(path) as stream:
        reader = _Reader(stream, path, total)
        while (header := reader.header()) is not None:
            name, size, kind = header
            if name not in names or kind not in REGULAR:
                reader.skip(_padded(size))
                continue
            if name in seen:
                raise bad_file(path, f"{name} once", "twice")
            if size > limit:
                raise bad_file(path, f"at most {limit} bytes for {name}", str(size))
            seen.add(name)
            yield name, reader.exactly(_padded(size))[:size]
        reader.rest()


class _Reader:
    """Reads forward through a tar stream and never past `total` bytes."""

    def __init__(self, stream: BinaryIO, path: Path, total: int) -> None:
        self._stream, self._path, self._left = stream, path, total

    def header(self) -> tuple[str, int, bytes] | None:
        """Read the next header: name, size and type; None at the end of the archive."""
        block = self.exactly(BLOCK)
        if not any(block):
            return None
        if _octal(block[148:156]) != sum(block[:148]) + 8 * ord(" ") + sum(block[156:]):
            raise bad_file(self._path, "a tar archive", "a header whose checksum is wrong")
        size = _octal(block[124:136])
        if size is None:
            raise bad_file(self._path, "a member's size in octal digits", repr(block[124:136]))
        name = block[:100].split(b"\0", 1)[0].decode("latin-1")
        return name.removeprefix("./"), size, block[156:157]

    def exactly(self, size: int) -> bytes:
        """Read `size` bytes, or raise."""
        data = self._read(size)
        if len(data) != size:
            raise bad_file(self._path, "a complete tar archive", "one that ends in the middle")
        return data

    def skip(self, size: int) -> None:
        """Read `size` bytes and drop them."""
        while size > 0:
            size -= len(self.exactly(min(size, CHUNK)))

    def rest(self) -> None:
        """Read to the end, so that gzip checks the archive's own checksum."""
        while self._read(CHUNK):
            pass

    def _read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise bad_file(self._path, "an archive of the official size", "one that unpacks to far more")
        return data


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0").decode("latin-1")
    return int(digits, 8) if digits and all(digit in string.octdigits for digit in digits) else None
