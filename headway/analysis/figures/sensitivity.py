"""Heat maps of a sensitivity grid: loss area, allocation, and parameters under the floor, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from headway.analysis.figures.catalogue import Drawing, Item, Omission, Setting, seeds_text, slug
from headway.analysis.figures.grids import Grid, as_array, grids, row_text
from headway.analysis.figures.heatmap import ratio_map, share_map
from headway.analysis.figures.style import TEXT_WIDTH, new_figure
from headway.study.protocols.names import title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_MOST = 0.1
"""The colours of distances reach at least as far, so that noise does not look like an effect."""


def maps(settings: Sequence[Setting]) -> Iterator[Item]:
    """Three maps in one figure for each grid of runs."""
    names: list[str] = []
    for grid in grids(settings):
        name = slug("sensitivity", grid.setting.name, grid.signal, grid.kind.name)
        names.append(name)
        name += f"-{names.count(name)}" if names.count(name) > 1 else ""  # a grid for each of several protocols
        if not grid.has_uniform:
            yield Omission(name, "no finished runs of Uniform to compare with")
            continue
        yield Drawing(name, _caption(grid), partial(map_figure, grid))
    if not names and settings:
        yield Omission("sensitivity", "no runs that differ in decay rate, floor or weight of the entropy alone")


def _caption(grid: Grid) -> str:
    return (
        f"{title(grid.signal)}, {grid.setting.title}, over {grid.label} and the floor under v ({grid.unit}), "
        f"{grid.common}, {seeds_text(grid.points.values())}. Left: loss area relative to that of Uniform (protocol "
        f"{grid.uniform_text}), bold where the 95% interval does not hold 1 (of twenty cells, one by chance). Middle: "
        "distance of the draws from uniform, half the sum over groups. Right: parameters whose second moment is under "
        "the floor, mean over the run."
    )


def map_figure(grid: Grid) -> Figure:
    """The maps with the rows' names at the first only."""
    figure = new_figure(TEXT_WIDTH, min(4.0, 1.05 + 0.27 * len(grid.rows)))
    panels = figure.subplots(1, 3, sharey=True)
    rows, floors = [row_text(row) for row in grid.rows], grid.floors
    sure = np.zeros((len(rows), len(floors)), bool)
    for (row, floor), cell in grid.cells.items():
        sure[grid.rows.index(row), floors.index(floor)] = not cell.ratio.covers(1)
    ratio_map(
        panels[0],
        as_array(grid, "ratio"),
        rows,
        floors,
        sure=sure,
        row_label=grid.label,
        title="loss area / Uniform's",
    )
    distance = as_array(grid, "distance")
    most = max(LEAST_MOST, float(np.nanmax(distance)))
    share_map(panels[1], distance, rows, floors, title="distance from uniform draws", most=most)
    share_map(panels[2], as_array(grid, "under_floor"), rows, floors, title="parameters under the floor")
    words = f"{title(grid.signal)}: {grid.setting.title}, {grid.common}, {seeds_text(grid.points.values())}"
    figure.suptitle(words, fontsize=9)
    return figure
