"""Sensitivity to GMC's constants: a table and an interactive figure for each grid of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.analysis.figures import grids
from headway.analysis.figures.catalogue import settings_of
from headway.analysis.figures.grids import Cell, Grid
from headway.analysis.figures.style import SIGNALS, number_text
from headway.analysis.report import looks, series
from headway.analysis.report.charts import Chart
from headway.analysis.results import Results
from headway.analysis.rundata import Group
from headway.analysis.stats import Estimate
from headway.study.protocols.names import title

Choose = Callable[[Cell], Estimate | None]

PANELS: tuple[tuple[str, str, bool, Choose], ...] = (
    ("ratio", "area / Uniform's", False, lambda cell: cell.ratio),
    ("distance", "distance from uniform draws", True, lambda cell: cell.distance),
    ("under_floor", "parameters under the floor", True, lambda cell: cell.under_floor),
)
"""What is shown of every cell: key, label, whether it is a share, and how to get it."""


@dataclass(frozen=True)
class GridView:
    """A grid as a page shows it.

    Attributes:
        title: what it shows.
        grid: the runs and their numbers.
        rows: the names of its rows.
        chart: the figure.
        only: groups that are points of this grid, or its Uniform, and nothing else: they need no figures of their own.
    """

    title: str
    grid: Grid
    rows: Sequence[str]
    chart: Chart
    only: frozenset[Group]

    def cell(self, row: int, floor: float) -> Cell | None:
        """What came out in a row at a floor; None where there are no runs."""
        return self.grid.cells.get((self.grid.rows[row], floor))


def grid_views(results: Results) -> list[GridView]:
    """All grids among the finished runs; empty if no runs differ in a constant of the signal alone."""
    settings = settings_of(results)
    shown = [grid for grid in grids.grids(settings) if grid.has_uniform]
    points = grids.grid_points(settings)
    return [
        _view(f"sensitivity-{place}", grid, frozenset(points & (grid.groups | grid.lenders)))
        for place, grid in enumerate(shown)
    ]


def _view(name: str, grid: Grid, only: frozenset[Group]) -> GridView:
    heading = f"{title(grid.signal)}, {grid.setting.group.title}, over {grid.kind.label} and floor, {grid.common}"
    rows = [grids.row_text(row) for row in grid.rows]
    return GridView(heading, grid, rows, _chart(name, heading, grid, rows), only)


def _chart(name: str, heading: str, grid: Grid, names: Sequence[str]) -> Chart:
    spare = list(SIGNALS.values())[1:]
    items = [looks.item(f"row-{place}", spare[place % len(spare)], text) for place, text in enumerate(names)]
    panels = []
    for key, label, is_share, choose in PANELS:
        rows = [_series(f"row-{place}", grid, place, choose) for place in range(len(names))]
        axis = {"label": label, "zero": True, "percent": True} if is_share else {"label": label}
        panels.append(
            {
                "key": key,
                "title": label,
                "x": list(range(len(grid.floors))),
                "y": axis,
                "series": rows,
                "lines": [] if is_share else [{"value": 1.0}],
                "row": 0,
            }
        )
    data = {
        "id": name,
        "title": heading,
        "kind": "dots",
        "categories": [number_text(floor) for floor in grid.floors],
        "columns": len(panels),
        "legend": {"label": grid.kind.label.capitalize(), "items": items},
        "panels": panels,
        "xname": "floor",
        "xlabel": "floor under v",
        "wide": True,
        "dodge": True,
    }
    caption = (
        "Over the floor under v: the area under the test-loss curve relative to Uniform's, how far the draws are from "
        "uniform, and how many parameters are under the floor."
    )
    return Chart(name, heading, caption, data)


def _series(key: str, grid: Grid, place: int, choose: Choose) -> dict[str, object]:
    cells = [grid.cells.get((grid.rows[place], floor)) for floor in grid.floors]
    found = [choose(cell) if cell else None for cell in cells]
    row: dict[str, object] = {"key": key, "mean": [series.short(each.value) if each else None for each in found]}
    if any(each and each.is_bounded for each in found):
        row["low"] = [series.short(each.low) if each else None for each in found]
        row["high"] = [series.short(each.high) if each else None for each in found]
    return row
