"""Sensitivity: a value for every pair of two settings, as a heat map around 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis.figures.style import GRID, INK
from headway.errors import FigureError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = "PuOr_r"
"""Purple below 1, orange above: told apart by colour-blind readers too. In greyscale the numbers tell the side."""
LEAST_SPREAD = 1.1
"""The colours reach at least from 1/1.1 to 1.1, so that noise does not look like an effect."""

_PALER = 1.15
"""The colours go on beyond the last value, whose own would else be too dark."""


def sensitivity_map(
    ax: Axes,
    values: Any,
    rows: Sequence[float],
    columns: Sequence[float],
    *,
    sure: Any = None,
    spread: float | None = None,
    row_label: str = "decay rate β",
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

    Returns:
        the axes; the coloured mesh is the first of its collections, for a colour bar.

    Raises:
        FigureError: the shapes do not fit, or a ratio is not above zero.
    """
    from matplotlib.colors import Normalize

    values = np.asarray(values, float)
    if values.shape != (len(rows), len(columns)):
        raise FigureError(f"expected values of shape {(len(rows), len(columns))}, got {values.shape}")
    if (values <= 0).any():
        raise FigureError(f"expected ratios above 0, got {np.nanmin(values):g}")
    sure = np.zeros(values.shape, bool) if sure is None else np.asarray(sure, bool)
    logs = np.log(values)
    end = math.log(spread if spread is not None else widest(values))
    mesh = ax.pcolormesh(
        np.ma.masked_invalid(logs),
        cmap=COLOURS,
        norm=Normalize(-_PALER * end, _PALER * end),
        edgecolors="white",
        linewidth=1.0,
    )
    ax.set_facecolor(GRID)
    for (row, column), value in np.ndenumerate(values):
        dark = math.isfinite(value) and _is_dark(mesh.to_rgba(np.array([math.log(value)]))[0])
        ax.text(
            column + 0.5,
            row + 0.5,
            f"{value:.2f}" if math.isfinite(value) else "–",
            ha="center",
            va="center",
            fontsize=7,
            weight="bold" if sure[row, column] else "normal",
            color="white" if dark else INK,
        )
    ax.set_xticks(np.arange(len(columns)) + 0.5, [number_text(x) for x in columns])
    ax.set_yticks(np.arange(len(rows)) + 0.5, [number_text(x) for x in rows])
    ax.invert_yaxis()
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_xlabel(column_label)
    ax.set_ylabel(row_label)
    ax.set_title(title)
    return ax


def colour_bar(figure: Any, axes: Any, label: str = "loss area / Uniform's") -> Any:
    """The scale of the colours of one or more maps with the same spread, written as ratios."""
    first = np.ravel(axes)[0]
    mesh = first.collections[0]
    end = math.exp(mesh.norm.vmax / _PALER)
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, math.inf) if (end - 1) / step <= 2.5)
    highs = [end] if math.isinf(step) else [1 + step * k for k in range(1, int((end - 1) / step + 1e-9) + 1)]
    ratios = [1 / high for high in reversed(highs)] + [1.0, *highs]
    bar = figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.02, aspect=25)
    bar.set_ticks([math.log(ratio) for ratio in ratios], labels=[f"{ratio:.2f}" for ratio in ratios])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label(label)
    return bar


def widest(values: Any) -> float:
    """The ratio at which the colours of these values end."""
    logs = np.abs(np.log(np.asarray(values, float)))
    return max(LEAST_SPREAD, float(np.exp(np.nanmax(logs)))) if np.isfinite(logs).any() else LEAST_SPREAD


def number_text(value: float) -> str:
    """A setting as a tick label, as short as it can be: 0.999, 1e-8, 6.6e-4."""
    small = 0 < abs(value) < 1e-3
    mantissa, e, power = (f"{value:.4e}" if small else f"{value:.4g}").partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if small else mantissa
    return f"{mantissa}e{int(power)}" if e else mantissa


def _is_dark(colour: Any) -> bool:
    red, green, blue = colour[:3]
    return bool(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.25)
