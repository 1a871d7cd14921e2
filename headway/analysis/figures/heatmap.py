"""Heat maps: a number for every pair of two settings, ratios around 1 or shares from 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis.figures.style import GRID, INK, number_text
from headway.errors import FigureError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATIOS = "PuOr_r"
"""Purple below 1, orange above: told apart by colour-blind readers too. In greyscale the numbers tell the side."""
SHARES = "Blues"
LEAST_SPREAD = 1.1
"""The colours reach at least from 1/1.1 to 1.1, so that noise does not look like an effect."""

_PALER = 1.15
"""The colours go on beyond the last value, whose own would else be too dark."""


def ratio_map(
    ax: Axes,
    values: Any,
    rows: Sequence[float | str],
    columns: Sequence[float | str],
    *,
    sure: Any = None,
    spread: float | None = None,
    row_label: str = "",
    column_label: str = "floor under v",
    title: str = "",
) -> Axes:
    """A cell with its number for every pair of settings; colours diverge from 1, equally for r and 1/r.

    Args:
        ax: where to draw.
        values: ratios [rows, columns]; NaN where there is none.
        rows: the settings from top to bottom.
        columns: the settings from left to right.
        sure: which values differ from 1 for sure [rows, columns]; they are printed bold.
        spread: the ratio at which the colours end; None for the largest there is.
        row_label: what the rows are.
        column_label: what the columns are.
        title: above the panel.

    Raises:
        FigureError: the shapes do not fit, or a ratio is not above zero.
    """
    from matplotlib.colors import Normalize

    values = _checked(values, rows, columns)
    if (values <= 0).any():
        raise FigureError(f"expected ratios above 0, got {np.nanmin(values):g}")
    end = _PALER * math.log(spread if spread is not None else widest(values))
    mesh = _mesh(ax, np.log(values), RATIOS, Normalize(-end, end))
    _write(ax, mesh, np.log(values), lambda log: f"{math.exp(log):.3f}", sure)
    return _label(ax, rows, columns, row_label, column_label, title)


def share_map(
    ax: Axes,
    values: Any,
    rows: Sequence[float | str],
    columns: Sequence[float | str],
    *,
    row_label: str = "",
    column_label: str = "floor under v",
    title: str = "",
    most: float = 1.0,
) -> Axes:
    """A cell with its percentage for every pair of settings; the darker the more, from 0 to `most`.

    Args:
        ax: where to draw.
        values: shares [rows, columns]; NaN where there is none.
        rows: the settings from top to bottom.
        columns: the settings from left to right.
        row_label: what the rows are.
        column_label: what the columns are.
        title: above the panel.
        most: the share at which the colours end.

    Raises:
        FigureError: the shapes do not fit, or a share is not between 0 and 1.
    """
    from matplotlib.colors import Normalize

    values = _checked(values, rows, columns)
    if (values < 0).any() or (values > 1).any():
        raise FigureError(f"expected shares from 0 to 1, got {np.nanmin(values):g} to {np.nanmax(values):g}")
    mesh = _mesh(ax, values, SHARES, Normalize(0, _PALER * most))
    _write(ax, mesh, values, percent_text)
    return _label(ax, rows, columns, row_label, column_label, title)


def widest(values: Any) -> float:
    """The ratio at which the colours of these values end."""
    logs = np.abs(np.log(np.asarray(values, float)))
    return max(LEAST_SPREAD, float(np.exp(np.nanmax(logs)))) if np.isfinite(logs).any() else LEAST_SPREAD


def percent_text(share: float) -> str:
    """A share in percent, with more digits near both ends: 0.2%, 37%, 99.8%."""
    percent = 100 * share
    near_an_end = 0 < percent < 9.95 or 99 < percent < 100
    return f"{percent:.1f}%" if near_an_end else f"{percent:.0f}%"


def _checked(values: Any, rows: Sequence[object], columns: Sequence[object]) -> Any:
    values = np.asarray(values, float)
    if values.shape != (len(rows), len(columns)):
        raise FigureError(f"expected values of shape {(len(rows), len(columns))}, got {values.shape}")
    return values


def _mesh(ax: Axes, values: Any, colours: str, norm: Any) -> Any:
    """Cells in their colours; hatched where there is no value."""
    mesh = ax.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=norm, edgecolors="white", linewidth=1.0)
    missing = np.ma.masked_where(np.isfinite(values), np.zeros(values.shape))
    ax.pcolor(missing, cmap="Greys", hatch="//////", edgecolor=GRID, linewidth=0)
    return mesh


def _write(ax: Axes, mesh: Any, values: Any, text: Callable[[float], str], sure: Any = None) -> None:
    """Write the number into each cell, in white where it is dark and bold where it is sure."""
    for (row, column), value in np.ndenumerate(values):
        known = math.isfinite(value)
        ax.text(
            column + 0.5,
            row + 0.5,
            text(value) if known else "–",
            ha="center",
            va="center",
            fontsize=7,
            weight="bold" if sure is not None and sure[row, column] else "normal",
            color="white" if known and _is_dark(mesh.to_rgba(np.array([value]))[0]) else INK,
        )


def _label(
    ax: Axes,
    rows: Sequence[float | str],
    columns: Sequence[float | str],
    row_label: str,
    column_label: str,
    title: str,
) -> Axes:
    ax.set_xticks(np.arange(len(columns)) + 0.5, [_setting_text(x) for x in columns])
    ax.set_yticks(np.arange(len(rows)) + 0.5, [_setting_text(x) for x in rows])
    ax.set_ylim(len(rows), 0)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_xlabel(column_label)
    ax.set_ylabel(row_label)
    ax.set_title(title)
    return ax


def _setting_text(value: float | str) -> str:
    return value if isinstance(value, str) else number_text(value)


def _is_dark(colour: Any) -> bool:
    red, green, blue = colour[:3]
    return bool(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.25)
