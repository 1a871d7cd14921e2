"""Downloads through pooch: https only, one mirror after the other, checked before a file gets its name.

While they go on they are shown: a bar in a terminal that has rich, plain lines on stderr elsewhere.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urljoin

from headway.data.catalogue import Download
from headway.errors import DataError, MissingExtraError

SCHEME = "https://"
TIMEOUT = 30.0  # seconds for a connection, and for each read
CHUNK = 1 << 18
LINES_PER_FILE = 4

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that have arrived and the bytes that are expected."""


class MirrorError(Exception):
    """One mirror did not deliver; the next is tried."""


def fetch(download: Download, folder: Path, progress: Progress) -> Path:
    """Fetch a file from the first mirror that delivers it whole.

    The file appears under its name only once its checksum is right; nothing else stays behind.

    Args:
        download: what to fetch and from where.
        folder: where to put it; made if need be.
        progress: called at the start and with each piece that arrives.

    Returns:
        The path of the file.

    Raises:
        DataError: no mirror delivered (the message says why, for each), or the folder cannot be written.
        MissingExtraError: pooch is not installed.
    """
    target, failures = folder / download.name, []
    with _writable(target):
        for url in (mirror + download.name for mirror in download.mirrors):
            try:
                _retrieve(url, download, folder, progress)
            except MirrorError as failure:
                failures.append(f"{url}: {failure}")
            else:
                target.chmod(0o644)  # pooch leaves it to its owner alone
                return target
    listed = "\n  ".join(failures)
    raise DataError(f"expected to download {download.name}, got no complete copy:\n  {listed}")


@contextmanager
def _writable(target: Path) -> Iterator[None]:
    """Make the folder of a file, remove it again if nothing came into it, and say the way out where that fails."""
    folder, is_new = target.parent, False
    try:
        is_new = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except (OSError, ValueError) as error:
        raise DataError(
            f"{target}: expected to write it, got {type(error).__name__}: {error}; choose a folder with "
            "room that can be written, by data_dir (--data-dir) or by $HEADWAY_DATA"
        ) from error
    finally:
        if is_new:
            with contextlib.suppress(OSError, ValueError):  # it was never made, or is not empty
                folder.rmdir()


def _retrieve(url: str, download: Download, folder: Path, progress: Progress) -> None:
    """Let pooch fetch an address into a temporary file, check it and give it its name."""
    try:
        pooch: Any = importlib.import_module("pooch")
        requests: Any = importlib.import_module("requests")
    except ImportError as error:
        raise MissingExtraError("pooch", "experiments") from error
    pooch.get_logger().setLevel("WARNING")  # it announces every file; `progress` does that here

    def stream(url: str, output: str, _: object) -> None:
        done = 0
        options = {"stream": True, "timeout": TIMEOUT, "hooks": {"response": _check_redirect}}
        headers = {"User-Agent": "headway", "Accept-Encoding": "identity"}  # the file itself is the packed one
        with requests.get(url, headers=headers, **options) as response, Path(output).open("wb") as file:
            response.raise_for_status()
            progress(download.name, 0, download.size)
            for piece in response.iter_content(CHUNK):
                done += len(piece)
                if done > download.size:
                    raise MirrorError(f"expected {download.size} bytes, got more")
                file.write(piece)
                progress(download.name, done, download.size)

    _require_https(url)
    try:
        pooch.retrieve(url, download.checksum, fname=download.name, path=folder, downloader=stream)
    except requests.HTTPError as error:
        raise MirrorError(f"HTTP {error.response.status_code} {error.response.reason}") from error
    except requests.RequestException as error:
        raise MirrorError(f"{type(error).__name__}: {error}") from error
    except ValueError as error:  # another checksum; pooch says which
        raise MirrorError(str(error)) from error


def _require_https(url: str) -> None:
    if not url.lower().startswith(SCHEME):
        raise MirrorError(f"expected an https address, got {url}")


def _check_redirect(response: Any, **_: object) -> None:
    """Follow a redirection only if it leads to https."""
    if response.is_redirect:
        _require_https(urljoin(response.url, response.headers["location"]))


@contextmanager
def progress_display(stream: TextIO | None = None) -> Iterator[Progress]:
    """Give a Progress callback that shows downloads while the context lasts.

    Args:
        stream: where to show them, stderr if None.
    """
    stream = sys.stderr if stream is None else stream
    if stream.isatty() and importlib.util.find_spec("rich") is not None:
        with _rich_bars(stream) as callback:
            yield callback
    else:
        yield PlainLines(stream)


class PlainLines:
    """Writes a line at the start of a file, at each quarter and at its end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: tuple[str, int] | None = None

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show a file's progress if it has passed another quarter."""
        step = LINES_PER_FILE * done // max(total, 1)
        if (name, step) == self._shown:
            return
        self._shown = (name, step)
        percent = 100 * step // LINES_PER_FILE
        print(f"downloading {name}: {percent}% of {total / 1e6:.1f} MB", file=self._stream, flush=True)


@contextmanager
def _rich_bars(stream: TextIO) -> Iterator[Progress]:
    rich: Any = importlib.import_module("rich.progress")
    console: Any = importlib.import_module("rich.console").Console(file=stream)
    columns = (
        rich.TextColumn("{task.description}"), rich.BarColumn(), rich.DownloadColumn(),
        rich.TransferSpeedColumn(), rich.TimeRemainingColumn(),
    )  # fmt: skip
    tasks: dict[str, Any] = {}
    with rich.Progress(*columns, console=console) as bars:

        def callback(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done)

        yield callback
