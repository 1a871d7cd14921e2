"""Writing a report: the page, the tables as CSV and LaTeX, and the figures for print."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headway.analysis.exports import find_exports
from headway.analysis.figures.saving import FORMATS
from headway.analysis.report.films import stores_at
from headway.analysis.report.printing import Tell, print_figures
from headway.analysis.report.rendering import Links, render_page
from headway.analysis.report.rows import COLUMNS, CSV, telemetry_files
from headway.analysis.report.sources import Telemetry, telemetry_at
from headway.analysis.report.view import View, make_view
from headway.analysis.results import Results, load_results
from headway.errors import StoreError
from headway.runs.files import write_bytes
from headway.runs.status import METRICS_FILE

INDEX, TABLES, FIGURES = "index.html", "tables", "figures"


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        index: the page.
        size: its size in bytes.
        files: all files, the page included.
        view: what it shows.
        omissions: figures that could not be drawn, and why.
    """

    index: Path
    size: int
    files: Sequence[Path]
    view: View
    omissions: Sequence[tuple[str, str]] = field(default_factory=tuple)


def write_report(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    formats: Sequence[str] = FORMATS,
    now: datetime | None = None,
    tell: Tell = lambda what, done, total: None,
    processes: int = 1,
    bench: Mapping[str, Any] | None = None,
) -> Written:
    """Read runs and write a report about them.

    Args:
        source: a run store, a folder of exported runs, or telemetry of data sources: a CSV or Parquet file that a
            `SourceMonitor` has written, or a folder of them. Telemetry that lies with the runs is shown too.
        out: the folder to write to; it is made if need be, and files of an earlier report there are replaced.
        formats: of the figures for print; none writes no such figures.
        now: the time that the page gives; the current one by default.
        tell: told how far it is.
        processes: how many may draw the figures for print. A script that asks for several must be importable without
            running, as multiprocessing wants it.
        bench: a benchmark's results as parsed JSON, for the claim about time.

    Raises:
        StoreError: there are neither runs nor telemetry at ``source``, or telemetry alone and not one row in it that
            can be read; or ``out`` cannot be written to.
        MissingExtraError: a package of the extra "report" is not installed.
    """
    source, out = Path(source), Path(out)
    tell("reading the runs", 0, 1)
    telemetry = telemetry_at(source)
    results = _load(source, telemetry)
    _make_folder(out)
    tell("working out the numbers", 0, 1)
    view = make_view(source, results, now or datetime.now().astimezone(), bench=bench, telemetry=telemetry)
    tables, table_files = _write_tables(view, out)
    prints = print_figures(source, results, out / FIGURES, formats, tell, processes)
    figures = [
        (each.name, each.caption, [(path.suffix[1:].upper(), address(path, out)) for path in each.files])
        for each in prints.printed
    ]
    links = Links(run_addresses(source, out, results), tables, figures, prints.omissions)
    tell("writing the page", 0, 1)
    page = render_page(view, links).encode()
    write_bytes(out / INDEX, page)
    files = [out / INDEX, *table_files, *(path for each in prints.printed for path in each.files)]
    return Written(out / INDEX, len(page), files, view, prints.omissions)


def _load(source: Path, telemetry: Sequence[Telemetry]) -> Results:
    """The runs; none where there is telemetry alone."""
    if holds_runs(source, [each.file for each in telemetry]):
        return load_results(source)
    if any(each.chart for each in telemetry):
        return Results()
    if telemetry:
        remarks = " ".join(f"{each.name}: {each.remark}" for each in telemetry)
        raise StoreError(f"expected rows of a SourceMonitor in {source}, got none that can be shown. {remarks}")
    if source.suffix == CSV and source.is_file():
        raise StoreError(f"expected the columns of a SourceMonitor ({', '.join(COLUMNS)}) in {source}, got others")
    raise StoreError(_nothing_at(source))


def holds_runs(source: Path, telemetry: Iterable[Path] | None = None) -> bool:
    """Whether there are runs, in a store or exported, and not only telemetry.

    Args:
        source: the place.
        telemetry: what `telemetry_files` gave for it, if that is known already.
    """
    if stores_at(source):
        return True
    files = set(find_exports(source))
    return bool(files and files - set(telemetry_files(source) if telemetry is None else telemetry))


def _nothing_at(source: Path) -> str:
    """Say that there is nothing for a report, and what there is."""
    known = "a run store, exported runs (*.parquet), or telemetry of data sources (CSV or Parquet of a SourceMonitor)"
    if not source.exists():
        return f"expected {known} at {source}, got nothing; check the path"
    return f"expected {known} at {source}, got {'a folder without any' if source.is_dir() else 'another file'}"


def run_addresses(source: Path, out: Path, results: Results) -> dict[str, str]:
    """Where each run's files are, as seen from the report: its metrics, or its folder if it has none yet."""
    found = {}
    for store in stores_at(source):
        for run in results:
            folder = store / run.id
            if folder.is_dir():
                metrics = folder / METRICS_FILE
                found[run.id] = address(metrics if metrics.is_file() else folder, out)
    return found


def address(target: Path, start: Path) -> str:
    """A link from one place to another on the same disk, relative if possible."""
    try:
        path = os.path.relpath(target.absolute(), start.absolute())
    except ValueError:  # on another drive
        return target.absolute().as_uri()
    return quote(Path(path).as_posix())


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"expected a folder for the report, got {folder}, which cannot be made ({error.strerror}); choose another"
        ) from error


def _write_tables(view: View, out: Path) -> tuple[list[tuple[str, list[tuple[str, str]]]], list[Path]]:
    if view.tables:
        _make_folder(out / TABLES)
    linked, files = [], []
    for table in view.tables:
        addresses = []
        for ending, kind, text in (("csv", "CSV", table.csv()), ("tex", "LaTeX", table.latex())):
            path = out / TABLES / f"{table.name}.{ending}"
            write_bytes(path, text.encode())
            files.append(path)
            addresses.append((kind, address(path, out)))
        linked.append((table.title, addresses))
    return linked, files
