from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from headway.analysis.charts import drawing
from headway.analysis.charts.figure import house_style
from headway.analysis.charts.model import (
    GROUPS,
    METHODS,
    SIGNALS,
    STEPS,
    Axis,
    Line,
    Panel,
    group_styles,
    within_shares,
)
from headway.analysis.summaries import Band
from tests.analysis.charts.panels import chart_of, line, new_axes


def test_a_band_is_a_line_with_an_area_around_it() -> None:
    ax = new_axes()
    assert drawing.draw_band(ax, line([3, 2, 1], half=0.5), SIGNALS["gmc"]) is ax
    (drawn,) = ax.lines
    assert drawn.get_ydata() == pytest.approx([3, 2, 1])
    assert drawn.get_color() == SIGNALS["gmc"].colour
    assert drawn.get_label() == "GMC"
    (area,) = ax.collections
    corners = area.get_paths()[0].vertices
    assert corners[:, 1].min() == 0.5
    assert corners[:, 1].max() == 3.5


def test_a_single_seed_has_no_area() -> None:
    ax = new_axes()
    drawing.draw_band(ax, line([3, 2, 1], half=math.inf, n=1), SIGNALS["gmc"])
    assert not ax.collections
    assert len(ax.lines) == 1


def test_few_runs_are_drawn_one_by_one_instead_of_an_interval() -> None:
    singles = np.array([[0.0, 1.0], [2.0, 9.0]])
    band = Band(np.arange(2.0), singles.mean(0), np.full(2, -50.0), np.full(2, 50.0), 2, singles)
    ax = drawing.draw_bands(new_axes(), {"gmc": band}, SIGNALS, few=3)
    assert not ax.collections
    first, second, mean = (drawn.get_ydata() for drawn in ax.lines)
    np.testing.assert_array_equal([first, second, mean], [*singles, [1.0, 5.0]])
    assert ax.get_legend_handles_labels()[1] == ["GMC"]
    assert 9 <= ax.get_ylim()[1] < 10
    enough = drawing.draw_bands(new_axes(), {"gmc": band}, SIGNALS, few=2)
    assert len(enough.lines) == len(enough.collections) == 1
    np.testing.assert_array_equal(drawing.percent(band).singles, 100 * singles)


def test_an_area_is_drawn_only_where_the_interval_is_known() -> None:
    band = Band(
        np.arange(4.0),
        np.array([1.0, 2, 3, np.nan]),
        np.array([0.0, 1, -np.inf, np.nan]),
        np.array([2.0, 3, np.inf, np.nan]),
        2,
    )
    ax = new_axes()
    drawing.draw_band(ax, band, SIGNALS["gmc"])
    assert ax.collections[0].get_paths()[0].vertices[:, 0].max() == 1
    drawing.fit(ax, [band])
    assert all(map(math.isfinite, ax.get_ylim()))


@pytest.mark.parametrize("length", [1, 4, 5, 6, 50, 400])
def test_markers_of_two_curves_are_at_different_points(length: int) -> None:
    places = [drawing.marker_places(length, turn, 6) for turn in range(6)]
    assert all(0 <= place < length for row in places for place in row)
    if length >= 50:
        assert len({place for row in places for place in row}) == 6 * drawing.MARKERS


def test_means_are_never_cut_off_and_wild_intervals_are() -> None:
    calm, wild = line([1, 2], half=0.1), line([1.5, 1.5], half=100)
    ax = drawing.draw_bands(new_axes(), {"gmc": calm, "uniform": wild}, SIGNALS)
    low, high = ax.get_ylim()
    assert low <= 1
    assert 2 <= high < 5


def test_an_axis_of_losses_begins_at_zero_and_shows_a_line_there() -> None:
    ax = drawing.draw_bands(new_axes(), {"gmc": line([2, 0])}, SIGNALS)
    assert -0.1 < ax.get_ylim()[0] < 0


def loss(bands: dict[str, Band]) -> Any:
    """A panel of test losses, drawn."""
    panel = Panel("loss", "", Axis("test loss (nats)"), bands)
    return drawing.draw_panel(new_axes(), panel, chart_of(panel))


def test_an_interval_below_zero_is_cut_off_where_no_mean_is() -> None:
    wide, negative = line([1, 0.1], half=0.5), line([1, -0.1], half=0.5)
    assert -0.1 < loss({"gmc": wide}).get_ylim()[0] < 0
    assert loss({"gmc": negative}).get_ylim()[0] < -0.5
    assert loss({"gmc": line([1, 0.9], half=0.01)}).get_ylim()[0] > 0.8


