from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.analysis.charts import bars_and_maps as heatmap
from headway.analysis.charts import model as style
from headway.analysis.charts.model import MAP, Axis, Line, Panel
from headway.analysis.summaries import Band
from headway.errors import FigureError
from tests.analysis.charts.panels import chart_of, new_axes

VALUES = np.array([[0.8, 1.0, 1.25], [0.9, np.nan, 1.1]])


def drawn(values: Any, rows: list[str], columns: list[str], *, sure: Any = None, is_share: bool = False) -> Any:
    """A map of these numbers; the intervals of the sure ones do not hold 1."""
    values = np.array(values)
    half = np.full(values.shape, 10.0) if sure is None else np.where(sure, 0.001, 10.0)
    series = {
        name: Band(np.arange(len(columns)), row, row - reach, row + reach, 3)
        for name, row, reach in zip(rows, values, half, strict=True)
    }
    axis = Axis("", percent=is_share, full=is_share)
    panel = Panel("map", "", axis, series, [] if is_share else [Line(1.0)])
    styles = {name: style.Style(name, "#000000", style.SOLID, "o") for name in rows}
    return heatmap.draw_map(new_axes(), panel, chart_of(panel, styles=styles, kind=MAP, categories=columns))


def test_every_cell_has_its_number_and_the_sure_ones_are_bold() -> None:
    ax = drawn(VALUES, ["0.9", "0.999"], ["1e-8", "1e-4", "1"], sure=VALUES < 0.85)
    assert [text.get_text() for text in ax.texts] == ["0.800", "1.000", "1.250", "0.900", "–", "1.100"]
    assert [text.get_weight() for text in ax.texts] == ["bold"] + ["normal"] * 5
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1e-8", "1e-4", "1"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0.9", "0.999"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first row is at the top"


def test_colours_diverge_from_one_equally_for_a_ratio_and_its_inverse() -> None:
    ax = drawn(VALUES, ["1", "2"], ["1", "2", "3"])
    mesh = ax.collections[0]
    ends = mesh.norm(np.log([0.8, 1.0, 1.25]))
    assert ends[1] == pytest.approx(0.5)
    assert ends[0] + ends[2] == pytest.approx(1)
    low, middle, high = mesh.cmap([0.1, 0.5, 0.9])[:, :3]
    assert low[2] > low[0], "below one is blue rather than red"
    assert high[0] > high[2], "above one is red rather than blue"
    assert middle.min() > 0.9


def test_small_differences_stay_pale() -> None:
    assert heatmap.widest([0.999, 1.001]) == heatmap.LEAST_SPREAD
    assert heatmap.widest([0.5, 1.1]) == pytest.approx(2)
    assert heatmap.widest([np.nan]) == heatmap.LEAST_SPREAD


def test_shares_grow_darker_from_zero_to_one() -> None:
    ax = drawn([[0.0, 0.004, 0.5], [0.998, 1.0, np.nan]], ["0.9", "0.9 / 0.99"], ["1", "2", "3"], is_share=True)
    assert [text.get_text() for text in ax.texts] == ["0%", "0.4%", "50%", "99.8%", "100%", "–"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0.9", "0.9 / 0.99"]
    mesh = ax.collections[0]
    levels = [sum(mesh.to_rgba(np.array([share]))[0][:3]) for share in (0, 0.5, 1)]
    assert levels == sorted(levels, reverse=True)
    assert ax.texts[0].get_color() != ax.texts[4].get_color(), "white on dark cells"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.999, "0.999"),
        (1e-8, "1e-8"),
        (6.6e-4, "6.6e-4"),
        (0.01, "0.01"),
        (0, "0"),
        (1, "1"),
        (0.9999, "0.9999"),
        (1e6, "1e6"),
    ],
)
def test_settings_are_written_shortly(value: float, text: str) -> None:
    assert style.number_text(value) == text


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(FigureError, match=r"ratios.*got -1"):
        drawn([[-1.0]], ["1"], ["1"])
    with pytest.raises(FigureError, match=r"shares.*got 0\.5 to 1\.5"):
        drawn([[0.5, 1.5]], ["1"], ["1", "2"], is_share=True)
