"""Numbers without curves, for print: ratios as bars, on an axis that is split where most would else be flat; maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headway.analysis.charts.drawing import COLUMN_WIDTH, GRID, TEXT_WIDTH, legend_below, new_figure, plain
from headway.analysis.charts.model import INK, Chart, Panel, Style, percent_text
from headway.analysis.stats import Estimate
from headway.errors import FigureError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LARGE = 0.3  # The axis is broken only where so much of it is empty ...
WORTH = 1.35  # ... and if that makes the bars below the break so many times as tall.
UPPER = 0.45  # What is above a break takes up no more than this part of what is below
GAP = 0.07  # The part of the axis that a break takes up
FARTHEST = 2.0  # How far beyond the longest bar an interval may reach before it is cut off, in lengths of that bar
FOLD = 1.05
"""Where no stretch is empty the axis is folded here: what is below is enlarged, as in the paper's figure ..."""
MOST_BELOW = 0.6  # ... if at least this part of the bars ends below.


_TIGHTEST = 0.25
_AFTER_GAP = 0.04
_LEAST_SPAN = 0.02
_NUMBER, _LINE = 25.0, 10.0  # The length and the height of a number, in points


class Break(NamedTuple):
    """A stretch of an axis that is left out, and the factor by which what is above it is squeezed.

    Where `start` is `stop` nothing is left out: the axis is folded, and only its scale changes.
    """

    start: float
    stop: float
    factor: float = 1.0


class Scale(NamedTuple):
    """A vertical axis: its ends, and where it is broken, if it is."""

    low: float
    high: float
    gap: Break | None = None


def draw_bars_figure(chart: Chart) -> Figure:
    """The numbers of all panels in one."""
    figure = new_figure(TEXT_WIDTH if len(chart.panels) > 1 else COLUMN_WIDTH, chart.height)
    ax = draw_bars(figure.subplots(), chart)
    legend_below(figure, *ax.get_legend_handles_labels())
    return figure


def draw_maps_figure(chart: Chart) -> Figure:
    """Panels in a row, with the names of the rows at the first alone."""
    figure = new_figure(TEXT_WIDTH, chart.height)
    panels = figure.subplots(1, len(chart.panels), sharey=True)
    for ax, panel in zip(panels, chart.panels, strict=True):
        draw_map(ax, panel, chart)
    panels[0].set_ylabel(chart.legend)
    figure.suptitle(plain(chart.heading), fontsize=9)
    return figure


def draw_bars(ax: Axes, chart: Chart) -> Axes:
    """Bars that begin at 1, the level of Uniform: upwards is worse, downwards better.

    Where a run diverged there is no ratio, and a word instead of a bar.
    """
    ratios = [
        {key: Estimate(band.mean[0], band.low[0], band.high[0], band.n) for key, band in panel.series.items()}
        for panel in chart.panels
    ]
    keys = {key: style for key, style in chart.styles.items() if key != "uniform"}
    shown = [bar for bars in ratios for key, bar in bars.items() if key != "uniform"]
    figure: Any = ax.get_figure()
    inches = ax.get_position().size * figure.get_size_inches()  # about how wide and high the panel is
    upright = inches[0] / (len(ratios) * len(keys)) < 0.3
    scale = plan_scale(shown, min(0.2, (_NUMBER if upright else _LINE) / 72 / inches[1]))
    set_scale(ax, scale)
    ax.axhline(1, color=INK, linewidth=0.9, zorder=4)
    width = 0.84 / max(1, len(keys))
    for place, bars in enumerate(ratios):
        lost = "Uniform diverged" if "uniform" in bars and not _is_known(bars["uniform"]) else "diverged"
        for number, (key, style) in enumerate(keys.items()):
            if key in bars:
                x = place + (number - (len(keys) - 1) / 2) * width
                is_first = not any(key in before for before in ratios[:place])
                label = plain(style.name) if is_first else None
                _bar(ax, x, width, bars[key], style, label)
                if _is_known(bars[key]):
                    _number(ax, x, bars[key], scale, upright)
                else:  # on that side of Uniform's level where there is more room
                    up = (ax.transScale + ax.transLimits).transform((0, 1))[1] < 0.5
                    _write(ax, lost, x, 1, 3 if up else -3, 90)
    ax.set_xlim(-0.5, len(ratios) - 0.5)
    ax.set_xticks(range(len(ratios)), ["\n".join(reversed(plain(each.title).split(", "))) for each in chart.panels])
    ax.tick_params(axis="x", length=0, labelsize=8)
    ax.grid(visible=False, axis="x")
    ax.spines["bottom"].set_visible(False)
    for place in range(1, len(ratios)):
        ax.axvline(place - 0.5, color=GRID, linewidth=0.8, zorder=1)
    ax.set_ylabel(chart.panels[0].y.label if chart.panels else "")
    return ax


