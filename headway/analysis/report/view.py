"""Everything that a page shows, as plain values: `View`. The templates only have to write it out."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.analysis.charts.catalogue import page_charts
from headway.analysis.charts.model import Chart
from headway.analysis.charts.sensitivity import Gates, GridView, gates_of, grid_views
from headway.analysis.claims import ClaimResult, evaluate_claims
from headway.analysis.claims.evaluation import exploration_label
from headway.analysis.report import overview, tables
from headway.analysis.report.overview import Campaign, Origin, Overview, ProtocolFields
from headway.analysis.report.rendering import chart_data
from headway.analysis.report.sources import Telemetry, telemetry_at
from headway.analysis.report.tables import MOST_SENTENCES, Areas, Findings, Overall, findings_of
from headway.analysis.results import Results, stores_at
from headway.analysis.settings import EXPLORATION, STUDIES, Setting, settings_of, studies_of
from headway.analysis.stats import Estimate
from headway.analysis.table import Table
from headway.analysis.tables import BASELINE, WelchRow
from headway.errors import StoreError
from headway.runs.files import read_bytes
from headway.study.protocols.labels import STANDARD
from headway.study.protocols.names import title

if TYPE_CHECKING:
    from headway.analysis.studies import Study

MOST_PROTOCOLS = 3
"""Claims are judged for this many protocols at most: presets first, then those with the most finished runs."""
RECORDING_FILE = "play.gif"
MOST_BYTES = 2 << 20  # A recording larger than this is not put into the page ...
MOST_BYTES_IN_ALL = 7 << 20  # ... nor one that would make all of them together larger than this.
_GIF = (b"GIF87a", b"GIF89a")


class Recording(NamedTuple):
    """A recording."""

    title: str  # what it shows
    source: str  # a data: URL


@dataclass(frozen=True)
class View:
    """A page."""

    source: Path  # where the runs are
    made_at: datetime  # when they were read
    results: Results  # the runs
    settings: Sequence[Setting]  # the same, sorted
    findings: Findings  # what happened, in words, and the figure that shows it
    overview: Overview  # what was run
    campaign: Campaign  # how far it is
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
    found = grid_views([setting for setting in settings if setting.finished])
    on_grid = {group for grid in found for group in grid.only}
    single = [setting for setting in settings if setting.group not in on_grid]
    areas = {setting.key: area for setting in settings if (area := tables.areas_of(setting))}
    overall = tables.overall_of(single)
    tests = tables.comparisons(single)
    keys = {setting.key for setting in single}
    rewards = {setting.key: reward for setting in settings if (reward := tables.final_rewards(setting))}
    studies = studies_of(results)
    made = [
        tables.summary_table(settings, areas),
        tables.overall_table(overall),
        tables.welch_table(single, tests),
        tables.rewards_table(settings, rewards),
        tables.areas_table(settings),
        *(table for study in studies for table in study.tables),
        tables.runs_table(results.runs),
    ]
    charts = page_charts(single, areas, overall)
    charts["sensitivity"] = [grid.chart for grid in found]
    charts["studies"] = [chart for study in studies for chart in study.charts]
    charts["sources"] = [each.chart for each in telemetry if each.chart]
    return View(
        source=source,
        made_at=now,
        results=results,
        settings=settings,
        findings=_opened_by(studies, findings_of(single, areas, rewards, charts)),
        overview=overview.overview_of(results, settings),
        campaign=overview.campaign_of(results),
        areas={key: area for key, area in areas.items() if key in keys},
        overall=overall,
        tests=tests,
        rewards=rewards,
        claims=claims_of(results, bench) if claims is None else claims,
        grids=found,
        gates=gates_of(settings),
        studies=studies,
        charts=charts,
        figures={chart.id: chart_data(chart) for members in charts.values() for chart in members},
        recordings=[] if live else recordings_of(source, settings),
        origins=overview.origins(settings),
        rules=overview.protocols(results.runs),
        versions=overview.versions(),
        tables=[table for table in made if table] if results.runs or not telemetry else [],
        telemetry=telemetry,
    )


def _opened_by(studies: Sequence[Study], findings: Findings) -> Findings:
    """The findings after what studies conclude, with the figure of what comes first."""
    said = [study for study in studies if study.conclusion]
    if not said:
        return findings
    sentences = [f"{study.title}: {study.conclusion}" for study in said]
    return Findings([*sentences, *findings.sentences][:MOST_SENTENCES], said[0].charts)


def _without(telemetry: Sequence[Telemetry], results: Results) -> Results:
    """The results without the complaint that telemetry as Parquet holds no runs."""
    names = {each.file.name for each in telemetry}
    return replace(results, problems=tuple(problem for problem in results.problems if problem.id not in names))


def update_view(view: View, results: Results, now: datetime) -> View:
    """The view with what is quickly told anew: what was run, and how far it is."""
    results = _without(view.telemetry, results)
    settings = settings_of(results, with_unfinished=True)
    told, campaign = overview.overview_of(results, settings), overview.campaign_of(results)
    return replace(view, made_at=now, results=results, overview=told, campaign=campaign)


def claims_of(results: Results, bench: Mapping[str, Any] | None = None) -> dict[str, list[ClaimResult]]:
    """Judge the claims under the protocols that have what claims compare with, the most important ones."""
    finished = _judgeable(results)
    by_label = {label: finished.select(protocol=label) for label in finished.protocols()}
    able = {label for label, members in by_label.items() if _can_be_judged(members)} or set(by_label)
    chosen = sorted(able, key=lambda label: (not _is_preset(label), -len(by_label[label]), label))[:MOST_PROTOCOLS]
    if STANDARD in chosen:  # which exploration runs of another protocol count for
        chosen = [label for label in chosen if label == STANDARD or label != exploration_label(results, STANDARD)]
    return {label: evaluate_claims(results, label, bench) for label in by_label if label in chosen}


def _judgeable(results: Results) -> Results:
    """The finished runs but those of studies of which the paper says nothing."""
    return Results(tuple(run for run in results.finished() if run.experiment not in STUDIES))


def _can_be_judged(members: Results) -> bool:
    """Whether runs of one protocol are more than points of a grid or variants of a signal."""
    methods = {run.method for run in members}
    return _is_preset(members.runs[0].protocol) or BASELINE in methods or any(run.dataset is None for run in members)


def _is_preset(label: str) -> bool:
    return "," not in label


def recordings_of(source: Path, settings: Sequence[Setting]) -> list[Recording]:
    """The recordings of a store: for each setting of exploration and method that of its first seed that has one."""
    stores, found, room = stores_at(source), [], MOST_BYTES_IN_ALL
    for setting in (each for each in settings if each.kind == EXPLORATION):
        for name, runs in setting.all.items():
            for run in runs:
                content = next(filter(None, (_read(store / run.id) for store in stores)), b"")
                if content and len(content) <= room:
                    room -= len(content)
                    url = f"data:image/gif;base64,{base64.b64encode(content).decode()}"
                    found.append(Recording(f"{title(name)}, {setting.title}, seed {run.seed}", url))
                    break
    return found


def _read(folder: Path) -> bytes:
    """The recording in the folder of a run; nothing if there is none, or something else under its name."""
    try:
        content = read_bytes(folder / RECORDING_FILE, MOST_BYTES) or b""
    except StoreError:
        return b""
    return content if content.startswith(_GIF) else b""
