from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from PIL import Image

from headway.analysis.charts import drawing
from headway.analysis.charts import figure as figures
from headway.analysis.charts.drawing import draw_panel
from headway.analysis.charts.model import Axis, Panel
from headway.errors import FigureError, StoreError
from tests.analysis.charts.panels import chart_of, line


def draw() -> Figure:
    figure = drawing.new_figure(drawing.COLUMN_WIDTH, 2)
    ax = figure.subplots()
    panel = Panel("loss", "β and −1", Axis("loss"), {"gmc": line([2, 1.5, 1]), "uniform": line([2, 1.8, 1.7])})
    draw_panel(ax, panel, chart_of(panel))
    drawing.legend_below(figure, *ax.get_legend_handles_labels())
    return figure


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("figures")
    with figures.house_style():
        return figures.save(draw(), folder / "one.two")


def test_every_format_is_written_beside_the_others(files: list[Path]) -> None:
    assert [path.name for path in files] == ["one.two.pdf", "one.two.svg", "one.two.png"]
    assert sorted(files[0].parent.iterdir()) == sorted(files)


def test_equal_figures_give_equal_files(files: list[Path], tmp_path: Path) -> None:
    with figures.house_style():
        again = figures.save(draw(), tmp_path / "other")
    for one, two in zip(files, again, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_files_do_not_tell_when_they_were_made(files: list[Path]) -> None:
    pdf, svg, png = (path.read_bytes() for path in files)
    assert b"CreationDate" not in pdf
    assert b"<dc:date>" not in svg
    assert b"tEXt" not in png.replace(b"tEXtSoftware", b"tEXt")
    assert not re.search(rb"20\d\d-\d\d-\d\d", svg)


def test_a_pdf_embeds_truetype_fonts(files: list[Path]) -> None:
    pdf = files[0].read_bytes()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    width, height = map(float, re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", pdf).groups())
    assert (width, height) == pytest.approx((drawing.COLUMN_WIDTH * 72, 2 * 72), abs=0.1)


def test_an_svg_needs_no_font_and_nothing_from_elsewhere(files: list[Path]) -> None:
    root = ElementTree.fromstring(files[1].read_text("utf-8"))
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert "text" not in names
    assert "image" not in names
    links = {value for element in root.iter() for key, value in element.items() if key.endswith("href")}
    assert all(link.startswith("#") for link in links)


def test_a_png_is_fit_for_print(files: list[Path]) -> None:
    with Image.open(files[2]) as picture:
        assert picture.size == (round(drawing.COLUMN_WIDTH * 300), 600)
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)


def test_another_format_is_refused() -> None:
    with figures.house_style(), pytest.raises(FigureError, match="expected a format out of pdf, svg, png, got 'jpg'"):
        figures.render(draw(), "jpg")


def test_a_folder_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with figures.house_style(), pytest.raises(StoreError):
        figures.save(draw(), tmp_path / "missing" / "figure", ["png"])
