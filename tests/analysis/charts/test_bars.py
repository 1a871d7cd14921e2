from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from headway.analysis.charts.bars_and_maps import Scale, draw_bars, plan_scale, set_scale
from headway.analysis.charts.model import BARS, SIGNALS, Axis, Panel, numbers
from headway.analysis.stats import Estimate, unknown
from tests.analysis.charts.panels import chart_of, new_axes


def bars(ratios: dict[str, dict[str, Estimate]]) -> Any:
    """Bars of these ratios by setting and signal, drawn."""
    axis = Axis("area")
    panels = [
        Panel(name, name, axis, {key: numbers([each]) for key, each in found.items()}) for name, found in ratios.items()
    ]
    keys = [key for key in SIGNALS if any(key in found for found in ratios.values())]
    chart = chart_of(*panels, styles={key: SIGNALS[key] for key in keys}, kind=BARS)
    return draw_bars(new_axes(), chart)


def ratio(value: float, half: float = 0.01) -> Estimate:
    return Estimate(value, value - half, value + half, 20)


NEAR = {"uniform": ratio(1, 0), "curiosity": ratio(1.2), "gmc": ratio(0.97), "norm_all": ratio(1.1)}
FAR = {**NEAR, "norm_all": ratio(3, 0.1)}


def test_bars_begin_at_one_and_end_at_the_ratio() -> None:
    ax = bars({"MNIST, Noise": NEAR})
    spans = [(bar.get_y(), bar.get_y() + bar.get_height()) for group in ax.containers for bar in group]
    assert [end for _, end in spans] == pytest.approx([1.2, 0.97, 1.1])
    assert all(start == 1 for start, _ in spans)
    assert [group.get_label() for group in ax.containers] == ["Curiosity", "GMC", "NormAll"]
    assert [text.get_text() for text in ax.texts] == ["1.20", "0.970", "1.10"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["Noise\nMNIST"]


def test_intervals_are_drawn_from_end_to_end() -> None:
    ax = bars({"Noise": {"gmc": Estimate(1.1, 1.02, 1.3, 5)}})
    drawn = [tuple(line.get_ydata()) for line in ax.lines if len(line.get_ydata()) == 2]
    assert (1.02, 1.3) in drawn


def test_a_bar_of_a_single_seed_has_no_interval() -> None:
    ax = bars({"Noise": {"gmc": Estimate(1.1, -math.inf, math.inf, 1)}})
    assert len(ax.lines) == 1  # Uniform's level
    assert all(map(math.isfinite, ax.get_ylim()))


def test_every_signal_is_named_once_also_when_some_conditions_lack_it() -> None:
    ax = bars({"one": {"gmc": ratio(0.9)}, "two": NEAR, "three": NEAR})
    assert sorted(ax.get_legend_handles_labels()[1]) == ["Curiosity", "GMC", "NormAll"]


def test_the_axis_is_whole_when_all_bars_can_be_seen() -> None:
    assert plan_scale(list(NEAR.values()), 0.1).gap is None
    assert plan_scale([ratio(1.5), ratio(2), ratio(2.5)], 0.1).gap is None
    assert plan_scale([ratio(3)], 0.1).gap is None, "there is nothing to make taller"
    assert plan_scale([ratio(1.01), ratio(3), ratio(3.1)], 0.1).gap is None, "most bars are long"
    assert plan_scale([], 0.1).gap is None


def test_the_axis_is_broken_when_one_bar_would_flatten_the_others() -> None:
    scale = plan_scale(list(FAR.values()), 0.1)
    assert scale.gap is not None
    assert 1.21 < scale.gap.start < scale.gap.stop < 2.9
    assert scale.low < 0.96
    assert scale.high > 3.1


@pytest.mark.parametrize("far", [1.6, 2.0, 5.0, 40.0])
@pytest.mark.parametrize("half", [0.001, 0.05, 0.3])
def test_a_break_never_hides_a_bar_end_or_an_interval(far: float, half: float) -> None:
    bars = [ratio(0.97), ratio(1.05), ratio(far, half)]
    scale = plan_scale(bars, 0.12)
    for bar in bars:
        for end in (bar.value, bar.low, bar.high):
            assert scale.low <= end <= scale.high
            assert scale.gap is None or not scale.gap.start < end < scale.gap.stop


@pytest.mark.parametrize("place", range(11))
def test_a_signal_that_diverged_does_not_move_the_break(place: int) -> None:
    bars = [ratio(value) for value in (0.991, 1.019, 1.004, 0.985, 1.029, 1.634, 0.998, 2.053, 1.483, 1.001)]
    scale = plan_scale(bars, 0.05)
    assert scale.gap is not None
    assert plan_scale([*bars[:place], unknown(3), *bars[place:]], 0.05) == scale
    assert plan_scale([unknown(3)], 0.05) == plan_scale([], 0.05)


@pytest.mark.parametrize("level", [0.7, 1.5])
def test_a_word_stands_where_a_signal_diverged(level: float) -> None:
    ax = bars({"Noise": {"uniform": ratio(1), "gmc": unknown(3), "norm_all": ratio(level)}})
    assert [text.get_text() for text in ax.texts] == ["diverged", f"{level:.2f}"]
    assert ax.get_legend_handles_labels()[1] == ["GMC", "NormAll"]
    ax.figure.draw_without_rendering()
    word, (first, _) = ax.texts[0].get_window_extent(), ax.containers
    assert ax.bbox.y0 < word.y0 < word.y1 < ax.bbox.y1
    bar = first[0].get_window_extent()
    assert bar.x0 < word.x0 < word.x1 < bar.x1
    assert bar.height == 0


def test_where_uniform_diverged_the_signals_are_not_blamed() -> None:
    ax = bars({"Noise": {"uniform": unknown(3), "gmc": unknown(3)}})
    assert [text.get_text() for text in ax.texts] == ["Uniform diverged"]


def test_a_broken_axis_can_be_read_back() -> None:
    scale = plan_scale(list(FAR.values()), 0.1)
    ax = new_axes()
    set_scale(ax, scale)
    forward = ax.yaxis.get_transform()
    values = np.linspace(scale.low, scale.high, 400)
    shown = forward.transform(values)
    assert (np.diff(shown) > 0).all()
    assert forward.inverted().transform(shown) == pytest.approx(values)
    assert scale.gap is not None
    before, after = forward.transform(np.array([scale.gap.start, scale.gap.stop]))
    assert (after - before) / (shown[-1] - shown[0]) == pytest.approx(0.07, abs=0.01)
    ticks = ax.get_yticks()
    assert not any(scale.gap.start < tick < scale.gap.stop for tick in ticks)
    assert sum(tick <= scale.gap.start for tick in ticks) >= 2
    assert sum(tick >= scale.gap.stop for tick in ticks) >= 1


def test_bars_below_a_break_are_taller_than_without() -> None:
    bars = list(FAR.values())
    broken, whole = new_axes(), new_axes()
    set_scale(broken, plan_scale(bars, 0.1))
    set_scale(whole, Scale(0.8, 3.4))
    heights = [np.diff(ax.transData.transform([(0, 1), (0, 1.2)])[:, 1])[0] for ax in (broken, whole)]
    assert heights[0] > 1.4 * heights[1]


def test_a_wild_interval_does_not_flatten_the_bars() -> None:
    scale = plan_scale([ratio(1.1), Estimate(1.2, -90, 100, 2)], 0.1)
    assert scale.high < 3
    assert scale.low > -2


def test_numbers_stay_inside_the_panel() -> None:
    for data in (NEAR, FAR):
        ax = bars({f"setting {k}": data for k in range(6)})
        ax.figure.draw_without_rendering()
        for text in ax.texts:
            box = text.get_window_extent()
            assert box.y0 >= ax.bbox.y0 - 1, text.get_text()
            assert box.y1 <= ax.bbox.y1 + 1, text.get_text()
            assert text.get_rotation() == 90


MANY = [
    *(
        ratio(value, 0.04)
        for value in (0.979, 0.987, 1.015, 0.992, 0.988, 1.003, 0.999, 1.028, 1.0, 0.993, 1.017, 1.038)
    )
]
SPREAD = [*MANY, ratio(1.053, 0.04), *(ratio(value) for value in (1.14, 1.19, 1.25, 1.33, 1.39, 1.47, 1.57))]


def test_without_an_empty_stretch_the_axis_is_folded() -> None:
    """As in the paper's figure: what is near 1 is enlarged, and nothing is left out."""
    scale = plan_scale(SPREAD, 0.1)
    assert scale.gap is not None
    assert scale.gap.start == scale.gap.stop == 1.05
    ax, whole = new_axes(), new_axes()
    set_scale(ax, scale)
    set_scale(whole, Scale(scale.low, scale.high))
    heights = [np.diff(each.transData.transform([(0, 0.993), (0, 1)])[:, 1])[0] for each in (ax, whole)]
    assert heights[0] > 2 * heights[1]
    forward = ax.yaxis.get_transform()
    values = np.linspace(scale.low, scale.high, 400)
    assert (np.diff(forward.transform(values)) > 0).all()
    assert forward.inverted().transform(forward.transform(values)) == pytest.approx(values)
    assert sum(tick <= 1.05 for tick in ax.get_yticks()) >= 2
    assert sum(tick >= 1.05 for tick in ax.get_yticks()) >= 1


def test_the_axis_is_not_folded_where_most_bars_are_long() -> None:
    assert plan_scale([ratio(1.0), ratio(1.2), ratio(1.35), ratio(1.5)], 0.1).gap is None
