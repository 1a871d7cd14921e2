"""The page about data sources in a browser: what it shows fits, and small numbers can be read."""

from __future__ import annotations

import pytest

from headway.analysis.report import write_report
from tests.browser.conftest import DESKTOP, PHONE, Open

CUT_OFF = """() => {
  const found = [], own = CanvasRenderingContext2D.prototype, draw = own.fillText;
  own.fillText = function (text, x, y) {
    const at = this.getTransform(), width = this.measureText(text).width;
    const left = at.e + x - { left: 0, center: width / 2, right: width, start: 0, end: width }[this.textAlign];
    if (!at.b && (left < 0 || left + width > this.canvas.width)) found.push(text);
    draw.call(this, text, x, y);
  };
  Charts.figures.forEach((figure) => { figure.destroy(); figure.draw(); });
  return new Promise((done) => setTimeout(() => { own.fillText = draw; done(found); }, 200));
}"""
"""Draws all figures anew and gives the texts that run out of their canvas to the left or right."""


@pytest.fixture(scope="module")
def telemetry(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page: coupling begins at 0.9 and then is small, or nothing at all."""
    folder = tmp_path_factory.mktemp("sources")
    lines = ["step,source,samples,share,loss,gradient_norm,gmc,coupling,state"]
    for step in range(50, 5001, 50):
        for source, coupling in (("web", 0.04), ("books", 0.02), ("nothing", 0.0)):
            value = 0.9 if step == 50 else coupling
            lines.append(
                f"{step},{source},8,0.33,1,10,{10 * value},{value},{'learning' if step < 4900 else 'diverged'}"
            )
    (folder / "sources.csv").write_text("\n".join(lines))
    return write_report(folder / "sources.csv", folder / "report").index.as_uri()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("page", ["telemetry", "report"])
def test_no_number_of_an_axis_is_cut_off(
    visit: Open, request: pytest.FixtureRequest, page: str, size: dict[str, int]
) -> None:
    found = visit(request.getfixturevalue(page), size)
    found.draw_all()
    assert found.page.evaluate(CUT_OFF) == []
    assert found.complaints == []


def test_small_couplings_are_apart_though_the_first_is_large(visit: Open, telemetry: str) -> None:
    found = visit(telemetry)
    panel = found.figure("sources-0").locator('[data-panel="coupling"]')
    heights = panel.locator(".plot").evaluate(
        "box => [0.9, 0.04, 0.02].map(value => box.panel.plot.valToPos(value, 'y') / box.panel.plot.over.clientHeight)"
    )
    large, middle, small = heights
    assert 0 <= large < middle < small <= 1
    assert small - middle > 0.1


@pytest.mark.parametrize("size", [DESKTOP, PHONE, {"width": 800, "height": 900}], ids=["desktop", "phone", "between"])
def test_the_last_state_is_in_view(visit: Open, telemetry: str, size: dict[str, int]) -> None:
    found = visit(telemetry, size)
    ends = found.page.evaluate(
        "[...document.querySelectorAll('.strip')].map(strip => ["
        "strip.getBoundingClientRect().right, strip.closest('.scroll').getBoundingClientRect().right])"
    )
    assert len(ends) == 3
    assert all(strip <= table for strip, table in ends)
    assert found.is_narrow_enough()
    assert found.page.locator(".strips caption .badge").all_text_contents() == ["learning", "diverged"]
