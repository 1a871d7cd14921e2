from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headway.errors import StoreError
from headway.runs import Writer
from headway.runs.files import (
    FileSum,
    SummingWriter,
    read_bytes,
    remove,
    sync_folder,
    write_atomic,
    write_bytes,
)
from tests.runs.helpers import failing, names


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"one")
    write_bytes(path, b"two")
    assert read_bytes(path) == b"two"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_was_there_stays_whole_when_a_write_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(code)) if call == "fsync" else patch.setattr(Path, "replace", failing(code))
        with pytest.raises(StoreError, match="cannot write"):
            write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_full_disk_is_named_even_if_a_library_hides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(file: Writer) -> None:
        try:
            file.write(memoryview(b"x"))
        except OSError:
            raise RuntimeError("stream failed") from None

    class FullDisk:
        def __init__(self, file: object) -> None:
            self.error: OSError | None = None

        def write(self, data: object) -> int:
            self.error = OSError(errno.ENOSPC, "full")
            raise self.error

    monkeypatch.setattr("headway.runs.files.SummingWriter", FullDisk)
    with pytest.raises(StoreError, match="the disk is full; free some space"):
        write_atomic(tmp_path / "file", write)
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [ValueError("mine"), FileNotFoundError("mine"), KeyboardInterrupt()])
def test_a_callbacks_own_error_passes_through(tmp_path: Path, error: BaseException) -> None:
    def write(file: Writer) -> None:
        file.write(b"half")
        raise error

    with pytest.raises(type(error)) as caught:
        write_atomic(tmp_path / "file", write)
    assert caught.value is error
    assert names(tmp_path) == []


def test_a_missing_folder_or_one_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot write"):
        write_bytes(tmp_path / "none" / "file", b"")
    (tmp_path / "plain").write_text("")
    with pytest.raises(StoreError, match="expected a folder, got a file"):
        write_bytes(tmp_path / "plain" / "file", b"")


def test_sums_follow_any_bytes_like_object() -> None:
    class Sink:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: bytes) -> int:
            self.data += data
            return len(data)

    sink = Sink()
    writer = SummingWriter(sink)
    for part in (b"ab", bytearray(b"cd"), memoryview(b"efgh")[::1].cast("I")):
        writer.write(part)
    writer.flush()
    assert sink.data == b"abcdefgh"
    assert writer.sum() == FileSum.of(b"abcdefgh")
    assert FileSum.of(b"").sha256.startswith("e3b0c44298fc1c14")


@pytest.mark.parametrize("data", [None, 3, {}, {"length": -1, "sha256": ""}, {"length": 1, "sha256": 2}])
def test_a_sum_that_is_none_is_refused(data: object) -> None:
    with pytest.raises(StoreError, match=r"^file: expected .*(length|sha256)"):
        FileSum.from_json(data, "file")


def test_reading_what_is_missing_too_long_or_no_file(tmp_path: Path) -> None:
    assert read_bytes(tmp_path / "none") is None
    (tmp_path / "long").write_bytes(b"12345")
    assert read_bytes(tmp_path / "long", 5) == b"12345"
    with pytest.raises(StoreError, match="expected at most 4 bytes, got 5"):
        read_bytes(tmp_path / "long", 4)
    with pytest.raises(StoreError, match="expected a regular file"):
        read_bytes(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    assert read_bytes(tmp_path / "empty") == b""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="expected a regular file"):
        read_bytes(tmp_path / "pipe")


def test_short_reads_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"123456789")
    read = os.read
    monkeypatch.setattr(os, "read", lambda fd, size: read(fd, min(size, 2)))
    assert read_bytes(tmp_path / "file") == b"123456789"


def test_a_read_error_is_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"1")
    monkeypatch.setattr(os, "read", failing(errno.EIO))
    with pytest.raises(StoreError, match="cannot read"):
        read_bytes(tmp_path / "file")


def test_removing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remove(tmp_path / "file")
    remove(tmp_path / "file")
    with pytest.raises(StoreError, match="cannot remove"):
        remove(tmp_path)


def test_folders_that_cannot_be_synced_are_let_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        sync_folder(tmp_path)
