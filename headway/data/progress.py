"""Showing how far a download is: a bar in a terminal that has rich, plain lines on stderr elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that have arrived and the bytes that are expected."""

LINES_PER_FILE = 4


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
        """Write to `stream`."""
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
