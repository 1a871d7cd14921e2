"""The tables and the figure of docs/arena.md, from the runs in results/arena.

`python benchmarks/arena.py` draws the figure, light and dark; `python benchmarks/pages.py` writes the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.analysis import Results, load_results
from headway.analysis.arena_tables import BASELINE, by_method, improvement, leaderboard, middle, text
from headway.analysis.charts.drawing import COLUMN_WIDTH, new_figure
from headway.analysis.charts.figure import house_style, save
from headway.analysis.charts.model import INK, styles_for
from headway.analysis.charts.model import METHODS as METHOD_STYLES
from headway.analysis.report.rendering import dark as darkened
from headway.analysis.table import NOTHING, Cell, Table
from headway.study.protocols.arena import METHODS, ROOMS, TELEVISIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

ROOT = Path(__file__).parent.parent
PAGE_COLOURS = {False: ("#FFFFFF", INK, "#E4E4E4"), True: ("#14161A", "#E8E8E8", "#33363D")}
"""Ground, ink and grid of a figure, light and dark."""


def effect_of_gmc(results: Results) -> Table:
    """Each predictor scored by its error and by GMC, in the rooms with noise."""
    methods = by_method(results, [room for room in TELEVISIONS if room != "house-none"])
    rows: list[list[Cell]] = []
    for name, strata in methods.items():
        gmc = methods.get(f"{name}+gmc")
        if gmc is not None:
            both = (text(middle(each, "preference")) for each in (strata, gmc))
            lower = improvement(gmc, strata, "preference", lower_is_better=True)
            rows.append([name, *both, text(lower), text(improvement(gmc, strata, "covered"))])
    return Table(
        ("predictor", "preference, error", "preference, GMC", "GMC prefers noise less", "GMC covers more"), rows
    )


def preferences(results: Results) -> Table:
    """The interquartile mean of noise preference in each room with noise."""
    rooms = [room for room in TELEVISIONS if room != "house-none"]
    methods = by_method(results, rooms)
    rows: list[list[Cell]] = [
        [name, *(text(middle({room: strata[room]}, "preference")) if room in strata else NOTHING for room in rooms)]
        for name, strata in methods.items()
        if name != BASELINE
    ]
    return Table(("method", *(TELEVISIONS[room].removeprefix("House, ") for room in rooms)), rows)


def first_goals(results: Results, room: str = "chain") -> Table:
    """How soon each method first reached the goal of a room; runs that did not count as longer than all others."""
    rows: list[list[Cell]] = []
    for name, strata in by_method(results, [room]).items():
        firsts = np.array([run.first for run in strata[room]])
        reached = np.isfinite(firsts)
        longest = max(run.steps for run in strata[room])
        median = float(np.median(np.where(reached, firsts, np.inf)))
        shown = f"{median:,.0f}" if np.isfinite(median) else f"over {longest:,.0f}"
        rows.append([name, f"{reached.sum()} of {len(firsts)}", shown, longest])
    columns = ("method", "runs that reach the end", "median steps", "steps of a run")
    return Table(columns, rows, formats={"steps of a run": ",.0f"})


def missing(results: Results) -> str:
    """What of the whole arena was not run yet, in words."""
    found = {(run.condition, run.method) for run in results.select(experiment="arena").finished()}
    rooms_by_lack: dict[tuple[str, ...], list[str]] = {}
    for room in ROOMS:
        lack = tuple(name for name in METHODS if (room, name) not in found)
        if lack:
            rooms_by_lack.setdefault(lack, []).append(room)
    parts = [
        f"{'no method' if len(lack) == len(METHODS) else ', '.join(lack)} in {', '.join(rooms)}"
        for lack, rooms in rooms_by_lack.items()
    ]
    return f"Not run: {'; '.join(parts)}." if parts else "All methods were run in all rooms."


def markdown(results: Results) -> str:
    """All tables of the page."""
    parts = [
        ("Leaderboard, television rooms", leaderboard(results, TELEVISIONS)),
        ("Error or GMC", effect_of_gmc(results)),
        ("Noise preference by room", preferences(results)),
        ("The chain: steps to its end", first_goals(results)),
    ]
    exploring = [room for room in ROOMS if room not in TELEVISIONS and room != "chain"]
    if by_method(results, exploring):
        parts.append(("Leaderboard, exploration rooms", leaderboard(results, exploring)))
    sections = [f"### {title}\n\n{table.markdown()}" for title, table in parts if table.rows]
    return "\n\n".join([*sections, missing(results)])


def draw(results: Results, dark: bool = False) -> Figure:
    """Noise preference against coverage in the television rooms, a point per method; call it under `house_style()`.

    An arrow leads from a predictor scored by its error to the same scored by GMC.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    ground, ink, grid = PAGE_COLOURS[dark]
    methods = by_method(results, TELEVISIONS)
    styles = styles_for(methods, METHOD_STYLES)
    figure = new_figure(2 * COLUMN_WIDTH, 4.6)
    figure.set_facecolor(ground)
    axes = figure.subplots()
    axes.set_facecolor(ground)
    points: dict[str, tuple[float, float]] = {}
    for name, strata in methods.items():
        covered, preference = middle(strata, "covered"), middle(strata, "preference")
        if covered is None or preference is None:
            continue
        points[name] = preference.value, covered.value
        ends = [[[max(0, e.value - e.low)], [max(0, e.high - e.value)]] for e in (preference, covered)]
        known = preference.is_bounded and covered.is_bounded
        axes.errorbar(
            [preference.value],
            [covered.value],
            xerr=ends[0] if known else None,
            yerr=ends[1] if known else None,
            color=darkened(styles[name].colour) if dark else styles[name].colour,
            marker=styles[name].marker,
            linestyle="none",
            elinewidth=0.8,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    for name, point in points.items():
        if f"{name}+gmc" in points:
            arrow = {"arrowstyle": "->", "color": ink, "alpha": 0.35, "shrinkA": 6, "shrinkB": 6}
            axes.annotate("", points[f"{name}+gmc"], point, arrowprops=arrow)
    _label(axes, points, ink)
    axes.axvline(1, color=ink, linewidth=0.6, linestyle=":")
    axes.set_xlabel("noise preference: bonus per step in the noise over outside", color=ink)
    axes.set_ylabel("share of places covered", color=ink)
    axes.tick_params(colors=ink, which="both")
    axes.grid(color=grid)
    for spine in axes.spines.values():
        spine.set_color(ink)
    return figure


def _label(axes: Axes, points: Mapping[str, tuple[float, float]], ink: str) -> None:
    """Write each name beside its point, where it covers no other name if there is such a place."""
    taken: list[Bbox] = []
    for name, point in points.items():
        for x, y in ((5, 4), (-5, 4), (5, -10), (-5, -10), (5, 14), (-5, 14), (5, -20), (-5, -20)):
            side = "left" if x > 0 else "right"
            label = axes.annotate(
                name, point, (x, y), textcoords="offset points", fontsize=7, color=ink, horizontalalignment=side
            )
            box = label.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                break
            label.remove()
        else:
            axes.add_artist(label)
        taken.append(box)


def main() -> None:
    """Write both figures."""
    results = load_results(ROOT / "results" / "arena")
    with house_style():
        for name, dark in (("arena", False), ("arena-dark", True)):
            save(draw(results, dark), ROOT / "docs" / "figures" / name, ["svg"])


if __name__ == "__main__":
    main()
