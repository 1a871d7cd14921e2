import gzip
import hashlib
import os
import tracemalloc
from pathlib import Path

import pytest

from headway.data.files import is_file, matches, read_bounded
from headway.errors import DataError

CONTENT = bytes(range(256)) * 8


def test_a_file_is_read_packed_or_not_whatever_its_name(tmp_path: Path) -> None:
    for name, data in {"a": CONTENT, "a.gz": gzip.compress(CONTENT), "b": gzip.compress(CONTENT)}.items():
        (tmp_path / name).write_bytes(data)
        assert read_bounded(tmp_path / name, len(CONTENT)) == CONTENT
    (tmp_path / "plain.gz").write_bytes(CONTENT)
    assert read_bounded(tmp_path / "plain.gz", len(CONTENT)) == CONTENT


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_longer_than_allowed_is_refused(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "f"
    path.write_bytes(gzip.compress(CONTENT) if packed else CONTENT)
    with pytest.raises(DataError, match=r"f: expected at most 2047 bytes, got more"):
        read_bounded(path, len(CONTENT) - 1)


def test_a_gzip_bomb_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(200_000_000), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="at most 1000000 bytes"):
            read_bounded(path, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_truncated_gzip_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(CONTENT)[:-cut])
    with pytest.raises(DataError, match=r"cut.gz: expected a readable, complete file, got EOFError"):
        read_bounded(path, len(CONTENT))


@pytest.mark.parametrize("position", [15, -8, -4])
def test_a_corrupt_gzip_is_refused(tmp_path: Path, position: int) -> None:
    path = tmp_path / "bad.gz"
    data = bytearray(gzip.compress(CONTENT))
    data[position] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"bad\.gz: expected "):
        read_bounded(path, len(CONTENT))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert not is_file(tmp_path)
    with pytest.raises(DataError, match="expected a readable"):
        read_bounded(tmp_path, 10)


def test_a_path_that_cannot_be_is_no_file() -> None:
    assert not is_file(Path("a\0b"))
    assert not is_file(Path("x" * 5000))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(CONTENT)
    path.chmod(0)
    with pytest.raises(DataError, match="PermissionError"):
        read_bounded(path, len(CONTENT))


def test_checksums_name_their_algorithm() -> None:
    assert matches(CONTENT, "sha256:" + hashlib.sha256(CONTENT).hexdigest())
    assert matches(CONTENT, "md5:" + hashlib.md5(CONTENT, usedforsecurity=False).hexdigest())
    assert not matches(CONTENT + b"x", "sha256:" + hashlib.sha256(CONTENT).hexdigest())