def reward(bands: dict[str, Band]) -> Any:
    """A panel of episode returns, drawn."""
    panel = Panel("reward", "", Axis("episode return", zero=True), bands)
    return drawing.draw_panel(new_axes(), panel, chart_of(panel, styles=METHODS, x=STEPS, few=5))


def test_curves_without_any_number_give_an_empty_panel() -> None:
    nothing = line([np.nan, np.nan])
    ax = reward({"ppo": nothing})
    assert all(map(math.isfinite, (*ax.get_ylim(), *ax.get_xlim())))
    assert loss({}).get_xlabel() == "epoch"


@pytest.mark.parametrize(
    ("last", "label", "tick", "text"),
    [
        (3e6, "environment steps (million)", 1.5e6, "1.5"),
        (2e5, "environment steps (thousand)", 5e4, "50"),
        (900, "environment steps", 300, "300"),
    ],
)
def test_steps_are_written_in_round_units(last: float, label: str, tick: float, text: str) -> None:
    ax = reward({"ppo": line([1, 2], x=[last / 2, last])})
    assert ax.get_xlabel() == label
    assert ax.xaxis.get_major_formatter()(tick, 0) == text


def test_training_begins_at_zero_unless_the_curve_begins_late() -> None:
    assert drawing.training_range(1, 100)[0] == 0
    assert drawing.training_range(50, 100)[0] == 50
    low, high = drawing.training_range(1, 1)
    assert low < high


def test_shares_are_written_in_percent_and_end_at_zero_and_a_hundred() -> None:
    band = drawing.percent(within_shares(line([0.02, 0.5, 0.98], half=0.1)))
    assert band.mean == pytest.approx([2, 50, 98])
    assert band.low == pytest.approx([0, 40, 88])
    assert band.high == pytest.approx([12, 60, 100])
    unknown = drawing.percent(within_shares(line([0.5], half=math.inf, n=1)))
    assert np.isinf(unknown.high).all()
    axis = Axis("parameters", zero=True, percent=True, full=True)
    panel = Panel("floor", "", axis, {"gmc": line([0.99, 0.998], half=0.001)})
    ax = drawing.draw_panel(new_axes(), panel, chart_of(panel))
    assert ax.lines[0].get_ydata() == pytest.approx([99, 99.8])
    assert ax.get_ylim()[0] == 0
    assert ax.get_ylabel() == "parameters (%)"


@pytest.mark.parametrize(("values", "bottom"), [([1.38, 1.3], 1.2), ([1.38, 0.2], 0.0)])
def test_an_axis_ends_above_a_line_that_is_a_bound(values: list[float], bottom: float) -> None:
    bands = {"gmc": line(values, half=0.01)}
    panel = Panel("entropy", "", Axis("entropy"), bands, [Line(math.log(4), label="uniform: ln 4")])
    ax = drawing.draw_panel(new_axes(), panel, chart_of(panel))
    heights = [drawn.get_ydata()[0] for drawn in ax.lines]
    assert any(height == pytest.approx(math.log(4)) for height in heights)
    assert ax.get_ylim()[0] == pytest.approx(bottom, abs=0.1)
    assert ax.get_ylim()[1] > math.log(4)
    assert [text.get_text() for text in ax.texts] == ["uniform: ln 4"]


KEYS = [f"group-{place}" for place in range(4)]
LOSSES = dict(zip(KEYS, [line(np.linspace(2.3, end, 10)) for end in (0, 0.7, 1.1, 1.4)], strict=True))
FLAT = dict.fromkeys(KEYS, line([0.25] * 10, half=0.01))
SHARE = Axis("draws per class", zero=True, percent=True)


def peaked(*places: int) -> dict[str, Band]:
    """Shares that peak at these places."""
    return {key: line(0.2 + 0.4 * (np.arange(10) == at), half=0.01) for key, at in zip(KEYS, places, strict=True)}


def shares(series: dict[str, Band], *peaks: float, condition: str = "noise") -> Any:
    """A panel of shares with marks at the peaks, drawn."""
    series = {key: within_shares(band) for key, band in series.items()}
    panel = Panel("gmc", "", SHARE, series, [Line(0.25)], dict(zip(KEYS, peaks, strict=False)))
    (ax,) = drawing.draw(chart_of(panel, styles=group_styles(condition))).axes
    return ax


