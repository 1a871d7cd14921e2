from __future__ import annotations

import math

import numpy as np
import pytest

from headway.analysis.figures import curves
from headway.analysis.figures.style import SIGNALS
from headway.analysis.summaries import Band
from tests.analysis.figures.panels import line, new_axes


def test_a_band_is_a_line_with_an_area_around_it() -> None:
    ax = new_axes()
    assert curves.draw_band(ax, line([3, 2, 1], half=0.5), SIGNALS["gmc"]) is ax
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
    curves.draw_band(ax, line([3, 2, 1], half=math.inf, n=1), SIGNALS["gmc"])
    assert not ax.collections
    assert len(ax.lines) == 1


def test_few_runs_are_drawn_one_by_one_instead_of_an_interval() -> None:
    singles = np.array([[0.0, 1.0], [2.0, 9.0]])
    band = Band(np.arange(2.0), singles.mean(0), np.full(2, -50.0), np.full(2, 50.0), 2, singles)
    ax = curves.draw_bands(new_axes(), {"gmc": band}, SIGNALS, few=3)
    assert not ax.collections
    first, second, mean = (drawn.get_ydata() for drawn in ax.lines)
    np.testing.assert_array_equal([first, second, mean], [*singles, [1.0, 5.0]])
    assert ax.get_legend_handles_labels()[1] == ["GMC"]
    assert 9 <= ax.get_ylim()[1] < 10
    enough = curves.draw_bands(new_axes(), {"gmc": band}, SIGNALS, few=2)
    assert len(enough.lines) == len(enough.collections) == 1
    np.testing.assert_array_equal(curves.percent(band).singles, 100 * singles)


def test_an_area_is_drawn_only_where_the_interval_is_known() -> None:
    band = Band(
        np.arange(4.0),
        np.array([1.0, 2, 3, np.nan]),
        np.array([0.0, 1, -np.inf, np.nan]),
        np.array([2.0, 3, np.inf, np.nan]),
        2,
    )
    ax = new_axes()
    curves.draw_band(ax, band, SIGNALS["gmc"])
    assert ax.collections[0].get_paths()[0].vertices[:, 0].max() == 1
    curves.fit(ax, [band])
    assert all(map(math.isfinite, ax.get_ylim()))


@pytest.mark.parametrize("length", [1, 4, 5, 6, 50, 400])
def test_markers_of_two_curves_are_at_different_points(length: int) -> None:
    places = [curves.marker_places(length, turn, 6) for turn in range(6)]
    assert all(0 <= place < length for row in places for place in row)
    if length >= 50:
        assert len({place for row in places for place in row}) == 6 * curves.MARKERS


def test_means_are_never_cut_off_and_wild_intervals_are() -> None:
    calm, wild = line([1, 2], half=0.1), line([1.5, 1.5], half=100)
    ax = curves.draw_bands(new_axes(), {"gmc": calm, "uniform": wild}, SIGNALS)
    low, high = ax.get_ylim()
    assert low <= 1
    assert 2 <= high < 5


def test_an_axis_of_losses_begins_at_zero_and_shows_a_line_there() -> None:
    ax = curves.draw_bands(new_axes(), {"gmc": line([2, 0])}, SIGNALS)
    assert -0.1 < ax.get_ylim()[0] < 0


def test_an_interval_below_zero_is_cut_off_where_no_mean_is() -> None:
    wide, negative = line([1, 0.1], half=0.5), line([1, -0.1], half=0.5)
    assert -0.1 < curves.average_loss(new_axes(), {"gmc": wide}).get_ylim()[0] < 0
    assert curves.average_loss(new_axes(), {"gmc": negative}).get_ylim()[0] < -0.5
    assert curves.average_loss(new_axes(), {"gmc": line([1, 0.9], half=0.01)}).get_ylim()[0] > 0.8


def test_curves_without_any_number_give_an_empty_panel() -> None:
    nothing = line([np.nan, np.nan])
    ax = curves.reward_curves(new_axes(), {"ppo": nothing})
    assert all(map(math.isfinite, (*ax.get_ylim(), *ax.get_xlim())))
    assert curves.average_loss(new_axes(), {}).get_xlabel() == "epoch"


@pytest.mark.parametrize(
    ("last", "label", "tick", "text"),
    [
        (3e6, "environment steps (million)", 1.5e6, "1.5"),
        (2e5, "environment steps (thousand)", 5e4, "50"),
        (900, "environment steps", 300, "300"),
    ],
)
def test_steps_are_written_in_round_units(last: float, label: str, tick: float, text: str) -> None:
    ax = curves.reward_curves(new_axes(), {"ppo": line([1, 2], x=[last / 2, last])})
    assert ax.get_xlabel() == label
    assert ax.xaxis.get_major_formatter()(tick, 0) == text


def test_training_begins_at_zero_unless_the_curve_begins_late() -> None:
    assert curves.training_range(1, 100)[0] == 0
    assert curves.training_range(50, 100)[0] == 50
    low, high = curves.training_range(1, 1)
    assert low < high


def test_shares_are_written_in_percent_and_end_at_zero_and_a_hundred() -> None:
    band = curves.percent(line([0.02, 0.5, 0.98], half=0.1))
    assert band.mean == pytest.approx([2, 50, 98])
    assert band.low == pytest.approx([0, 40, 88])
    assert band.high == pytest.approx([12, 60, 100])
    unknown = curves.percent(line([0.5], half=math.inf, n=1))
    assert np.isinf(unknown.high).all()
    ax = curves.under_floor(new_axes(), {"gmc": line([0.99, 0.998], half=0.001)})
    assert ax.lines[0].get_ydata() == pytest.approx([99, 99.8])
    assert ax.get_ylim()[0] == 0
    assert "(%)" in ax.get_ylabel()


@pytest.mark.parametrize(("values", "bottom"), [([1.38, 1.3], 1.2), ([1.38, 0.2], 0.0)])
def test_entropy_has_a_line_at_that_of_the_uniform_policy(values: list[float], bottom: float) -> None:
    ax = curves.policy_entropy(new_axes(), {"gmc": line(values, half=0.01)}, arms=4)
    heights = [drawn.get_ydata()[0] for drawn in ax.lines]
    assert any(height == pytest.approx(math.log(4)) for height in heights)
    assert ax.get_ylim()[0] == pytest.approx(bottom, abs=0.1)
    assert [text.get_text() for text in ax.texts] == ["uniform: ln 4"]
