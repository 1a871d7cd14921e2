"""Fetching published files: https only, mirror after mirror, verified before they get their name."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, BinaryIO

from headway.data.catalogue import Download
from headway.data.progress import Progress
from headway.errors import DataError

TIMEOUT = 30.0  # seconds for a connection, and for each read
CHUNK = 1 << 18


class MirrorError(Exception):
    """One mirror did not deliver; the next is tried."""


class HttpsRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only if it leads to https."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str,
        headers: http.client.HTTPMessage, newurl: str,
    ) -> urllib.request.Request | None:  # fmt: skip
        """Refuse to be sent to anything but https."""
        require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def require_https(url: str) -> None:
    """Raise MirrorError unless the address begins with https."""
    if not url.lower().startswith("https://"):
        raise MirrorError(f"expected an https address, got {url}")


def open_https(url: str) -> http.client.HTTPResponse:
    """Open an https address for reading."""
    require_https(url)
    request = urllib.request.Request(url, headers={"User-Agent": "headway"})
    opener = urllib.request.build_opener(HttpsRedirects)
    response: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT)
    return response


def fetch(
    download: Download,
    folder: Path,
    progress: Progress,
    open_url: Callable[[str], http.client.HTTPResponse] = open_https,
) -> Path:
    """Fetch a file from the first mirror that delivers it whole.

    The file appears under its name only once its length and checksum are right; nothing else stays behind.

    Args:
        download: what to fetch and from where.
        folder: where to put it; made if need be.
        progress: called at the start and with each piece that arrives.
        open_url: opens an address.

    Returns:
        The path of the file.

    Raises:
        DataError: no mirror delivered (the message says why, for each), or the folder cannot be written.
    """
    target = folder / download.name
    failures = []
    for mirror in download.mirrors:
        try:
            with closing(_pieces(mirror + download.name, open_url)) as pieces:
                progress(download.name, 0, download.size)
                first = next(pieces, b"")  # before anything is made on disk
                with _atomic_file(target) as file:
                    _receive(chain([first], pieces), download, file, progress)
            return target
        except MirrorError as failure:
            failures.append(f"{mirror}{download.name}: {failure}")
    listed = "\n  ".join(failures)
    raise DataError(f"expected to download {download.name}, got no complete copy:\n  {listed}")


@contextmanager
def _atomic_file(target: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the target's name if the context ends well, and vanishes otherwise."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(target.parent)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{target}: expected to write it, got {type(error).__name__}: {error}; choose a folder with "
            "room that can be written, by data_dir (--data-dir) or by $HEADWAY_DATA"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power failure, where the system can open folders."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _receive(pieces: Iterable[bytes], download: Download, file: BinaryIO, progress: Progress) -> None:
    """Copy what arrives into a file, as long as it is what was published."""
    algorithm, _, expected = download.checksum.partition(":")
    digest, done = hashlib.new(algorithm), 0
    for piece in pieces:
        done += len(piece)
        if done > download.size:
            raise MirrorError(f"expected {download.size} bytes, got more")
        digest.update(piece)
        file.write(piece)
        progress(download.name, done, download.size)
    if done < download.size:
        raise MirrorError(f"expected {download.size} bytes, got {done}")
    if digest.hexdigest() != expected:
        raise MirrorError(f"expected the checksum {download.checksum}, got {algorithm}:{digest.hexdigest()}")


def _pieces(url: str, open_url: Callable[[str], http.client.HTTPResponse]) -> Generator[bytes, None, None]:
    """Yield the body of an address piece by piece; what the network raises becomes a MirrorError."""
    try:
        with open_url(url) as response:
            while piece := response.read(CHUNK):
                yield piece
    except urllib.error.HTTPError as error:
        error.close()
        raise MirrorError(f"HTTP {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise MirrorError(str(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise MirrorError(f"{type(error).__name__}: {error}") from error
