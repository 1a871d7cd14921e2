from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headway.analysis.charts.model import (
    GROUPS,
    MAP,
    METHODS,
    SIGNALS,
    Axis,
    Line,
    Panel,
    Style,
    group_styles,
    numbers,
    styles_for,
)
from headway.analysis.report import rendering as page
from headway.analysis.report.rendering import chart_data, dark, legend_item
from headway.analysis.stats import Estimate
from headway.analysis.summaries import Band
from tests.analysis.charts.panels import chart_of


def band(x: list[float], mean: list[float], half: float = 1.0, n: int = 3) -> Band:
    values = np.array(mean)
    return Band(np.array(x), values, values - half, values + half, n)


def test_numbers_keep_five_digits_and_holes_are_none() -> None:
    values = [1 / 3, 123456.7, 0.0, math.nan, math.inf]
    _, (only,) = page.curves({"a": band([1, 2, 3, 4, 5], values)})
    assert only["mean"] == [0.33333, 123460.0, 0.0, None, None]
    assert page.whole([1.0, 2.5, 300000.0]) == [1, 2.5, 300000]


def test_curves_of_different_length_share_their_positions() -> None:
    x, (long, short) = page.curves({"a": band([1, 2, 3], [3, 2, 1]), "b": band([1, 2], [5, 6])})
    assert x == [1, 2, 3]
    assert long == {"key": "a", "n": 3, "mean": [3, 2, 1], "low": [2, 1, 0], "high": [4, 3, 2]}
    assert short["mean"] == [5, 6, None]


def test_blocks_with_other_middles_are_merged() -> None:
    x, (first, second) = page.curves({"a": band([3, 8], [1, 2]), "b": band([3, 5.5], [3, 4])})
    assert x == [3, 5.5, 8]
    assert first["mean"] == [1, None, 2]
    assert second["mean"] == [3, 4, None]


def test_an_interval_that_is_not_known_is_left_out() -> None:
    _, (only,) = page.curves({"a": band([1, 2], [3, 4], math.inf, 1)})
    assert "low" not in only
    partly = band([1, 2], [3, 4])
    partly.high[1] = math.inf
    _, (only,) = page.curves({"a": partly})
    assert only["low"] == [2, None]
    assert only["high"] == [4, None]


def test_single_seeds_are_shown_if_there_are_several() -> None:
    curve = replace(band([1, 2, 3], [1, 1, 1], n=2), singles=np.array([[1.0, 2.0, math.nan], [0.0, 0.0, 3.0]]))
    for few, single in ((0, False), (2, False), (3, True)):
        _, (many,) = page.curves({"a": curve}, singles=True, few=few)
        assert many["seeds"] == [[1, 2, None], [0, 0, 3]]
        assert many["single"] is single
    _, (without,) = page.curves({"a": curve})
    assert "seeds" not in without
    _, (one,) = page.curves({"a": replace(curve, n=1, singles=np.ones((1, 3)))}, singles=True)
    assert "seeds" not in one


def test_numbers_stand_at_the_place_of_their_category() -> None:
    first = replace(numbers([Estimate(1.5, 1.0, 2.0, 3)], [1]), singles=np.array([[1.4], [1.6]]))
    second = numbers([Estimate(0.5, -math.inf, math.inf, 1)], [2])
    panel = Panel("areas", "", Axis("area"), {"gmc": first, "dot": second}, [Line(1.0)])
    data = chart_data(chart_of(panel, kind=MAP, categories=["a", "b", "c"], singles=True))
    assert (data["kind"], data["dodge"], data["categories"]) == ("dots", True, ["a", "b", "c"])
    one, other = data["panels"][0]["series"]
    assert one["mean"] == [None, 1.5, None]
    assert one["low"] == [None, 1.0, None]
    assert one["seeds"] == [[None, 1.4, None], [None, 1.6, None]]
    assert other == {"key": "dot", "n": 1, "mean": [None, None, 0.5]}


def test_a_panel_as_the_script_knows_it() -> None:
    lines = [Line(0.7, "group-1", "least"), Line(0.25, label="uniform")]
    axis = Axis("draws per\nclass", zero=True, percent=True)
    panels = [Panel(name, name, axis, {"group-0": band([1, 2], [0, 1])}, lines, {"group-0": 2.0}) for name in "abcd"]
    data = chart_data(chart_of(*panels, styles=group_styles("noise"), rows=2, legend="groups"))
    assert data["kind"] == "lines"
    assert data["paired"]
    assert data["legend"]["label"] == "Groups"
    assert [item["name"] for item in data["picks"]["items"]] == ["a", "b", "c", "d"]
    panel = data["panels"][0]
    assert panel["y"] == {"label": "draws per class", "zero": True, "percent": True}
    assert panel["lines"] == [{"value": 0.7, "key": "group-1"}, {"value": 0.25, "label": "uniform"}]
    assert panel["peaks"] == [{"key": "group-0", "x": 2}]


def test_nothing_gives_nothing() -> None:
    assert page.curves({}) == ([], [])


DARK_CARD = "#1c1f25"


def luminance(colour: str) -> float:
    """Relative luminance of a colour, after WCAG."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", [*SIGNALS.values(), *METHODS.values(), *GROUPS], ids=lambda look: look.name)
def test_every_series_stands_out_on_a_dark_page(look: Style) -> None:
    assert contrast(dark(look.colour), DARK_CARD) >= 3


def test_black_becomes_nearly_white() -> None:
    assert dark("#000000") == "#e6e6e6"


@pytest.mark.parametrize("table", [dict(list(SIGNALS.items())[:6]), METHODS], ids=["signals", "methods"])
def test_series_of_one_figure_stay_different_in_the_dark(table: dict) -> None:
    colours = [dark(look.colour) for look in table.values()]
    assert len(set(colours)) == len(colours)


def test_a_series_as_the_script_knows_it() -> None:
    assert legend_item("gmc", SIGNALS["gmc"]) == {
        "key": "gmc",
        "name": "GMC",
        "light": "#0067A5",
        "dark": dark("#0067A5"),
        "dash": [],
    }
    assert all(length > 0 for length in legend_item("x", SIGNALS["uniform"])["dash"])


def test_series_come_in_their_order_and_unknown_ones_last() -> None:
    assert list(styles_for(["magic", "gmc", "uniform"], SIGNALS)) == ["uniform", "gmc", "magic"]
    assert list(styles_for(["icm+gmc", "ppo"], METHODS)) == ["ppo", "icm+gmc"]


def test_groups_have_the_names_of_their_condition() -> None:
    assert [style.name for style in group_styles("noise").values()] == ["A", "B", "C", "D"]
    assert [style.name for style in group_styles("curriculum").values()] == ["G0", "G1", "G2", "G3"]