def plan_scale(bars: Sequence[Estimate], room: float) -> Scale:
    """The axis for these bars.

    It shows 1, all values, and their intervals unless one reaches far beyond all bars. It is broken when a few bars
    make all others flat: at the largest stretch where nothing is (no bar ends there, no interval reaches there, 1 is
    not there), if most bars are below it and become much taller. What is above the break is squeezed if it would
    take up more than its part. Without such a stretch it is folded at `FOLD`, if that makes most bars much taller.
    """
    bars = [bar for bar in bars if _is_known(bar)]
    low, high = _reach(bars)
    below = room if low < 1 else 0.0
    height = (high - low) / (1 - below - room)
    whole = Scale(low - below * height, high + room * height)
    end, resume = _largest_gap(bars)
    lower, upper = max(end - low, _LEAST_SPAN), max(high - resume, _LEAST_SPAN)
    factor = min(1.0, max(_TIGHTEST, UPPER * lower / upper))
    height_broken = (lower + factor * upper) / (1 - below - 2 * room - GAP - _AFTER_GAP)
    start, stop = end + room * height_broken, resume - _AFTER_GAP * height_broken / factor
    few = 3 * sum(bar.value > end for bar in bars) <= len(bars)
    is_worth_it = few and resume - end >= LARGE * (high - low) and height >= WORTH * height_broken
    if not is_worth_it or stop - start < GAP * height_broken:  # the numbers of the bars below would fill it
        return _folded(bars, low, high, below, room) or whole
    return Scale(low - below * height_broken, high + room * height_broken / factor, Break(start, stop, factor))


def _folded(bars: Sequence[Estimate], low: float, high: float, below: float, room: float) -> Scale | None:
    """The axis with another scale above `FOLD`; None where that is not worth it."""
    lower, upper = FOLD - low, high - FOLD
    if upper <= 0 or sum(bar.value < FOLD for bar in bars) < MOST_BELOW * len(bars):
        return None
    factor = UPPER * lower / upper
    height = (lower + factor * upper) / (1 - below - room)
    if (high - low) / (1 - below - room) < WORTH * height:
        return None
    return Scale(low - below * height, high + room * height / factor, Break(FOLD, FOLD, factor))


def _reach(bars: Sequence[Estimate]) -> tuple[float, float]:
    """The range from the lowest to the highest thing to show."""
    values = [1.0, *(bar.value for bar in bars)]
    low, high = min(values), max(values)
    slack = FARTHEST * max(high - low, _LEAST_SPAN)
    low = min([low, *(max(_least(bar), low - slack) for bar in bars)])
    high = max([high, *(min(_most(bar), high + slack) for bar in bars)])
    return low, max(high, low + _LEAST_SPAN)


def _largest_gap(bars: Sequence[Estimate]) -> tuple[float, float]:
    """The largest stretch between the ends of bars, with their intervals."""
    spans = sorted([(1.0, 1.0), *((_least(bar), _most(bar)) for bar in bars)])
    best, end = (1.0, 1.0), spans[0][1]
    for first, last in spans[1:]:
        if first - end > best[1] - best[0]:
            best = (end, first)
        end = max(end, last)
    return best


