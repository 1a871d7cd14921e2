"""Everything that a page shows, as plain values: `View`. The templates only have to write it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from headway.analysis.claims import ClaimResult, evaluate_claims
from headway.analysis.claims.registry import exploration_label
from headway.analysis.report import charts, films, provenance, tables
from headway.analysis.report.charts import Chart
from headway.analysis.report.films import Film
from headway.analysis.report.gates import GateRow, gate_tables
from headway.analysis.report.groups import CONTROLLED, EXPLORATION, Setting, settings_of
from headway.analysis.report.overview import Campaign, Overview, campaign_of, overview_of
from headway.analysis.report.provenance import Origin, ProtocolFields
from headway.analysis.report.sensitivity import GridView, grid_views
from headway.analysis.report.sources import Telemetry, telemetry_at
from headway.analysis.report.tables import Areas, Overall
from headway.analysis.results import Results
from headway.analysis.stats import Estimate
from headway.analysis.table import Table
from headway.analysis.tables import BASELINE, WelchRow
from headway.study.protocols.labels import STANDARD

MOST_PROTOCOLS = 3
"""Claims are judged for this many protocols at most: presets first, then those with the most finished runs."""


@dataclass(frozen=True)
class View:
    """A page.

    Attributes:
        source: where the runs are.
        made_at: when they were read.
        results: the runs.
        settings: the same, sorted.
        overview: what was run.
        campaign: how far it is.
        areas: the numbers of the controlled study, by setting.
        overall: the same over all conditions, by protocol.
        tests: its tests, by setting.
        rewards: the numbers of exploration, by setting and method.
        claims: the paper's claims with their verdicts, by protocol.
        grids: sensitivity to the signal's constants.
        gates: GMC with and without a noise gate, setting by setting.
        charts: the interactive figures, by section.
        films: recordings.
        origins: where the runs come from.
        rules: the protocols with all fields.
        versions: what the page was made with.
        tables: what is written as CSV and LaTeX.
        telemetry: what is known about data sources.
    """

    source: Path
    made_at: datetime
    results: Results
    settings: Sequence[Setting]
    overview: Overview
    campaign: Campaign
    areas: Mapping[str, Areas]
    overall: Mapping[str, Overall]
    tests: Mapping[str, Sequence[WelchRow]]
    rewards: Mapping[str, Mapping[str, Estimate]]
    claims: Mapping[str, Sequence[ClaimResult]]
    grids: Sequence[GridView]
    gates: Sequence[Sequence[GateRow]]
    charts: Mapping[str, Sequence[Chart]]
    films: Sequence[Film]
    origins: Sequence[Origin]
    rules: Sequence[ProtocolFields]
    versions: Sequence[tuple[str, str]]
    tables: Sequence[Table] = field(default_factory=tuple)
    telemetry: Sequence[Telemetry] = field(default_factory=tuple)

    @property
    def is_of_runs(self) -> bool:
        """Whether it is about runs at all, and not about telemetry alone."""
        return bool(self.results.runs or self.results.problems or not self.telemetry)

    @property
    def unjudged(self) -> list[str]:
        """The protocols with finished runs for which the claims are not judged here."""
        return [label for label in self.results.finished().protocols() if label not in self.claims]

    @property
    def figures(self) -> dict[str, Any]:
        """The data of all interactive figures, by id."""
        return {chart.id: chart.data for members in self.charts.values() for chart in members}


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
    """Work everything out.

    Args:
        source: where the runs are.
        results: the runs.
        now: the time of the page.
        live: show also what is not finished, and leave out what takes long: the recordings.
        claims: what `claims_of` gave for these runs, if that is known already.
        bench: a benchmark's results as parsed JSON, for the claim about time.
        telemetry: what `telemetry_at` gave for the source, if that is known already.
    """
    telemetry = telemetry_at(source) if telemetry is None else telemetry
    results = _without(telemetry, results)
    settings = settings_of(results, with_unfinished=live)
    found = grid_views(results)
    on_grid = {group for grid in found for group in grid.only}
    single = [setting for setting in settings if setting.group not in on_grid]
    areas = {setting.key: area for setting in settings if (area := tables.areas_of(setting))}
    overall = tables.overall_of(single)
    tests = tables.comparisons(single)
    keys = {setting.key for setting in single}
    rewards = {setting.key: reward for setting in settings if (reward := tables.final_rewards(setting))}
    made = [
        tables.summary_table(settings, areas),
        tables.overall_table(overall),
        tables.welch_table(single, tests),
        tables.rewards_table(settings, rewards),
        tables.areas_table(settings),
        tables.runs_table(results.runs),
    ]
    return View(
        source=source,
        made_at=now,
        results=results,
        settings=settings,
        overview=overview_of(results, settings),
        campaign=campaign_of(results),
        areas={key: area for key, area in areas.items() if key in keys},
        overall=overall,
        tests=tests,
        rewards=rewards,
        claims=claims_of(results, bench) if claims is None else claims,
        grids=found,
        gates=gate_tables(settings),
        charts=_charts(single, areas, overall, found) | {"sources": [each.chart for each in telemetry if each.chart]},
        films=[] if live else films.films(source, settings),
        origins=provenance.origins(settings),
        rules=provenance.protocols(results.runs),
        versions=provenance.versions(),
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
    return replace(
        view,
        made_at=now,
        results=results,
        overview=overview_of(results, settings),
        campaign=campaign_of(results),
    )


def claims_of(results: Results, bench: Mapping[str, Any] | None = None) -> dict[str, list[ClaimResult]]:
    """Judge the claims under the protocols that have what claims compare with, the most important ones."""
    finished = results.finished()
    by_label = {label: finished.select(protocol=label) for label in finished.protocols()}
    able = {label for label, members in by_label.items() if _can_be_judged(members)} or set(by_label)
    chosen = sorted(able, key=lambda label: (not _is_preset(label), -len(by_label[label]), label))[:MOST_PROTOCOLS]
    if STANDARD in chosen:  # which exploration runs of another protocol count for
        chosen = [label for label in chosen if label == STANDARD or label != exploration_label(results, STANDARD)]
    return {label: evaluate_claims(results, label, bench) for label in by_label if label in chosen}


def _can_be_judged(members: Results) -> bool:
    """Whether runs of one protocol are more than points of a grid or variants of a signal."""
    methods = {run.method for run in members}
    return _is_preset(members.runs[0].protocol) or BASELINE in methods or any(run.dataset is None for run in members)


def _is_preset(label: str) -> bool:
    return "," not in label


def _charts(
    settings: Sequence[Setting], areas: Mapping[str, Areas], overall: Mapping[str, Overall], found: Sequence[GridView]
) -> dict[str, list[Chart]]:
    controlled = [setting for setting in settings if setting.kind == CONTROLLED and setting.shown]
    exploring = [setting for setting in settings if setting.kind == EXPLORATION and setting.shown]
    by_section: dict[str, list[Chart | None]] = {
        "summary": [charts.areas(controlled, areas)],
        "overall": [charts.profiles(overall)],
        "telemetry": [charts.telemetry(setting) for setting in controlled],
        "exploration": [charts.rewards(exploring), charts.television(exploring)],
        "sensitivity": [grid.chart for grid in found],
    }
    for setting in controlled:
        by_section[setting.key] = [charts.average_loss(setting), *charts.group_charts(setting)]
    return {section: [chart for chart in members if chart] for section, members in by_section.items()}
