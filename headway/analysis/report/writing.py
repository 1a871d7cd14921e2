"""Writing a report: the page, the tables as CSV and LaTeX, and the figures for print."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headway.analysis.charts.catalogue import Plan, plan_figures, protocol_folders
from headway.analysis.charts.drawing import draw
from headway.analysis.charts.figure import house_style, save
from headway.analysis.charts.model import FORMATS, Chart
from headway.analysis.report.rendering import Links, render_page
from headway.analysis.report.sources import CSV, REQUIRED, Telemetry, telemetry_at, telemetry_files
from headway.analysis.report.view import View, make_view
from headway.analysis.results import Results, find_exports, load_results, nothing_at, stores_at
from headway.errors import FigureError, StoreError
from headway.runs.files import write_bytes
from headway.runs.status import METRICS_FILE

INDEX, TABLES, FIGURES = "index.html", "tables", "figures"
WORTH_A_PROCESS = 6  # A further process reads all runs again, which pays from this many figures on
MOST_PROCESSES = 2  # Each takes a few hundred MB, so more are not used however many cores there are

Tell = Callable[[str, int, int], None]  # Told what is being done, and how many steps of how many are


@dataclass(frozen=True)
class Written:
    """What was written."""

    index: Path  # the page
    size: int  # its size in bytes
    files: Sequence[Path]  # all files, the page included
    view: View  # what it shows
    omissions: Sequence[tuple[str, str]] = field(default_factory=tuple)  # figures that could not be drawn, and why


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
    printed, omitted = print_figures(source, results, out / FIGURES, formats, tell, processes)
    figures = [
        (each.name, each.caption, [(path.suffix[1:].upper(), address(path, out)) for path in each.files])
        for each in printed
    ]
    links = Links(run_addresses(source, out, results), tables, figures, omitted)
    tell("writing the page", 0, 1)
    page = render_page(view, links).encode()
    write_bytes(out / INDEX, page)
    files = [out / INDEX, *table_files, *(path for each in printed for path in each.files)]
    return Written(out / INDEX, len(page), files, view, omitted)


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
        raise StoreError(f"expected the columns of a SourceMonitor ({', '.join(REQUIRED)}) in {source}, got others")
    what = "a run store, exported runs (*.parquet), or telemetry of data sources (CSV or Parquet of a SourceMonitor)"
    raise nothing_at(source, what)


def holds_runs(source: Path, telemetry: Iterable[Path] | None = None) -> bool:
    """Whether there are runs, stored or exported, and not only telemetry (by default that of `telemetry_files`)."""
    if stores_at(source):
        return True
    files = set(find_exports(source))
    return bool(files and files - set(telemetry_files(source) if telemetry is None else telemetry))


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


@dataclass(frozen=True)
class Printed:
    """A figure on disk: its name, what it shows, its files, and the part of the results that it belongs to."""

    name: str
    caption: str
    files: Sequence[Path]
    part: str = ""


Omitted = list[tuple[str, str]]  # Names of figures that could not be drawn, and why


def print_figures(
    source: Path, results: Results, folder: Path, formats: Sequence[str], tell: Tell, processes: int = 1
) -> tuple[list[Printed], Omitted]:
    """Draw every figure that the runs allow in a folder; one that fails is left out with its reason.

    With several protocols each gets a folder of its own. Further processes read the runs from the source again.
    """
    plans = plan_figures(results) if formats else []
    printed: list[Printed] = []
    omitted = [(item.id, item.reason) for plan in plans for item in plan.omissions]
    charts = list(named_charts(plans))
    for name, _ in charts:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    processes = min(processes, MOST_PROCESSES, len(charts) // WORTH_A_PROCESS)
    failed: set[str] = set()
    if processes > 1:
        failed = _print_in_processes(source, folder, [name for name, _ in charts], formats, tell, processes)
    for number, (name, chart) in enumerate(charts):
        if processes <= 1 or name in failed:
            tell(f"drawing {name}", number, len(charts))
            try:
                _print(chart, folder / name, formats)
            except (FigureError, ValueError, ArithmeticError) as error:
                omitted.append((name, str(error)))
                continue
        files = [folder / f"{name}.{kind}" for kind in formats]
        printed.append(Printed(name, chart.caption, files, chart.part))
    return printed, omitted


def named_charts(plans: Sequence[Plan]) -> Iterator[tuple[str, Chart]]:
    """All charts, each with the path of its files; one protocol needs no folder of its own."""
    folders = protocol_folders(plan.protocol for plan in plans if plan.protocol and plan.charts)
    for plan in plans:
        folder = folders.get(plan.protocol)
        for chart in plan.charts:
            yield (f"{folder}/{chart.id}" if folder else chart.id), chart


def _print(chart: Chart, stem: Path, formats: Sequence[str]) -> None:
    with house_style():
        save(draw(chart), stem, formats)


def _print_in_processes(
    source: Path, folder: Path, names: Sequence[str], formats: Sequence[str], tell: Tell, processes: int
) -> set[str]:
    """Draw figures in several processes; returns the names of those that could not be drawn there."""
    left = set(names)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(processes, context, initializer=_prepare, initargs=(source,)) as pool:
            waiting = {pool.submit(_print_by_name, name, folder / name, formats): name for name in names}
            for number, future in enumerate(as_completed(waiting)):
                tell(f"drawing {waiting[future]}", number, len(names))
                if future.exception() is None:
                    left.discard(waiting[future])
    except BrokenProcessPool:
        pass  # out of memory, say: what is left is drawn here, one by one
    return left


_prepared: dict[str, Chart] = {}  # In a further process: what it can draw


def _prepare(source: Path) -> None:
    _prepared.update(named_charts(plan_figures(load_results(source))))


def _print_by_name(name: str, stem: Path, formats: Sequence[str]) -> None:
    _print(_prepared[name], stem, formats)
