"""The files of a dataset: where they may be, reading them without trusting them, and downloading them.

Nothing is read beyond a given size, and every error names its file. Downloads go through pooch: https only, one mirror
after the other, checked before a file gets its name. While they go on they are shown: a bar in a terminal that has
rich, plain lines on stderr elsewhere.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
import importlib.util
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast
from urllib.parse import urljoin

from headway.data.catalogue import Download, Spec
from headway.errors import DataError, import_extra

VARIABLE = "HEADWAY_DATA"
PLATFORMS = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": ("", "~/Library/Caches")}
GZIP_MAGIC = b"\x1f\x8b"
SCHEME = "https://"
TIMEOUT = 30.0  # seconds for a connection, and for each read
CHUNK = 1 << 18
LINES_PER_FILE = 4

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that have arrived and the bytes that are expected."""
DataDir = str | os.PathLike[str] | None


@dataclass(frozen=True)
class SearchPath:
    """A folder to look in, and how it came to be on the list."""

    folder: Path
    origin: str


@dataclass(frozen=True)
class FilesFound:
    """A complete copy of a dataset."""

    source: Path  # the folder or archive that holds it
    files: Mapping[str, Path]  # the path of each of the contents; empty if source is an archive


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
        found = next(filter(is_file, (folder / f"{name}.gz", folder / name)), None)
        if found is not None:
            files[name] = found
    return files


def find(spec: Spec, paths: list[SearchPath]) -> FilesFound | None:
    """Give the first complete copy on the paths. A folder with only some of the files is passed over."""
    for path in paths:
        files = present(spec, path.folder)
        if len(files) == len(spec.contents):
            return FilesFound(path.folder, files)
        if spec.archive and is_file(path.folder / spec.archive):
            return FilesFound(path.folder / spec.archive, {})
    return None


def describe(spec: Spec, path: SearchPath) -> str:
    """Say in one line what was found on a path that has no complete copy."""
    missing = [name for name in spec.contents if name not in present(spec, path.folder)]
    some = f"only some of the files, {', '.join(missing)} missing"
    return f"{path.folder} ({path.origin}): {'none of the files' if len(missing) == len(spec.contents) else some}"


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


@contextlib.contextmanager
def open_maybe_gzip(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, through gzip if its first bytes (not its name) say so; errors of reading name it."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            file.seek(0)
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb")) if packed else file
    except (OSError, EOFError, zlib.error) as error:
        raise bad_file(path, "a readable, complete file", f"{type(error).__name__}: {error}") from error


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


class MirrorError(Exception):
    """One mirror did not deliver; the next is tried."""


def fetch(download: Download, folder: Path, progress: Progress) -> Path:
    """Fetch a file from the first mirror that delivers it whole, into a folder that is made if need be.

    The file appears under its name only once its checksum is right; nothing else stays behind. If no mirror delivers,
    the error says why, for each.
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


@contextlib.contextmanager
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
    pooch, requests = (import_extra(name, "experiments") for name in ("pooch", "requests"))
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


@contextlib.contextmanager
def progress_display(stream: TextIO | None = None) -> Iterator[Progress]:
    """Give a Progress callback that shows downloads while the context lasts, on stderr if no stream is given."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty() or importlib.util.find_spec("rich") is None:
        yield PlainLines(stream)
        return
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
