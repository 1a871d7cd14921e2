"""Sensitivity to decay rate and floor: a table and an interactive figure for each grid of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.analysis.figures.catalogue import Setting as DrawnSetting
from headway.analysis.figures.catalogue import settings_of
from headway.analysis.figures.controlled import area_ratio
from headway.analysis.figures.heatmap import number_text
from headway.analysis.figures.sensitivity import Family, families, grid_points
from headway.analysis.figures.style import SIGNALS
from headway.analysis.names import title
from headway.analysis.report import looks, series
from headway.analysis.report.charts import Chart
from headway.analysis.results import Results
from headway.analysis.rundata import Group
from headway.analysis.stats import Estimate


@dataclass(frozen=True)
class Grid:
    """Areas relative to Uniform's over decay rate and floor.

    Attributes:
        title: what it shows.
        betas: decay rates, the rows.
        floors: floors, the columns.
        cells: the ratio at each (beta, floor) that there are runs of.
        chart: the figure.
        only: groups that are points of a grid and nothing else, so that they need no figures of their own.
    """

    title: str
    betas: Sequence[float]
    floors: Sequence[float]
    cells: Mapping[tuple[float, float], Estimate]
    chart: Chart
    only: frozenset[Group]


def grids(results: Results) -> list[Grid]:
    """All grids among the finished runs; empty if no runs differ in decay rate or floor alone."""
    settings: list[DrawnSetting] = settings_of(results)
    only = frozenset(grid_points(settings))
    found: list[Grid] = []
    for place, family in enumerate(families(settings)):
        for signal, points in family.points.items():
            if len(points) > 1 and family.uniform:
                found.append(_grid(f"sensitivity-{place}-{len(found)}", family, signal, only))
    return found


def _grid(name: str, family: Family, signal: str, only: frozenset[Group]) -> Grid:
    uniform = list(family.uniform.values())
    cells = {point: area_ratio(runs, uniform) for point, runs in family.points[signal].items()}
    betas, floors = (sorted({point[axis] for point in cells}) for axis in (0, 1))
    heading = f"{title(signal)}, {family.setting.group.title}"
    return Grid(heading, betas, floors, cells, _chart(name, heading, betas, floors, cells), only)


def _chart(
    name: str,
    heading: str,
    betas: Sequence[float],
    floors: Sequence[float],
    cells: Mapping[tuple[float, float], Estimate],
) -> Chart:
    spare = list(SIGNALS.values())[1:]
    items = [
        looks.item(f"beta-{place}", spare[place % len(spare)], f"β = {number_text(beta)}")
        for place, beta in enumerate(betas)
    ]
    rows = []
    for place, beta in enumerate(betas):
        found = [cells.get((beta, floor)) for floor in floors]
        bounded = any(cell and cell.is_bounded for cell in found)
        row = {"key": f"beta-{place}", "mean": [series.short(cell.value) if cell else None for cell in found]}
        ends = {
            "low": [series.short(cell.low) if cell else None for cell in found],
            "high": [series.short(cell.high) if cell else None for cell in found],
        }
        rows.append(row | (ends if bounded else {}))
    panel = {
        "key": "ratio",
        "title": "",
        "x": list(range(len(floors))),
        "y": {"label": "area / Uniform's"},
        "series": rows,
        "lines": [{"value": 1.0}],
        "row": 0,
    }
    data = {
        "id": name,
        "title": heading,
        "kind": "dots",
        "categories": [number_text(floor) for floor in floors],
        "columns": 1,
        "legend": {"label": "Decay rate", "items": items},
        "panels": [panel],
        "xname": "floor",
        "xlabel": "floor under v",
        "wide": True,
        "dodge": True,
    }
    return Chart(name, heading, "Area under the test-loss curve relative to Uniform's, over the floor under v.", data)