def test_every_group_has_a_curve_in_its_colour() -> None:
    panel = Panel("gmc", "", Axis("test loss"), LOSSES)
    ax = drawing.draw_panel(new_axes(), panel, chart_of(panel, styles=group_styles("noise")))
    assert [drawn.get_label() for drawn in ax.lines] == ["A", "B", "C", "D"]
    assert [drawn.get_color() for drawn in ax.lines] == [style.colour for style in GROUPS]
    for drawn, band in zip(ax.lines, LOSSES.values(), strict=True):
        assert drawn.get_ydata() == pytest.approx(band.mean)


def test_a_line_with_a_key_has_its_colour_and_a_place_in_the_legend() -> None:
    panel = Panel("gmc", "", Axis("test loss"), LOSSES, [Line(math.log(2), "group-1", "least")])
    figure = drawing.draw(chart_of(panel, styles=group_styles("noise")))
    (level,) = [drawn for drawn in figure.axes[0].lines if len(drawn.get_ydata()) == 2]
    assert level.get_ydata()[0] == pytest.approx(math.log(2))
    assert level.get_color() == GROUPS[1].colour
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(texts) == ["group A", "group B", "group C", "group D", "least"]


def test_an_arrow_points_to_the_peak_of_each_group() -> None:
    ax = shares(peaked(0, 3, 9, 6), 1.0, 4.0, 10.0, 7.0)
    found = {text.get_text(): text.xy for text in ax.texts}
    assert {name: x for name, (x, _) in found.items()} == {"A": 1.0, "B": 4.0, "C": 10.0, "D": 7.0}
    assert [y for _, y in found.values()] == pytest.approx([60.0] * 4)
    across = [text.xyann[0] for text in ax.texts]
    assert across == sorted(across)
    assert any(drawn.get_ydata()[0] == 25 for drawn in ax.lines)


@pytest.mark.parametrize("condition", ["noise", "curriculum"])
def test_names_do_not_cover_each_other_or_the_curves(condition: str) -> None:
    ax = shares(peaked(0, 0, 0, 0), 1.0, 1.0, 1.0, 1.0, condition=condition)
    ax.figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in ax.texts]  # without the arrows
    assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes))
    assert min(box.x0 for box in boxes) >= ax.bbox.x0
    top_of_curves = ax.transData.transform((0, 61))[1]
    assert min(box.y0 for box in boxes) > top_of_curves


@pytest.mark.parametrize("places", [[], [0.5], [0.0, 0.0, 0.0], [0.98, 0.99, 1.0], [0.1, 0.12, 0.8, 0.81], [0.5] * 4])
def test_spread_moves_places_apart_and_keeps_their_order(places: list[float]) -> None:
    found = drawing.spread(places, 0.1)
    assert len(found) == len(places)
    assert all(b - a >= 0.1 - 1e-12 for a, b in itertools.pairwise(found))
    assert all(0 < place <= 1 for place in found)


def test_places_that_are_far_apart_stay() -> None:
    assert drawing.spread([0.2, 0.5, 0.9], 0.1) == [0.2, 0.5, 0.9]


def test_panels_of_a_row_share_their_range_and_are_labelled_once() -> None:
    wide = {key: line(4 * band.mean) for key, band in LOSSES.items()}
    panels = []
    for name, losses, draws, peaks in (
        ("Uniform", LOSSES, FLAT, {}),
        ("Curiosity", wide, peaked(2, 2, 2, 2), dict.fromkeys(KEYS, 3.0)),
        ("GMC", LOSSES, FLAT, {}),
    ):
        panels.append(Panel(name, name, Axis("test loss (nats)"), losses))
        panels.append(Panel(name, name, SHARE, draws, [Line(0.1)], peaks, row=1))
    with house_style():
        figure = drawing.draw(chart_of(*panels, styles=group_styles("curriculum"), columns=3, rows=2))
    axes = np.array(figure.axes).reshape(2, 3)
    for row in axes:
        assert len({ax.get_ylim() for ax in row}) == 1
    assert [ax.get_title() for ax in axes[0]] == ["Uniform", "Curiosity", "GMC"]
    assert [ax.get_title() for ax in axes[1]] == [""] * 3
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["test loss (nats)", "draws per class (%)"]
    assert [ax.get_xlabel() for ax in axes[1]] == ["epoch"] * 3
    assert not axes[0, 1].get_ylabel()
    assert [len(ax.texts) for ax in axes[1]] == [0, 4, 0]


def test_shares_have_no_ticks_beyond_what_they_can_be() -> None:
    ax = shares(dict.fromkeys(KEYS, line([0.97] * 5, half=0.5)), 1.0, 1.0, 1.0, 1.0)
    assert max(ax.get_yticks()) <= 105