def set_scale(ax: Axes, scale: Scale) -> None:
    """Scale the vertical axis, with the gap squeezed to a strip that crosses the whole panel."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, StrMethodFormatter

    low, high, gap = scale
    if gap is None:
        ax.set_ylim(low, high)
        ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        return
    start, stop, factor = gap
    is_fold = start == stop
    strip = 0.0 if is_fold else GAP * (start - low + factor * (high - stop)) / (1 - GAP)
    squeeze = 0.0 if is_fold else strip / (stop - start)

    def forward(y: Any) -> Any:
        y = np.asarray(y, float)
        above = start + strip + factor * (y - stop)
        return np.where(y <= start, y, np.where(y >= stop, above, start + squeeze * (y - start)))

    def back(t: Any) -> Any:
        t = np.asarray(t, float)
        above = stop + (t - start - strip) / factor
        inside = start + (t - start) / (squeeze or 1.0)
        return np.where(t <= start, t, np.where(t >= start + strip, above, inside))

    ax.set_yscale("function", functions=(forward, back))
    ax.set_ylim(low, high)
    step = _round_step((start - low) / 4)
    upper_step = max(step, _round_step((high - stop) / 3))
    ax.yaxis.set_major_locator(FixedLocator([*_multiples(step, low, start), *_multiples(upper_step, stop, high)]))
    decimals = len(f"{step:.9f}".rstrip("0").partition(".")[2])
    ax.yaxis.set_major_formatter(StrMethodFormatter(f"{{x:.{decimals}f}}"))
    if is_fold:
        ax.axhspan(stop, high, facecolor=GRID, alpha=0.35, edgecolor="none", zorder=0)
        ax.axhline(stop, color=INK, linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
    else:
        ax.axhspan(start, stop, facecolor="white", edgecolor="none", zorder=5)
    spine: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "clip_on": False}
    marks: dict[str, Any] = {"marker": [(-1, -0.5), (1, 0.5)], "markersize": 6, "mew": 0.8}  # short slanted lines
    ax.plot([0, 0], [start, stop], color="white", linewidth=1.6, zorder=6, **spine)
    ax.plot([0, 0], [start, stop], linestyle="none", color=INK, zorder=7, **marks, **spine)


def _bar(ax: Axes, x: float, width: float, bar: Estimate, style: Style, label: str | None) -> None:
    height = bar.value - 1 if _is_known(bar) else 0  # flat, to be in the legend all the same
    edge = "white" if style.hatch else style.colour
    look: dict[str, Any] = {"color": style.colour, "hatch": style.hatch, "edgecolor": edge}
    ax.bar(x, height, 0.9 * width, bottom=1, linewidth=0, label=label, zorder=2, **look)
    if bar.is_bounded:
        for thickness, ink in ((2.4, "white"), (1.0, INK)):  # an outline, to be seen on dark bars too
            ax.plot([x, x], [bar.low, bar.high], color=ink, linewidth=thickness, solid_capstyle="butt", zorder=3)


def _number(ax: Axes, x: float, bar: Estimate, scale: Scale, upright: bool) -> None:
    """The ratio, beyond the end of the bar and of its interval."""
    up = bar.value >= 1
    end = min(_most(bar), scale.high) if up else max(_least(bar), scale.low)
    digits = 2 if abs(bar.value - 1) >= 0.1 else 3  # near 1 the third digit counts
    _write(ax, f"{bar.value:.{digits}f}", x, end, 2 if up else -2, 90 if upright else 0)


def _write(ax: Axes, text: str, x: float, y: float, offset: float, rotation: float) -> None:
    """A small text above a place, or below it where the offset is negative."""
    place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom" if offset > 0 else "top"}
    ax.annotate(text, (x, y), (0, offset), rotation=rotation, fontsize=7, color=INK, zorder=8, **place)


def _is_known(bar: Estimate) -> bool:
    return math.isfinite(bar.value)


def _least(bar: Estimate) -> float:
    return min(bar.value, bar.low) if np.isfinite(bar.low) else bar.value


def _most(bar: Estimate) -> float:
    return max(bar.value, bar.high) if np.isfinite(bar.high) else bar.value


def _round_step(rough: float) -> float:
    """The round number that is nearest to a step between ticks."""
    power = 10.0 ** math.floor(math.log10(rough))
    return min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda step: abs(step - rough))


def _multiples(step: float, low: float, high: float) -> Iterable[float]:
    return (step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1))


RATIOS = "PuOr_r"
"""Purple below 1, orange above: told apart by colour-blind readers too. In greyscale the numbers tell the side."""
SHARES = "Blues"
LEAST_SPREAD = 1.1  # The colours reach at least from 1/1.1 to 1.1, so that noise does not look like an effect
LEAST_MOST = 0.1  # The colours of distances reach at least as far, for the same reason
LONGEST = 7  # Letters of a column's name; longer ones are upright
_PALER = 1.15  # The colours go on beyond the last value, whose own would else be too dark


def draw_map(ax: Axes, panel: Panel, chart: Chart) -> Axes:
    """A cell with its number for every pair of settings: rows are series, columns the chart's categories.

    Shares grow darker from 0 on. Colours of ratios diverge from 1, equally for r and 1/r, and those whose interval
    does not hold 1 are bold.
    """
    from matplotlib.colors import Normalize

    low, values, high = (
        np.array([getattr(row, end) for row in panel.series.values()]) for end in ("low", "mean", "high")
    )
    if panel.y.percent:
        if (values < 0).any() or (values > 1).any():
            raise FigureError(f"expected shares from 0 to 1, got {np.nanmin(values):g} to {np.nanmax(values):g}")
        most = 1.0 if panel.y.full else max(LEAST_MOST, float(np.nanmax(values)))
        _cells(ax, values, SHARES, Normalize(0, _PALER * most), percent_text, np.zeros(values.shape, bool))
    else:
        if (values <= 0).any():
            raise FigureError(f"expected ratios above 0, got {np.nanmin(values):g}")
        end = _PALER * math.log(widest(values))
        sure = np.isfinite(values) & ((low > 1) | (high < 1))
        _cells(ax, np.log(values), RATIOS, Normalize(-end, end), lambda log: f"{math.exp(log):.3f}", sure)
    ax.set_xticks(np.arange(len(chart.categories)) + 0.5, chart.categories)
    if max(map(len, chart.categories), default=0) > LONGEST:
        ax.tick_params(axis="x", labelrotation=90)
    ax.set_yticks(np.arange(len(panel.series)) + 0.5, [chart.styles[key].name for key in panel.series])
    ax.set_ylim(len(panel.series), 0)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_xlabel(chart.x[1])
    ax.set_title(plain(panel.title))
    return ax


def widest(values: Any) -> float:
    """The ratio at which the colours of these values end."""
    logs = np.abs(np.log(np.asarray(values, float)))
    return max(LEAST_SPREAD, float(np.exp(np.nanmax(logs)))) if np.isfinite(logs).any() else LEAST_SPREAD


def _cells(ax: Axes, values: Any, colours: str, norm: Any, text: Callable[[float], str], bold: Any) -> None:
    """Cells in their colours with their numbers, in white where they are dark; hatched where there is no value."""
    mesh = ax.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=norm, edgecolors="white", linewidth=1.0)
    missing = np.ma.masked_where(np.isfinite(values), np.zeros(values.shape))
    ax.pcolor(missing, cmap="Greys", hatch="//////", edgecolor=GRID, linewidth=0)
    for (row, column), value in np.ndenumerate(values):
        known = math.isfinite(value)
        luminance = mesh.to_rgba(np.array([value]))[0][:3] ** 2.2 @ (0.2126, 0.7152, 0.0722)
        ax.text(
            column + 0.5,
            row + 0.5,
            text(value) if known else "–",
            ha="center",
            va="center",
            fontsize=7,
            weight="bold" if bold[row, column] else "normal",
            color="white" if known and luminance < 0.25 else INK,
        )
