from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence

import matplotlib as mpl
import pytest

from headway.analysis.charts import drawing
from headway.analysis.charts import figure as figures
from headway.analysis.charts import model as style
from headway.analysis.charts.model import (
    GATED_BESIDE,
    GATED_METHODS,
    GATES,
    GROUPS,
    MAIN,
    METHODS,
    OTHERS,
    SIGNALS,
    VARIANTS,
    Style,
)
from headway.errors import MissingExtraError
from tests.analysis.charts.colours import contrast_with_white, distance, lab, lightness_difference

SETS: dict[str, Sequence[Style]] = {
    "six signals": [SIGNALS[key] for key in (*MAIN, *OTHERS)],
    "ablation": [SIGNALS[key] for key in ("uniform", *VARIANTS)],
    "gates": [SIGNALS[key] for key in ("uniform", *GATES)],
    "methods": [look for key, look in METHODS.items() if key not in GATED_METHODS],
    "gated methods": [METHODS[key] for key in (*GATED_BESIDE, *GATED_METHODS)],
    "groups": GROUPS,
}
PAIRS = [
    pytest.param(a, b, id=f"{name}: {a.name}/{b.name}")
    for name, looks in SETS.items()
    for a, b in itertools.combinations(looks, 2)
]


def test_the_colour_arithmetic_against_known_values() -> None:
    assert lab("#FFFFFF") == pytest.approx([100, 0, 0], abs=1e-6)
    assert lab("#000000") == pytest.approx([0, 0, 0], abs=1e-6)
    assert lab("#FF0000") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert contrast_with_white("#767676") == pytest.approx(4.54, abs=0.01)
    assert distance("#FF0000", "#00FF00", "normal") > 150
    assert distance("#CC3333", "#777700", "deuteranopia") < distance("#CC3333", "#777700", "normal") / 2


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_series_of_one_figure_differ_in_every_way(one: Style, other: Style) -> None:
    assert lightness_difference(one.colour, other.colour) >= 8, "in greyscale"
    assert distance(one.colour, other.colour, "normal") >= 30
    assert distance(one.colour, other.colour, "deuteranopia") >= 20
    assert distance(one.colour, other.colour, "protanopia") >= 20
    assert one.dash != other.dash
    assert one.marker != other.marker


@pytest.mark.parametrize("look", [*SIGNALS.values(), *METHODS.values(), *GROUPS], ids=lambda look: look.name)
def test_every_colour_stands_out_from_paper(look: Style) -> None:
    assert contrast_with_white(look.colour) >= 1.6


def test_no_two_signals_look_alike() -> None:
    assert len({(look.dash, look.marker) for look in SIGNALS.values()}) == len(SIGNALS)
    assert len({look.colour for look in SIGNALS.values()}) == len(SIGNALS)


def test_groups_get_darker_with_their_size() -> None:
    lightness = [lab(look.colour)[0] for look in GROUPS]
    assert lightness == sorted(lightness, reverse=True)
    assert [look.name for look in GROUPS] == ["A", "B", "C", "D"]


def test_gmc_looks_the_same_in_both_studies() -> None:
    assert SIGNALS["gmc"] == METHODS["gmc"]


def test_the_house_style_holds_inside_only_and_whatever_the_user_has_set() -> None:
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "black", "svg.fonttype": "none"}):
        with figures.house_style():
            assert mpl.rcParams["font.size"] == 8
            assert mpl.rcParams["axes.facecolor"] == "white"
            assert mpl.rcParams["pdf.fonttype"] == 42
            assert mpl.rcParams["svg.fonttype"] == "path"
        assert mpl.rcParams["font.size"] == 20
        assert mpl.rcParams["svg.fonttype"] == "none"


def test_no_setting_is_below_the_smallest_font() -> None:
    sizes = [value for name, value in figures.RC.items() if name.endswith(("size", "fontsize")) and "font" in name]
    sizes += [figures.RC[name] for name in ("axes.labelsize", "axes.titlesize", "xtick.labelsize", "ytick.labelsize")]
    assert min(sizes) >= drawing.SMALLEST_FONT == 7


def test_nothing_imports_pyplot_and_the_modules_do_not_import_matplotlib() -> None:
    code = """
import sys
from headway.analysis.charts import bars_and_maps, controlled, drawing, exploration, figure, sensitivity
from headway.analysis.report import rendering
assert "matplotlib" not in sys.modules, "imported too early"
with figure.house_style():
    drawing.new_figure(3.3, 2).subplots()
assert "matplotlib.pyplot" not in sys.modules
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_message_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'headway-torch\[report\]'"):
        drawing.new_figure(1, 1)


def test_unknown_series_come_last_each_with_a_look_of_its_own() -> None:
    looks = style.styles_for(["mine", "gmc", "uniform", "yours"], SIGNALS)
    assert list(looks) == ["uniform", "gmc", "mine", "yours"]
    assert looks["mine"].name == "mine"
    assert looks["mine"].colour != looks["yours"].colour


def test_a_name_that_looks_like_a_formula_is_shown_as_it_is() -> None:
    looks = style.styles_for([r"a$\frac{$", "_hidden"], SIGNALS)
    with figures.house_style():
        figure = drawing.new_figure(2, 2)
        ax = figure.subplots()
        for look in looks.values():
            ax.plot([0, 1], label=drawing.plain(look.name))
        drawing.legend_below(figure, *ax.get_legend_handles_labels())
        figure.draw_without_rendering()
    assert len(figure.legends[0].get_texts()) == 2


@pytest.mark.parametrize(("names", "rows"), [(["A", "B", "C", "D"], 1), (["Dot Product"] * 9, 2)])
def test_a_legend_is_read_row_by_row(names: list[str], rows: int) -> None:
    names = [f"{name}{place}" for place, name in enumerate(names)]
    with figures.house_style():
        figure = drawing.new_figure(drawing.TEXT_WIDTH, 2)
        ax = figure.subplots()
        handles = [ax.plot([0, 1])[0] for _ in names]
        drawing.legend_below(figure, handles, names)
        figure.draw_without_rendering()
    texts = figure.legends[0].get_texts()
    boxes = {text.get_text(): text.get_window_extent() for text in texts}
    shown = sorted(boxes, key=lambda name: (-round(boxes[name].y0), boxes[name].x0))
    assert shown == names
    assert len({round(box.y0) for box in boxes.values()}) == rows
    assert min(box.x0 for box in boxes.values()) >= 0
    assert max(box.x1 for box in boxes.values()) <= figure.bbox.x1
