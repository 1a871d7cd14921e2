"""Axes and curves to test with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headway.analysis.charts import drawing
from headway.analysis.charts import figure as figures
from headway.analysis.charts.model import SIGNALS, Chart, Panel, Style
from headway.analysis.summaries import Band


def new_axes(rows: int = 1, columns: int = 1) -> Any:
    """Axes [rows, columns] of a figure in the house style, or a single one."""
    with figures.house_style():
        figure = drawing.new_figure(drawing.TEXT_WIDTH, 3)
        axes = figure.subplots(rows, columns, squeeze=False)
    return axes if rows * columns > 1 else axes[0, 0]


def line(values: Sequence[float], half: float = 0.1, n: int = 3, x: Sequence[float] | None = None) -> Band:
    """A curve over epochs 1, 2, ... with an interval of the same width everywhere."""
    mean = np.array(values, float)
    places = np.arange(1.0, len(mean) + 1) if x is None else np.array(x, float)
    return Band(places, mean, mean - half, mean + half, n)


def chart_of(*panels: Panel, styles: Mapping[str, Style] = SIGNALS, **options: Any) -> Chart:
    """A chart with these panels."""
    return Chart("chart", "A chart", "A caption.", styles, lambda: panels, **options)
