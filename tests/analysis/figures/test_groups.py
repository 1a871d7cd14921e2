from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from matplotlib.text import Text

from headway.analysis.figures import groups
from headway.analysis.figures.groups import Column
from headway.analysis.figures.style import group_looks
from tests.analysis.figures.panels import line, new_axes

FLAT = [line([0.25] * 10, half=0.01)] * 4
LOSSES = [line(np.linspace(2.3, end, 10)) for end in (0, 0.7, 1.1, 1.4)]


def peaked(place: int, height: float = 0.4) -> groups.Band:
    return line(0.2 + height * (np.arange(10) == place), half=0.01)


def test_every_group_has_a_curve_in_its_colour() -> None:
    ax = groups.group_losses(new_axes(), LOSSES)
    assert [drawn.get_label() for drawn in ax.lines] == ["A", "B", "C", "D"]
    assert [drawn.get_color() for drawn in ax.lines] == [look.colour for look in groups.GROUPS]
    for drawn, band in zip(ax.lines, LOSSES, strict=True):
        assert drawn.get_ydata() == pytest.approx(band.mean)


def test_the_least_possible_losses_are_lines_and_zero_is_not() -> None:
    ax = groups.group_losses(new_axes(), LOSSES, [0.0, math.log(2), math.log(3), math.log(4)])
    levels = [drawn.get_ydata()[0] for drawn in ax.lines if len(drawn.get_ydata()) == 2]
    assert levels == pytest.approx([math.log(2), math.log(3), math.log(4)])


def test_an_arrow_points_to_the_peak_of_each_group() -> None:
    shares = [peaked(place) for place in (0, 3, 9, 6)]
    ax = groups.allocation(new_axes(), shares, peaks=[1.0, 4.0, 10.0, 7.0], uniform=0.25)
    found = {text.get_text(): text.xy for text in ax.texts}
    assert {name: x for name, (x, _) in found.items()} == {"A": 1.0, "B": 4.0, "C": 10.0, "D": 7.0}
    assert [y for _, y in found.values()] == pytest.approx([60.0] * 4)
    across = [text.xyann[0] for text in ax.texts]
    assert [text.get_text() for text in ax.texts] == ["A", "B", "D", "C"]
    assert across == sorted(across)
    assert any(drawn.get_ydata()[0] == 25 for drawn in ax.lines)


def test_groups_have_the_names_of_their_condition() -> None:
    assert [look.name for look in group_looks("curriculum")] == ["G0", "G1", "G2", "G3"]
    assert group_looks("noise") == group_looks(None) == groups.GROUPS
    figure = new_axes().figure
    figure.clear()
    axes = figure.subplots(2, 1, squeeze=False)
    column = Column("GMC", LOSSES, [peaked(place) for place in (0, 3, 9, 6)], [1.0, 4.0, 10.0, 7.0])
    groups.group_panels(axes, [column], looks=group_looks("curriculum"))
    assert axes[0, 0].get_legend_handles_labels()[1] == ["G0", "G1", "G2", "G3"]
    assert [text.get_text() for text in axes[1, 0].texts] == ["G0", "G1", "G3", "G2"]


@pytest.mark.parametrize("condition", ["noise", "curriculum"])
def test_names_do_not_cover_each_other_or_the_curves(condition: str) -> None:
    ax = groups.allocation(new_axes(), [peaked(0)] * 4, peaks=[1.0] * 4, looks=group_looks(condition))
    ax.figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in ax.texts]  # without the arrows
    assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes))
    assert min(box.x0 for box in boxes) >= ax.bbox.x0
    top_of_curves = ax.transData.transform((0, 61))[1]
    assert min(box.y0 for box in boxes) > top_of_curves


@pytest.mark.parametrize("places", [[], [0.5], [0.0, 0.0, 0.0], [0.98, 0.99, 1.0], [0.1, 0.12, 0.8, 0.81], [0.5] * 4])
def test_spread_moves_places_apart_and_keeps_their_order(places: list[float]) -> None:
    found = groups.spread(places, 0.1)
    assert len(found) == len(places)
    assert all(b - a >= 0.1 - 1e-12 for a, b in itertools.pairwise(found))
    assert all(0 < place <= 1 for place in found)


def test_places_that_are_far_apart_stay() -> None:
    assert groups.spread([0.2, 0.5, 0.9], 0.1) == [0.2, 0.5, 0.9]


def test_panels_of_a_row_share_their_range_and_are_labelled_once() -> None:
    axes = new_axes(2, 3)
    wide = [line(4 * band.mean) for band in LOSSES]
    columns = [
        Column("Uniform", LOSSES, FLAT),
        Column("Curiosity", wide, [peaked(2)] * 4, [3.0] * 4),
        Column("GMC", LOSSES, FLAT),
    ]
    assert groups.group_panels(axes, columns, "class", 0.1) is axes
    for row in axes:
        assert len({ax.get_ylim() for ax in row}) == 1
    assert [ax.get_title() for ax in axes[0]] == ["Uniform", "Curiosity", "GMC"]
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["test loss (nats)", "draws per class (%)"]
    assert [ax.get_xlabel() for ax in axes[1]] == ["epoch"] * 3
    assert not axes[0, 1].get_ylabel()
    assert [len(ax.texts) for ax in axes[1]] == [0, 4, 0]


def test_shares_have_no_ticks_beyond_what_they_can_be() -> None:
    ax = groups.allocation(new_axes(), [line([0.97] * 5, half=0.5)] * 4, peaks=[1.0] * 4)
    assert max(ax.get_yticks()) <= 105
