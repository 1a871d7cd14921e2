"""The renderer for print: draws a `Chart` with matplotlib, in the house style.

`draw(chart)` makes the whole figure, `draw_panel(ax, panel, chart)` fills axes of your own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis.charts.model import BARS, INK, LINES, STEPS, Chart, Panel, Style
from headway.analysis.rundata import Array
from headway.analysis.summaries import Band
from headway.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_WIDTH, TEXT_WIDTH = 3.3, 6.8  # Width in inches of a figure in one of two columns, and across the page
SMALLEST_FONT = 7.0  # No text in a figure is smaller than this, in points
PALE, GRID = "#666666", "#E4E4E4"  # Colours of remarks and of grid lines
PICTURE_WIDTH = 0.72  # Width of a picture beside a panel, as a part of the panel's
MARKERS = 5  # Markers on a curve; curves take turns, so that those of two curves do not cover each other
BAND_ALPHA, SINGLE_ALPHA = 0.2, 0.5
LETTER, MARGIN = 0.045, 0.04  # Width of a letter, and room between two names, as parts of a panel


def draw(chart: Chart) -> Figure:
    """A chart as a figure. Call it, and save the figure, under `house_style()`."""
    if chart.figure is not None:
        return chart.figure()
    if chart.kind == LINES:
        return _draw_lines(chart)
    from headway.analysis.charts import bars_and_maps

    return bars_and_maps.draw_bars_figure(chart) if chart.kind == BARS else bars_and_maps.draw_maps_figure(chart)


def _draw_lines(chart: Chart) -> Figure:
    """Pictures if there are any, then the panels: row by row, or those that belong together above each other."""
    count = len(chart.panels)
    across = count // chart.rows if chart.rows > 1 else min(chart.columns, count)
    down = math.ceil(count / across) if across else 1
    first = len(chart.pictures)
    widths = [PICTURE_WIDTH if count else 1.0] * first + [1.0] * across
    figure = new_figure(TEXT_WIDTH if count and len(widths) > 1 else COLUMN_WIDTH, chart.height)
    axes = figure.subplots(down, len(widths), squeeze=False, width_ratios=widths)
    if chart.pictures:
        from headway.analysis.charts.exploration import draw_gridworld

        for ax, picture in zip(axes[0], chart.pictures, strict=False):
            draw_gridworld(ax, picture.grid).set_title(picture.title)
    grid = axes[:, first:]
    places = [divmod(i, across) if chart.rows == 1 else divmod(i, down)[::-1] for i in range(count)]
    shown = dict(zip(places, chart.panels, strict=True))
    for place, panel in shown.items():
        draw_panel(grid[place], panel, chart)
    for place, ax in np.ndenumerate(grid):
        if place not in shown:
            ax.remove()
    _name_outer_axes(grid, shown)
    for row in {panel.row for panel in chart.panels}:
        _align({grid[place]: panel for place, panel in shown.items() if panel.row == row}, chart)
    if count:
        _legend(figure, chart)
    return figure


def draw_panel(ax: Axes, panel: Panel, chart: Chart) -> Axes:
    """The curves of a panel with their bands, its lines for reference and the names of its axes."""
    bands = {key: percent(band) if panel.y.percent else band for key, band in panel.series.items()}
    scale = 100 if panel.y.percent else 1
    for line in panel.lines:
        colour = chart.styles[line.key].colour if line.key else PALE
        width, alpha = (0.6, 0.7) if line.key else (0.8, None)
        ax.axhline(scale * line.value, color=colour, linewidth=width, alpha=alpha, zorder=1)
    draw_bands(ax, bands, chart.styles, from_zero=panel.y.zero, few=chart.few)
    if panel.y.full:
        ax.set_ylim(0, 104)
        ax.set_yticks([0, 25, 50, 75, 100])
    for line in panel.lines:
        if line.label and not line.key:
            _end_above(ax, line.value, line.label)
    ax.set_title(plain(panel.title))
    ax.set_ylabel(f"{panel.y.label} (%)" if panel.y.percent else panel.y.label)
    ax.set_xlabel(chart.x[1])
    if chart.x == STEPS:
        _step_axis(ax)
    return ax


def draw_bands(
    ax: Axes, bands: Mapping[str, Band], styles: Mapping[str, Style], *, from_zero: bool = True, few: int = 0
) -> Axes:
    """Draw several curves, each in the style of its key."""
    marked = [key for key in styles if key in bands and styles[key].marker]
    for turn, key in enumerate(marked):
        draw_band(ax, bands[key], styles[key], turn, len(marked), few)
    for key in [key for key in bands if key not in marked]:
        style = styles[key]
        look: dict[str, Any] = {"color": style.colour, "linewidth": 1.0, "linestyle": style.dash}
        ax.plot(bands[key].x, bands[key].mean, label=plain(style.name), zorder=4, **look)
    return fit(ax, bands.values(), from_zero=from_zero, few=few)


def draw_band(ax: Axes, band: Band, style: Style, turn: int = 0, turns: int = 1, few: int = 0) -> Axes:
    """Draw a mean with its interval; without an interval where it is not known (a single seed)."""
    known = np.isfinite(band.low) & np.isfinite(band.high)
    singles = _singles(band, few)
    if singles is not None:
        for single in singles[np.isfinite(singles).any(1)] if band.n > 1 else ():
            ax.plot(band.x, single, color=style.colour, alpha=SINGLE_ALPHA, linewidth=0.5, zorder=2)
    elif known.any():
        ax.fill_between(
            band.x, band.low, band.high, where=known, color=style.colour, alpha=BAND_ALPHA, linewidth=0, zorder=2
        )
    ax.plot(
        band.x,
        band.mean,
        color=style.colour,
        linestyle=style.dash,
        marker=style.marker,
        markevery=marker_places(len(band.x), turn, turns),
        markeredgecolor=style.colour if style.marker == "x" else "white",
        markeredgewidth=0.9 if style.marker == "x" else 0.4,
        markersize=5.2 if style.marker == "*" else None,
        dash_capstyle="butt",
        label=plain(style.name),
        zorder=3,
    )
    return ax


def marker_places(length: int, turn: int, turns: int) -> list[int]:
    """The points of a curve that carry a marker: a few, evenly spread, at other places for each turn."""
    if length <= MARKERS:
        return list(range(length))
    step = length / MARKERS
    return sorted({min(length - 1, int(step * (i + (turn + 0.5) / turns))) for i in range(MARKERS)})


def _singles(band: Band, few: int) -> Array | None:
    """The single curves, if they are drawn instead of the interval."""
    return band.singles if band.n < few else None


def percent(band: Band) -> Band:
    """Shares in percent."""
    singles = None if band.singles is None else 100 * band.singles
    return Band(band.x, 100 * band.mean, 100 * band.low, 100 * band.high, band.n, singles)


def fit(ax: Axes, bands: Iterable[Band], *, from_zero: bool = True, few: int = 0) -> Axes:
    """Set the limits so that the curves fill the panel. An interval may be cut off, a mean never is."""
    bands = list(bands)
    xs = np.concatenate([band.x for band in bands] or [np.array([0.0, 1.0])])
    ax.set_xlim(*training_range(float(xs.min()), float(xs.max())))
    low, high = vertical_range(bands, few)
    bottom, top = padded(low, high, 0.05)
    lowest = min((np.nanmin(band.mean) for band in bands if np.isfinite(band.mean).any()), default=0.0)
    if lowest >= 0 and (from_zero or bottom < 0):  # an interval of two seeds may reach below zero, where no loss is
        bottom = -0.015 * top  # a line at zero shows in its full width
    ax.set_ylim(bottom, top)
    return ax


def vertical_range(bands: Iterable[Band], few: int = 0) -> tuple[float, float]:
    """The range that the curves take up, single ones too where they are drawn.

    Intervals count as far as they reach no farther from the means than the means themselves spread, or half
    their own height: three seeds can have an interval that would flatten everything else.
    """
    bands = list(bands)
    singles = [drawn for band in bands if (drawn := _singles(band, few)) is not None]
    means = _finite([*(band.mean for band in bands), *singles])
    if not len(means):
        return 0.0, 1.0
    low, high = float(means.min()), float(means.max())
    slack = max(high - low, abs(high) / 2)
    ends = _finite([end for band in bands if _singles(band, few) is None for end in (band.low, band.high)])
    if len(ends):
        low = min(low, max(float(ends.min()), low - slack))
        high = max(high, min(float(ends.max()), high + slack))
    return low, high


def _finite(arrays: Iterable[Any]) -> Any:
    values = np.concatenate([np.ravel(array) for array in arrays] or [np.empty(0)])
    return values[np.isfinite(values)]


def training_range(first: float, last: float) -> tuple[float, float]:
    """The horizontal range of training: from zero if the first point is near it, with some room after the last."""
    start = 0.0 if 0 <= first <= 0.1 * last else first
    return padded(start, last, 0.0) if last <= start else (start, last + 0.025 * (last - start))


def padded(low: float, high: float, share: float) -> tuple[float, float]:
    """A range with some room on both sides, and never of no width."""
    if high <= low:
        return low - 0.5, high + 0.5
    room = share * (high - low)
    return low - room, high + room


def _end_above(ax: Axes, highest: float, text: str) -> None:
    """End the vertical axis above a line that is a bound, with a remark at its right end."""
    low = min(ax.get_ylim()[0], 0.9 * highest)
    low = 0.0 if low < 0.4 * highest else low
    ax.set_ylim(low, highest + 0.16 * (highest - low))
    where: Any = ax.get_yaxis_transform()
    place = {"xycoords": where, "textcoords": "offset points", "ha": "right", "va": "bottom"}
    ax.annotate(text, (1, highest), (0, 1.5), fontsize=7, color=PALE, **place)


def _step_axis(ax: Axes) -> None:
    """Name a horizontal axis of environment steps and write its numbers in thousands or millions."""
    from matplotlib.ticker import FuncFormatter

    longest = max(abs(end) for end in ax.get_xlim())
    unit, name = next(((u, n) for u, n in ((1e6, "million"), (1e3, "thousand")) if longest >= u), (1.0, ""))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:g}"))
    ax.set_xlabel(f"{STEPS[1]} ({name})" if name else STEPS[1])


def _name_outer_axes(grid: Any, shown: Mapping[tuple[int, int], Panel]) -> None:
    """Name axes and panels once: what the neighbour on the left, above or below says already is left out."""
    for (row, column), panel in shown.items():
        left, above = shown.get((row, column - 1)), shown.get((row - 1, column))
        ax = grid[row, column]
        if left is not None and left.y.label == panel.y.label:
            ax.set_ylabel("")
        if above is not None and above.title == panel.title:
            ax.set_title("")
        below = shown.get((row + 1, column))
        if below is not None:
            ax.set_xlabel("")
            ax.tick_params(labelbottom=below.key != panel.key)


def _align(panels: Mapping[Axes, Panel], chart: Chart) -> None:
    """Give panels the same vertical range, write its numbers once, and mark the peaks of their curves."""
    ends = [ax.get_ylim() for ax in panels]
    for place, ax in enumerate(panels):
        ax.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
        ax.tick_params(labelleft=place == 0)
    if any(panel.peaks for panel in panels.values()):
        for ax, panel in panels.items():
            bottom, top = ax.get_ylim()
            ax.set_ylim(bottom, top + 0.28 * (top - bottom))  # room above the curves, for the names and their arrows
            ax.set_yticks([tick for tick in ax.get_yticks() if 0 <= tick <= top])
            _mark_peaks(ax, panel, chart)


def _mark_peaks(ax: Axes, panel: Panel, chart: Chart) -> None:
    """An arrow to each curve at its peak, from the name of the series at the top of the panel."""
    marks = []
    for key, peak in panel.peaks.items():
        band = percent(panel.series[key]) if panel.y.percent else panel.series[key]
        place = int(np.argmin(np.abs(band.x - peak)))
        if np.isfinite(band.mean[place]):
            marks.append((float(band.x[place]), float(band.mean[place]), chart.styles[key]))
    marks.sort(key=lambda mark: mark[0])
    left, right = ax.get_xlim()
    width = MARGIN + LETTER * max((len(chart.styles[key].name) for key in panel.series), default=0)
    names = spread([(x - left) / (right - left) for x, _, _ in marks], width)
    for name, (x, y, style) in zip(names, marks, strict=True):
        ax.annotate(
            style.name,
            (x, y),
            (name, 0.985),
            textcoords="axes fraction",
            ha="center",
            va="top",
            fontsize=7,
            weight="bold",
            color=INK,
            arrowprops={"arrowstyle": "-|>", "color": style.colour, "linewidth": 0.75, "shrinkA": 1, "shrinkB": 2},
            zorder=6,
        )


def spread(places: Sequence[float], room: float) -> list[float]:
    """Move places apart, as little as needed for names of this width: sorted in [0, 1] -> sorted in [0, 1]."""
    found: list[float] = []
    for place in places:
        found.append(max(place, room / 2, found[-1] + room if found else 0.0))
    limit = 1 - room / 4
    for number in reversed(range(len(found))):
        found[number] = min(found[number], limit)
        limit = found[number] - room
    return found


def _legend(figure: Figure, chart: Chart) -> None:
    """The legend of all panels, in the order of the styles."""
    from matplotlib.lines import Line2D

    found: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    handles = {
        f"group {plain(style.name)}" if key.startswith("group-") else plain(style.name): found[plain(style.name)]
        for key, style in chart.styles.items()
        if plain(style.name) in found
    }
    for label in dict.fromkeys(line.label for panel in chart.panels for line in panel.lines if line.key):
        handles[label] = Line2D([], [], color=PALE, linewidth=0.6)
    legend_below(figure, list(handles.values()), list(handles), plain(chart.heading))


def require() -> None:
    """Make sure that figures can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report") from error


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that lays itself out and belongs to no global state; sizes are in inches."""
    require()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str], title: str = "") -> None:
    """A legend under all panels, in as few rows as the width allows, to be read row by row; with a title above it."""
    inches = sum(0.055 * len(label) + 0.6 for label in labels)  # letters of 7.5 points, and the handle
    rows = max(1, math.ceil(inches / figure.get_figwidth()))
    across = math.ceil(len(labels) / rows)
    order = [place for column in range(across) for place in range(column, len(labels), across)]
    figure.legend(
        [handles[place] for place in order],
        [labels[place] for place in order],
        loc="outside lower center",
        ncols=across,
        title=title or None,
        title_fontsize=8,
    )


def plain(name: str) -> str:
    """A name that a user has chosen, so that matplotlib shows it as it is: no formula, and not left out of legends."""
    name = name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name
