import dataclasses
import hashlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.data.catalogue import Download
from headway.data.files import PlainLines, fetch, progress_display
from headway.errors import DataError, MissingExtraError
from tests.data.server import Answer, Server, serve

BODY = bytes(range(256)) * 4096  # four pieces


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serve() as server:
        yield server


@pytest.fixture
def server(running: Server, plain_http: None) -> Server:
    running.answers.clear()
    running.asked.clear()
    return running


@pytest.fixture
def wanted(server: Server) -> Download:
    checksum = "sha256:" + hashlib.sha256(BODY).hexdigest()
    return Download("f.gz", len(BODY), checksum, (f"{server.address}a/", f"{server.address}b/"))


def silent(name: str, done: int, total: int) -> None:
    """Show nothing."""


def test_a_file_is_fetched_and_nothing_else_is_left(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(BODY)
    path = fetch(wanted, tmp_path / "new" / "folder", silent)
    assert path == tmp_path / "new" / "folder" / "f.gz"
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]
    assert server.asked == ["/a/f.gz"]


def test_progress_goes_from_nothing_to_everything(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(BODY)
    calls: list[tuple[str, int, int]] = []
    fetch(wanted, tmp_path, lambda *call: calls.append(call))
    assert calls[0] == ("f.gz", 0, len(BODY))
    assert calls[-1] == ("f.gz", len(BODY), len(BODY))
    assert len(calls) > 3
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


@pytest.mark.parametrize(
    "bad",
    [
        Answer(status=404),
        Answer(status=503),
        Answer(BODY[:-1]),
        Answer(BODY[:1000], length=len(BODY)),
        Answer(BODY + b"x"),
        Answer(BODY + b"x", length=-1),
        Answer(b"x" + BODY[1:]),
        Answer(b""),
    ],
)
def test_the_second_mirror_is_tried(tmp_path: Path, server: Server, wanted: Download, bad: Answer) -> None:
    server.answers.update({"/a/f.gz": bad, "/b/f.gz": Answer(BODY)})
    assert fetch(wanted, tmp_path, silent).read_bytes() == BODY
    assert server.asked == ["/a/f.gz", "/b/f.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["f.gz"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Answer(status=404), "HTTP 404 Not Found"),
        (Answer(BODY[:-1]), "does not match the known hash"),
        (Answer(BODY[:1000], length=len(BODY)), "does not match the known hash|IncompleteRead"),
        (Answer(BODY + b"x"), f"expected {len(BODY)} bytes, got more"),
        (Answer(b"x" + BODY[1:]), "does not match the known hash"),
    ],
)
def test_nothing_is_left_when_no_mirror_delivers(
    tmp_path: Path, server: Server, wanted: Download, bad: Answer, words: str
) -> None:
    server.answers.update({"/a/f.gz": bad, "/b/f.gz": bad})
    with pytest.raises(DataError, match=words) as caught:
        fetch(wanted, tmp_path, silent)
    assert f"{server.address}a/f.gz: " in str(caught.value)
    assert f"{server.address}b/f.gz: " in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_there_survives_a_failure(tmp_path: Path, server: Server, wanted: Download) -> None:
    (tmp_path / "f.gz").write_bytes(b"before")
    server.answers["/a/f.gz"] = Answer(b"x" + BODY[1:])
    with pytest.raises(DataError):
        fetch(wanted, tmp_path, silent)
    assert (tmp_path / "f.gz").read_bytes() == b"before"


def test_an_interruption_leaves_nothing(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(BODY)

    def interrupt(name: str, done: int, total: int) -> None:
        if done:
            assert [path.name for path in tmp_path.iterdir()] != ["f.gz"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(wanted, tmp_path, interrupt)
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_no_folder_is_made(tmp_path: Path) -> None:
    closed = Download("f.gz", 10, "sha256:0", ("https://localhost:1/",))  # a port that nobody listens on
    with pytest.raises(DataError, match="got no complete copy"):
        fetch(closed, tmp_path / "new", silent)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(BODY)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file/folder/f\.gz: expected to write it, got .*; choose a folder"):
        fetch(wanted, tmp_path / "file" / "folder", silent)


def test_a_full_disk_is_no_fault_of_the_mirror(
    tmp_path: Path, server: Server, wanted: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    server.answers["/a/f.gz"] = Answer(BODY)
    monkeypatch.setattr("shutil.move", full)
    with pytest.raises(DataError, match="No space left on device; choose a folder with room"):
        fetch(wanted, tmp_path, silent)
    assert server.asked == ["/a/f.gz"]
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_be_read_by_others(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(BODY)
    assert fetch(wanted, tmp_path, silent).stat().st_mode & 0o777 == 0o644


def test_without_pooch_the_error_says_how_to_get_it(
    tmp_path: Path, wanted: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'headway-torch\[experiments\]'"):
        fetch(wanted, tmp_path, silent)


@pytest.mark.parametrize("mirror", ["http://localhost/", "file:///etc/", "ftp://localhost/", ""])
def test_only_https_is_opened(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(DataError, match=f"got {mirror}f.gz"):
        fetch(Download("f.gz", 10, "sha256:0", (mirror,)), tmp_path, silent)


def test_a_redirection_must_lead_to_https(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(status=302, location="ftp://localhost/f.gz")
    server.answers["/b/f.gz"] = Answer(status=302, location="/c/f.gz")  # stays with the scheme of the server
    server.answers["/c/f.gz"] = Answer(BODY)
    assert fetch(wanted, tmp_path, silent).read_bytes() == BODY
    assert server.asked == ["/a/f.gz", "/b/f.gz", "/c/f.gz"]
    with pytest.raises(DataError, match="expected an https address, got ftp://localhost/f"):
        fetch(dataclasses.replace(wanted, mirrors=wanted.mirrors[:1]), tmp_path / "new", silent)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_at_each_quarter() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    for done in range(0, 2_000_001, 100_000):
        lines("f.gz", done, 2_000_000)
    assert stream.getvalue().splitlines() == [
        f"downloading f.gz: {percent}% of 2.0 MB" for percent in (0, 25, 50, 75, 100)
    ]


def test_each_file_has_its_own_lines() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    for name in ("a", "b"):
        lines(name, 0, 10)
        lines(name, 10, 10)
    assert stream.getvalue().count("\n") == 4


def test_what_is_no_terminal_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display() as show:
        show("f.gz", 0, 1_000_000)
    assert capsys.readouterr().err == "downloading f.gz: 0% of 1.0 MB\n"


def test_a_terminal_without_rich_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    stream = Terminal()
    with progress_display(stream) as show:
        show("f.gz", 0, 1_000_000)
    assert stream.getvalue() == "downloading f.gz: 0% of 1.0 MB\n"


def test_a_terminal_with_rich_gets_a_bar() -> None:
    pytest.importorskip("rich", reason="shows the bar of rich")
    stream = Terminal()
    with progress_display(stream) as show:
        for done in (0, 500_000, 1_000_000):
            show("f.gz", done, 1_000_000)
    assert "f.gz" in stream.getvalue()
    assert "1.0/1.0 MB" in stream.getvalue()
