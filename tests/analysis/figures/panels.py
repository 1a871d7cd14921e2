"""Axes and curves to test with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headway.analysis.figures import style
from headway.analysis.summaries import Band


def new_axes(rows: int = 1, columns: int = 1) -> Any:
    """Axes [rows, columns] of a figure in the house style, or a single one."""
    with style.house_style():
        figure = style.new_figure(style.TEXT_WIDTH, 3)
        axes = figure.subplots(rows, columns, squeeze=False)
    return axes if rows * columns > 1 else axes[0, 0]


def line(values: Sequence[float], half: float = 0.1, n: int = 3, x: Sequence[float] | None = None) -> Band:
    """A curve over epochs 1, 2, ... with an interval of the same width everywhere."""
    mean = np.array(values, float)
    places = np.arange(1.0, len(mean) + 1) if x is None else np.array(x, float)
    return Band(places, mean, mean - half, mean + half, n)
