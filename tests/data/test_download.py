import email.message
import hashlib
import http.client
import io
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.data.catalogue import Download
from headway.data.download import HttpsRedirects, MirrorError, fetch, open_https
from headway.errors import DataError
from tests.data.server import Answer, Server, open_http, serve

BODY = bytes(range(256)) * 4096  # four pieces


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serve() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
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
    path = fetch(wanted, tmp_path / "new" / "folder", silent, open_http)
    assert path == tmp_path / "new" / "folder" / "f.gz"
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]
    assert server.asked == ["/a/f.gz"]


def test_progress_goes_from_nothing_to_everything(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(BODY)
    calls: list[tuple[str, int, int]] = []
    fetch(wanted, tmp_path, lambda *call: calls.append(call), open_http)
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
    assert fetch(wanted, tmp_path, silent, open_http).read_bytes() == BODY
    assert server.asked == ["/a/f.gz", "/b/f.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["f.gz"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Answer(status=404), "HTTP 404 Not Found"),
        (Answer(BODY[:-1]), f"expected {len(BODY)} bytes, got {len(BODY) - 1}"),
        (Answer(BODY[:1000], length=len(BODY)), r"expected \d+ bytes, got 1000|IncompleteRead"),
        (Answer(BODY + b"x"), f"expected {len(BODY)} bytes, got more"),
        (Answer(b"x" + BODY[1:]), "expected the checksum sha256:.*, got sha256:"),
    ],
)
def test_nothing_is_left_when_no_mirror_delivers(
    tmp_path: Path, server: Server, wanted: Download, bad: Answer, words: str
) -> None:
    server.answers.update({"/a/f.gz": bad, "/b/f.gz": bad})
    with pytest.raises(DataError, match=words) as caught:
        fetch(wanted, tmp_path, silent, open_http)
    assert f"{server.address}a/f.gz: " in str(caught.value)
    assert f"{server.address}b/f.gz: " in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_there_survives_a_failure(tmp_path: Path, server: Server, wanted: Download) -> None:
    (tmp_path / "f.gz").write_bytes(b"before")
    server.answers["/a/f.gz"] = Answer(b"x" + BODY[1:])
    with pytest.raises(DataError):
        fetch(wanted, tmp_path, silent, open_http)
    assert (tmp_path / "f.gz").read_bytes() == b"before"


def test_an_interruption_leaves_nothing(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(BODY)

    def interrupt(name: str, done: int, total: int) -> None:
        if done:
            assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(wanted, tmp_path, interrupt, open_http)
    assert list(tmp_path.iterdir()) == []


def failing(error: Exception) -> Callable[[str], http.client.HTTPResponse]:
    def open_url(url: str) -> http.client.HTTPResponse:
        raise error

    return open_url


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("no route to host"),
        TimeoutError("timed out"),
        ConnectionResetError("reset"),
        http.client.BadStatusLine("nonsense"),
    ],
)
def test_without_a_network_no_folder_is_made(tmp_path: Path, wanted: Download, error: Exception) -> None:
    with pytest.raises(DataError, match="got no complete copy"):
        fetch(wanted, tmp_path / "new", silent, failing(error))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(BODY)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file/folder/f\.gz: expected to write it, got .*; choose a folder"):
        fetch(wanted, tmp_path / "file" / "folder", silent, open_http)


def test_a_full_disk_is_no_fault_of_the_mirror(
    tmp_path: Path, server: Server, wanted: Download, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    server.answers["/a/f.gz"] = Answer(BODY)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left on device; choose a folder with room"):
        fetch(wanted, tmp_path, silent, open_http)
    assert server.asked == ["/a/f.gz"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["http://localhost/f", "file:///etc/passwd", "ftp://localhost/f", "f"])
def test_only_https_is_opened(url: str) -> None:
    with pytest.raises(MirrorError, match="expected an https address, got "):
        open_https(url)


def test_the_default_is_https_only(tmp_path: Path, server: Server, wanted: Download) -> None:
    server.answers["/a/f.gz"] = Answer(BODY)
    with pytest.raises(DataError, match="expected an https address"):
        fetch(wanted, tmp_path, silent)
    assert server.asked == []


def redirected(target: str) -> urllib.request.Request | None:
    request = urllib.request.Request("https://localhost/f")
    return HttpsRedirects().redirect_request(request, io.BytesIO(), 302, "Found", email.message.Message(), target)


def test_a_redirection_must_lead_to_https() -> None:
    request = redirected("https://localhost/g")
    assert request is not None
    assert request.full_url == "https://localhost/g"
    for target in ("http://localhost/g", "ftp://localhost/g"):
        with pytest.raises(MirrorError, match="expected an https address"):
            redirected(target)


def test_a_redirection_is_caught_on_the_way(server: Server) -> None:
    server.answers["/a/f.gz"] = Answer(status=302, location=f"{server.address}b/f.gz")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), HttpsRedirects)
    with pytest.raises(MirrorError, match="expected an https address"):
        opener.open(f"{server.address}a/f.gz", timeout=10)
    assert server.asked == ["/a/f.gz"]
