"""A report: one page that opens from disk, with its tables and figures beside it.

`make_view` works out everything that a page shows, as plain values; the templates only have to write it out.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headway.analysis.charts import controlled
from headway.analysis.charts.figure import Tell, print_figures
from headway.analysis.charts.model import FORMATS, Chart, can_compare
from headway.analysis.claims import ClaimResult, evaluate_claims
from headway.analysis.claims.verdicts import exploration_label
from headway.analysis.comparison import BASELINE, EXPLORATION, Setting, WelchRow, settings_of
from headway.analysis.report import findings, overview
from headway.analysis.report.findings import Areas, Findings, Overall
from headway.analysis.report.overview import Origin, Overview, ProtocolFields, Recording
from headway.analysis.report.rendering import Links, chart_data, render_page
from headway.analysis.results import (
    STUDIES,
    SUFFIX,
    Results,
    find_exports,
    load_results,
    nothing_at,
    stores_at,
    studies_of,
)
from headway.analysis.stats import Estimate
from headway.analysis.table import Table
from headway.errors import StoreError
from headway.runs.files import open_regular, write_bytes
from headway.runs.metrics import column_names, pyarrow
from headway.runs.status import METRICS_FILE
from headway.study.protocols.labels import STANDARD
from headway.telemetry.writers import COLUMNS, LATER

if TYPE_CHECKING:
    from headway.analysis.charts.sensitivity import Gates, GridView
    from headway.analysis.report.sources import Telemetry
    from headway.analysis.studies import Study

__all__ = ["Written", "write_report"]

INDEX, TABLES, FIGURES = "index.html", "tables", "figures"
CSV = ".csv"
REQUIRED = tuple(name for name in COLUMNS if name not in LATER)
"""What a file must have to count as telemetry; it may have more."""
_LONGEST_HEAD = 1 << 16
MOST_PROTOCOLS = 3
"""Claims are judged for this many protocols at most: presets first, then those with the most finished runs."""


@dataclass(frozen=True)
class View:
    """A page."""

    source: Path  # where the runs are
    made_at: datetime  # when they were read
    results: Results  # the runs
    settings: Sequence[Setting]  # the same, sorted
    findings: Findings  # what happened, in words, and the figure that shows it
    overview: Overview  # what was run, and how far it is
    areas: Mapping[str, Areas]  # the numbers of the controlled study, by setting
    overall: Mapping[str, Overall]  # the same over all conditions, by protocol
    tests: Mapping[str, Sequence[WelchRow]]  # its tests, by setting
    rewards: Mapping[str, Mapping[str, Estimate]]  # the numbers of exploration, by setting and method
    claims: Mapping[str, Sequence[ClaimResult]]  # the paper's claims with their verdicts, by protocol
    grids: Sequence[GridView]  # sensitivity to the signal's constants
    gates: Gates | None  # GMC with and without a noise gate; None without runs of one
    studies: Sequence[Study]  # the arena and the mixture study
    charts: Mapping[str, Sequence[Chart]]  # the interactive figures, by section or by the key of a setting
    figures: Mapping[str, Any]  # the same as data for the page's script, by id
    recordings: Sequence[Recording]  # of exploration runs
    origins: Sequence[Origin]  # where the runs come from
    rules: Sequence[ProtocolFields]  # the protocols with all fields
    versions: Sequence[tuple[str, str]]  # what the page was made with
    tables: Sequence[Table] = field(default_factory=tuple)  # what is written as CSV and LaTeX
    telemetry: Sequence[Telemetry] = field(default_factory=tuple)  # what is known about data sources

    @property
    def is_of_runs(self) -> bool:
        """Whether it is about runs at all, and not about telemetry alone."""
        return bool(self.results.runs or self.results.problems or not self.telemetry)

    @property
    def unjudged(self) -> list[str]:
        """The protocols with finished runs for which the claims are not judged here."""
        return [label for label in _judgeable(self.results).protocols() if label not in self.claims]


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
        stem = f"{TABLES}/{table.name}"
        for path, text in ((out / f"{stem}.csv", table.csv()), (out / f"{stem}.tex", table.latex())):
            write_bytes(path, text.encode())
            files.append(path)
        linked.append((table.title, [("CSV", quote(f"{stem}.csv")), ("LaTeX", quote(f"{stem}.tex"))]))
    return linked, files


def telemetry_files(source: Path) -> list[Path]:
    """The files with telemetry: the source itself, or those in the folder, in its stores and beside their runs."""
    if source.is_file():
        candidates = {source}
    else:
        stores = stores_at(source)
        folders = {source, *stores, *(child for store in stores for child in store.glob("*"))}
        candidates = {file for folder in folders for file in folder.glob("*")}
    return [file for file in sorted(candidates) if _has_columns(file)]


def _has_columns(file: Path) -> bool:
    """Whether a CSV or Parquet file can be read and has the columns of telemetry."""
    if file.name.startswith(".") or file.name == METRICS_FILE or file.suffix not in (CSV, SUFFIX):
        return False
    arrow, _ = pyarrow("report")
    try:
        with os.fdopen(open_regular(file), "rb") as content:
            if file.suffix == SUFFIX:
                return set(REQUIRED) <= set(column_names(content))
            line = content.readline(_LONGEST_HEAD).decode("utf-8-sig", errors="replace")
            return set(REQUIRED) <= set(next(csv.reader([line]), []))
    except (arrow.ArrowException, OSError, StoreError, csv.Error):
        return False


def telemetry_at(source: Path) -> list[Telemetry]:
    """What the telemetry files at a place say."""
    files = telemetry_files(source)
    if not files:
        return []
    from headway.analysis.report.sources import read_telemetry

    return [read_telemetry(source, file, number) for number, file in enumerate(files)]


def make_view(
    source: Path,
    results: Results,
    now: datetime,
    *,
    live: bool = False,
    claims: Mapping[str, Sequence[ClaimResult]] | None = None,
    bench: Mapping[str, Any] | None = None,
    telemetry: Sequence[Telemetry] | None = None,
) -> View:
    """Work everything out. A live page shows also what is not finished, and leaves out the recordings, which take long.

    Claims and telemetry are what `claims_of` and `telemetry_at` gave, if that is known already; `bench` is a
    benchmark's results as parsed JSON, for the claim about time.
    """
    telemetry = telemetry_at(source) if telemetry is None else telemetry
    results = _without(telemetry, results)
    settings = settings_of(results, with_unfinished=live)
    found: Sequence[GridView] = ()
    gates: Gates | None = None
    if can_compare(settings):
        from headway.analysis.charts.sensitivity import gates_of, grid_views

        found, gates = grid_views([setting for setting in settings if setting.finished]), gates_of(settings)
    on_grid = {group for grid in found for group in grid.only}
    single = [setting for setting in settings if setting.group not in on_grid]
    areas = {setting.key: area for setting in settings if (area := findings.areas_of(setting))}
    overall = findings.overall_of(single)
    tests = findings.comparisons(single)
    keys = {setting.key for setting in single}
    rewards = {setting.key: reward for setting in settings if (reward := findings.final_rewards(setting))}
    studies = studies_of(results)
    made = [
        findings.summary_table(settings, areas),
        findings.overall_table(overall),
        findings.welch_table(single, tests),
        findings.rewards_table(settings, rewards),
        findings.areas_table(settings),
        *(table for study in studies for table in study.tables),
        findings.runs_table(results.runs),
    ]
    charts = controlled.page_charts(single, areas, overall)
    if any(setting.kind == EXPLORATION for setting in single):
        from headway.analysis.charts import exploration

        charts["exploration"] = exploration.page_charts(single)
    charts["sensitivity"] = [grid.chart for grid in found]
    charts["studies"] = [chart for study in studies for chart in study.charts]
    charts["sources"] = [each.chart for each in telemetry if each.chart]
    return View(
        source=source,
        made_at=now,
        results=results,
        settings=settings,
        findings=findings.findings_of(single, areas, rewards, charts, studies),
        overview=overview.overview_of(results, settings),
        areas={key: area for key, area in areas.items() if key in keys},
        overall=overall,
        tests=tests,
        rewards=rewards,
        claims=claims_of(results, bench) if claims is None else claims,
        grids=found,
        gates=gates,
        studies=studies,
        charts=charts,
        figures={chart.id: chart_data(chart) for members in charts.values() for chart in members},
        recordings=[] if live else overview.recordings(source, settings),
        origins=overview.origins(settings),
        rules=overview.protocols(results.runs),
        versions=overview.versions(),
        tables=[table for table in made if table] if results.runs or not telemetry else [],
        telemetry=telemetry,
    )


def _without(telemetry: Sequence[Telemetry], results: Results) -> Results:
    """The results without the complaint that telemetry as Parquet holds no runs."""
    names = {each.file.name for each in telemetry}
    return replace(results, problems=tuple(problem for problem in results.problems if problem.id not in names))


def update_view(view: View, results: Results, now: datetime) -> View:
    """The view with what is quickly told anew: what was run, and how far it is."""
    results = _without(view.telemetry, results)
    settings = settings_of(results, with_unfinished=True)
    return replace(view, made_at=now, results=results, overview=overview.overview_of(results, settings))


def claims_of(results: Results, bench: Mapping[str, Any] | None = None) -> dict[str, list[ClaimResult]]:
    """Judge the claims under the protocols that have what claims compare with, the most important ones."""
    finished = _judgeable(results)
    by_label = {label: finished.select(protocol=label) for label in finished.protocols()}
    able = {  # more than points of a grid or variants of a signal
        label
        for label, members in by_label.items()
        if _is_preset(label) or any(run.method == BASELINE or run.dataset is None for run in members)
    } or set(by_label)
    chosen = sorted(able, key=lambda label: (not _is_preset(label), -len(by_label[label]), label))[:MOST_PROTOCOLS]
    if STANDARD in chosen:  # which exploration runs of another protocol count for
        chosen = [label for label in chosen if label == STANDARD or label != exploration_label(results, STANDARD)]
    return {label: evaluate_claims(results, label, bench) for label in by_label if label in chosen}


def _judgeable(results: Results) -> Results:
    """The finished runs but those of studies of which the paper says nothing."""
    return Results(tuple(run for run in results.finished() if run.experiment not in STUDIES))


def _is_preset(label: str) -> bool:
    return "," not in label
