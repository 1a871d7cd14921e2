"""The command `headway report`: one page about the runs of a store, or about telemetry."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from headway.commands.options import BENCH_HELP, add_runs_argument
from headway.errors import HeadwayError, MissingExtraError, UsageError
from headway.runs.text import complain, count, emit

PACKAGES = ("jinja2", "numpy", "pyarrow", "scipy")
"""What a page needs; the extra "report" brings them ..."""
DRAWING = "matplotlib"
"""... and what figures for print need besides."""
FORMATS = ("pdf", "svg", "png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "Writes one page that opens from disk, with tables and figures beside it."
    add = parser.add_argument
    add_runs_argument(parser, "a run store, a folder of exported runs, or telemetry of data sources (CSV or Parquet)")
    add("--out", type=Path, default=Path("report"), metavar="DIR", help="where the report goes (%(default)s)")
    add(
        "--format",
        "--formats",
        dest="formats",
        nargs="*",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"of the figures for print of runs, out of {', '.join(FORMATS)} (all); none draws no such figures",
    )
    add("--bench", type=Path, nargs="+", metavar="FILE", help=BENCH_HELP)
    add(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="also write claims, tables and figures as a page in Markdown; what stands around its marks is kept",
    )
    add("--open", action="store_true", help="open the page in a browser when it is there")


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    index = make_report(options.path, options.out, options.formats, options.bench, options.markdown)
    if options.open:
        import webbrowser

        webbrowser.open(index.absolute().as_uri())
    return 0


def make_report(
    store: Path,
    out: Path,
    formats: list[str] | None = None,
    bench: list[Path] | None = None,
    markdown: Path | None = None,
) -> Path:
    """Write a report, show how far it is, say what came out, and return the page; formats of None are all of them."""
    require()
    from headway.analysis.report import holds_runs, telemetry_files, write_report
    from headway.analysis.report.markdown import frame, write_markdown
    from headway.commands.claims import read_bench

    began = time.monotonic()
    line = ProgressLine(sys.stderr)
    try:
        chosen: Sequence[str] = FORMATS if formats is None else formats
        if not holds_runs(store):
            for option, given in (("--formats", formats), ("--bench", bench)):
                if given and telemetry_files(store):
                    raise UsageError(f"expected runs for {option}, got telemetry alone in {store}; leave {option} out")
            chosen = ()
        elif chosen or markdown is not None:
            require(DRAWING)
        measured = read_bench(bench)
        if markdown is not None:
            frame(markdown)  # better now than after drawing
        written = write_report(store, out, formats=chosen, tell=line, processes=os.cpu_count() or 1, bench=measured)
        if markdown is not None:
            write_markdown(markdown, store, written.view, line)
    finally:
        line.clear()
    view = written.view
    counts = [f"{tile.number} {tile.label}" for tile in view.overview.tiles] if view.is_of_runs else []
    counts += [count(len(view.telemetry), "telemetry file")] if view.telemetry else []
    emit(f"{written.index}: {', '.join(counts)}")
    for each in view.telemetry:
        if each.remark:
            complain(f"{each.name}: {each.remark}")
    sizes = [f"{written.size / 1e6:.1f} MB"]
    if len(written.files) > 1:
        total = sum(path.stat().st_size for path in written.files)
        sizes.append(f"with tables and figures {total / 1e6:.1f} MB in {count(len(written.files), 'file')}")
    emit(f"{', '.join(sizes)}, {time.monotonic() - began:.0f} s")
    if markdown is not None:
        emit(f"{markdown}: the same in Markdown")
    return written.index


def report_if_possible(store: Path, out: Path) -> bool:
    """Write a report, or say in a line why not, and return whether it was written; for commands that end in one."""
    emit("\nwriting the report ...")
    try:
        index = make_report(store, out, ["png"])
    except HeadwayError as error:
        (emit if isinstance(error, MissingExtraError) else complain)(f"No report: {error}")
        return False
    emit(f"Open it in a browser: {index.absolute().as_uri()}")
    return True


def require(*packages: str, extra: str = "report") -> None:
    """Make sure that the packages of an extra are there; without a name, those that every report needs."""
    for package in packages or PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, extra)


class ProgressLine:
    """Shows what is being done in one line of a stream that is written over; nothing if nobody looks."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._length = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show a step."""
        if self._stream.isatty():
            self._show(f"{what} ({done + 1} of {total})" if total > 1 else f"{what} ...")

    def clear(self) -> None:
        """Take the line away."""
        if self._length:
            self._show("")
            self._stream.write("\r")

    def _show(self, text: str) -> None:
        self._stream.write(f"\r{text.ljust(self._length)}")
        self._stream.flush()
        self._length = len(text)
