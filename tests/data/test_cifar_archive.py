import gzip
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from headway.data.cifar import iter_members
from headway.errors import DataError
from tests.data.formats import mutated, tar_bytes

MEMBERS = {"folder/a": b"first" * 200, "folder/other": b"x" * 3000, "folder/b": b"", "folder/c": b"z" * 512}
WANTED = ["folder/a", "folder/b", "folder/c"]


def read(path: Path, names: list[str] = WANTED, limit: int = 5000, total: int = 50_000) -> dict[str, bytes]:
    return dict(iter_members(path, names, limit, total))


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def header(name: str, size: bytes = b"00000000000", kind: bytes = b"0") -> bytes:
    """A header with a valid checksum and any size field."""
    block = bytearray(512)
    block[: len(name)] = name.encode()
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_wanted_members_are_read(tmp_path: Path, kind: int) -> None:
    path = write(tmp_path / "a.tar.gz", tar_bytes(MEMBERS, kind))
    assert read(path) == {name: MEMBERS[name] for name in WANTED}


def test_an_archive_that_is_not_packed_is_read_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", gzip.decompress(tar_bytes({"./folder/a": b"1"})))
    assert read(path) == {"folder/a": b"1"}


def test_names_that_lead_elsewhere_are_passed_over_and_nothing_is_written(tmp_path: Path) -> None:
    members = {
        "../evil": b"1",
        "/tmp/evil": b"2",
        "folder/../../evil": b"3",
        "folder/a": b"4",
        "x" * 300: b"5",
    }
    (tmp_path / "in").mkdir()
    path = write(tmp_path / "in" / "a.tar.gz", tar_bytes(members, tarfile.GNU_FORMAT))
    before = sorted(tmp_path.rglob("*"))
    assert read(path) == {"folder/a": b"4"}
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_passed_over(tmp_path: Path, kind: bytes) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("folder/a")
        entry.type = kind
        entry.linkname = "/etc/passwd"
        archive.addfile(entry)
    assert read(write(tmp_path / "a.tar", buffer.getvalue())) == {}


@pytest.mark.parametrize("length", [0, 100, 512, 600, 1024, 3500])
def test_a_truncated_archive_is_refused(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "cut.tar", gzip.decompress(tar_bytes(MEMBERS))[:length])
    with pytest.raises(DataError, match=r"cut\.tar: expected a complete tar archive, got "):
        read(path)


def test_an_archive_cut_within_a_header_gives_what_came_before(tmp_path: Path) -> None:
    assert list(read(write(tmp_path / "cut.tar", gzip.decompress(tar_bytes(MEMBERS))[:2000]))) == ["folder/a"]


def test_a_truncated_gzip_is_refused_even_behind_the_last_member(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.tar.gz", tar_bytes(MEMBERS)[:-4])
    with pytest.raises(DataError, match=r"cut\.tar\.gz: .*got EOFError"):
        read(path)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.tar: expected a complete tar archive"):
        read(write(tmp_path / "a.tar", b"<html>" + b"404" * 500))


@pytest.mark.parametrize("size", [b"-0000000001", b"\xff" * 12, b"0000000009x"])
def test_a_size_that_is_no_number_of_bytes_is_refused(tmp_path: Path, size: bytes) -> None:
    with pytest.raises(DataError, match="expected"):
        read(write(tmp_path / "a.tar", header("folder/a", size) + bytes(2048)))


def test_a_member_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="got 1000"):
        read(write(tmp_path / "a.tar.gz", tar_bytes(MEMBERS)), limit=999)


@pytest.mark.parametrize("kind", [b"0", b"x", b"g", b"L"])
def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path: Path, kind: bytes) -> None:
    bomb = header("other", b"77777777777", kind) + bytes(20_000_000)
    with pytest.raises(DataError, match="unpacks to far more"):
        read(write(tmp_path / "bomb.tar.gz", gzip.compress(bomb)))


def test_zeros_behind_the_end_are_bounded_too(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unpacks to far more"):
        read(write(tmp_path / "bomb.tar.gz", gzip.compress(bytes(20_000_000))))


def test_a_member_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    twice = (header("folder/b") * 2) + bytes(1024)
    with pytest.raises(DataError, match="expected folder/b once, got twice"):
        read(write(tmp_path / "a.tar", twice))


@pytest.mark.slow
@given(mutated(gzip.decompress(tar_bytes(MEMBERS))))
@settings(max_examples=200)
def test_damaged_archives_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.tar"
    path.write_bytes(data)
    try:
        found = read(path)
    except DataError:
        return
    assert set(found) <= set(WANTED)
