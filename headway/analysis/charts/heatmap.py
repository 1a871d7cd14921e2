"""Heat maps for print: a number for every pair of two settings, ratios around 1 or shares from 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis.charts.figure import GRID, plain
from headway.analysis.charts.model import Chart, Panel
from headway.analysis.charts.style import INK, percent_text
from headway.errors import FigureError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATIOS = "PuOr_r"
"""Purple below 1, orange above: told apart by colour-blind readers too. In greyscale the numbers tell the side."""
SHARES = "Blues"
LEAST_SPREAD = 1.1
"""The colours reach at least from 1/1.1 to 1.1, so that noise does not look like an effect."""

LEAST_MOST = 0.1
"""The colours of distances reach at least as far, for the same reason."""

_PALER = 1.15
"""The colours go on beyond the last value, whose own would else be too dark."""


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
        ax.text(
            column + 0.5,
            row + 0.5,
            text(value) if known else "–",
            ha="center",
            va="center",
            fontsize=7,
            weight="bold" if bold[row, column] else "normal",
            color="white" if known and _is_dark(mesh.to_rgba(np.array([value]))[0]) else INK,
        )


def _is_dark(colour: Any) -> bool:
    red, green, blue = colour[:3]
    return bool(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.25)
