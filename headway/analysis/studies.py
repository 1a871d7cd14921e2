"""What the arena and the mixture study say: a sentence, tables, and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.analysis import arena_tables, mixtures
from headway.analysis.charts.model import Chart
from headway.analysis.comparison import usable
from headway.analysis.results import Results
from headway.analysis.table import Table


@dataclass(frozen=True)
class Study:
    """One study."""

    title: str
    text: str  # what its tables compare
    conclusion: str  # what came out, in words; empty if there is nothing to compare
    tables: Sequence[Table]
    charts: Sequence[Chart]
    short: Table  # what a terminal shows


def make_studies(results: Results) -> list[Study]:
    """The studies that have finished runs to compare."""
    return [study for make in (_arena, _mixtures) if (study := make(results))]


def _of(results: Results, experiment: str, columns: Sequence[str]) -> Results:
    """The finished runs of an experiment that have these metrics."""
    return Results(usable(results.select(experiment=experiment).runs, columns))


def _arena(results: Results) -> Study | None:
    own = _of(results, "arena", arena_tables.NEEDED)
    tables = arena_tables.tables(own)
    if not tables:
        return None
    text = (
        "Covered is the share of places that the agent has visited. Noise preference is the mean bonus per step in the "
        "noise over that elsewhere; 1 is indifference. A run is solved if half of its last episodes reach the goal. "
        "Covered and noise preference are interquartile means over rooms and seeds. Leaderboards rank methods, and "
        "compare them with PPO, by coverage in television rooms and by return in exploration rooms."
    )
    short = _short(arena_tables.leaderboard(own, arena_tables.common_rooms(own)), arena_tables.SHORT)
    return Study("Arena", text, arena_tables.conclusion(own), tables, [arena_tables.chart(own)], short)


def _mixtures(results: Results) -> Study | None:
    runs = mixtures.collect(_of(results, "mixture", mixtures.NEEDED))
    there = mixtures.complete(runs)
    summary = mixtures.summary(runs, there) if there else None
    if summary is None or not summary.rows:
        return None
    text = (
        "The mean validation loss over the learnable sources, relative to uniform sampling with the same seed (lower "
        "is better), after equally many samples and after the processor time of uniform sampling. The oracle knows "
        "which sources are noise. Cost is the time of a step over that of uniform sampling. The first table has means "
        f"over {', '.join(there)}."
    )
    tables = [summary, *(mixtures.by_mixture(runs, there, what) for what in ("samples", "time"))]
    short = _short(summary, mixtures.SHORT)
    return Study("Mixtures", text, mixtures.conclusion(runs), tables, [mixtures.chart(runs)], short)


def _short(table: Table, columns: Sequence[str]) -> Table:
    """Some columns of a table."""
    places = [list(table.columns).index(name) for name in columns]
    return replace(table, columns=columns, rows=[[row[place] for place in places] for row in table.rows])
