"""The report in a real browser."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import DESKTOP, PHONE, Open, Visit

COLOURED = """canvas => {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let found = 0;
    for (let i = 0; i < data.length; i += 4) {
        const spread = Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]);
        if (data[i + 3] > 200 && spread > 60) found++;
    }
    return found;
}"""
"""Counts the pixels of a canvas that are neither grey nor empty."""

OF_COLOUR = """(canvas, wanted) => {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let found = 0;
    for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] > 250 && wanted.every((part, place) => data[i + place] === part)) found++;
    }
    return found;
}"""


def figures(visit: Visit) -> dict[str, Any]:
    """The data that the page carries."""
    return json.loads(visit.page.locator("#figures-data").text_content())


def loss_figure(visit: Visit) -> str:
    return next(name for name in figures(visit) if name.startswith("loss-"))


def hover(visit: Visit, figure: Any, x: float = 0.5, y: float = 0.5) -> Any:
    """Point at a place of a figure's first panel; gives its tip."""
    box = figure.locator(".u-over").first.bounding_box()
    visit.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    tip = figure.locator(".tip").first
    tip.wait_for(state="visible")
    return tip


def test_every_figure_is_drawn(visit: Open, report: str) -> None:
    seen = visit(report)
    seen.draw_all()
    for name, data in figures(seen).items():
        canvases = seen.page.locator(f'[data-figure="{name}"] canvas')
        assert canvases.count() == len(data["panels"]), name
        for place in range(canvases.count()):
            assert canvases.nth(place).evaluate(COLOURED) > 20, (name, place)
    assert seen.page.locator("[data-figure]").count() == len(figures(seen))
    assert seen.complaints == []


def test_figures_wait_until_they_come_into_view(visit: Open, report: str) -> None:
    seen = visit(report)
    name = list(figures(seen))[-1]
    assert seen.page.locator(f'[data-figure="{name}"] canvas').count() == 0
    seen.figure(name)


def test_pointing_at_a_curve_shows_its_values(visit: Open, report: str) -> None:
    seen = visit(report)
    name = loss_figure(seen)
    tip = hover(seen, seen.figure(name))
    epoch = int(re.match(r"epoch (\d+)", tip.inner_text())[1])
    panel = figures(seen)[name]["panels"][0]
    place = panel["x"].index(epoch)
    for series in panel["series"]:
        value = float(format(series["mean"][place], ".4g"))
        assert f"{value:g}" in tip.inner_text()
    assert {"Uniform", "Curiosity", "GMC"} <= set(re.findall(r"[A-Z]\w+", tip.inner_text()))


def test_the_cursor_is_shared_by_the_panels_of_a_figure(visit: Open, report: str) -> None:
    seen = visit(report)
    name = next(name for name in figures(seen) if name.startswith("groups-main"))
    figure = seen.figure(name)
    hover(seen, figure)
    places = seen.page.evaluate(f'Charts.figures.get("{name}").panels.map(panel => panel.plot.cursor.idx)')
    assert len(places) == 6
    assert len(set(places)) == 1
    assert figure.locator(".tip:visible").count() == 1


def test_a_signal_can_be_switched_off_and_on(visit: Open, report: str) -> None:
    seen = visit(report)
    name = loss_figure(seen)
    figure = seen.figure(name)
    blue = [0x00, 0x67, 0xA5]
    canvas = figure.locator("canvas").first
    assert canvas.evaluate(OF_COLOUR, blue) > 20
    chip = figure.get_by_role("button", name="GMC", exact=True)
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    seen.page.wait_for_function("() => true")
    assert canvas.evaluate(OF_COLOUR, blue) == 0
    assert "GMC" not in hover(seen, figure).inner_text()
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert "GMC" in hover(seen, figure, 0.6).inner_text()
    assert canvas.evaluate(OF_COLOUR, blue) > 20


def test_a_signal_of_a_group_figure_takes_its_panels_along(visit: Open, report: str) -> None:
    seen = visit(report)
    figure = seen.figure(next(name for name in figures(seen) if name.startswith("groups-main")))
    assert figure.locator(".panel:visible").count() == 6
    figure.get_by_role("button", name="Curiosity", exact=True).click()
    assert figure.locator(".panel:visible").count() == 4
    assert figure.locator('.panel[data-panel="curiosity"]:visible').count() == 0


def window(visit: Visit, name: str) -> list[float]:
    return visit.page.evaluate(
        f'(() => {{ const x = Charts.figures.get("{name}").panels[0].plot.scales.x; return [x.min, x.max]; }})()'
    )


def test_dragging_zooms_in_and_a_double_click_zooms_out(visit: Open, report: str) -> None:
    seen = visit(report)
    name = loss_figure(seen)
    over = seen.figure(name).locator(".u-over").first
    box = over.bounding_box()
    full = window(seen, name)
    seen.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 40)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 60, steps=4)
    seen.page.mouse.up()
    low, high = window(seen, name)
    assert full[0] < low < high < full[1]
    assert high - low == pytest.approx((full[1] - full[0]) / 2, rel=0.05)
    over.dblclick()
    assert window(seen, name) == full


def test_zoom_by_buttons_and_by_keys(visit: Open, report: str) -> None:
    seen = visit(report)
    name = loss_figure(seen)
    figure = seen.figure(name)
    full = window(seen, name)
    figure.get_by_role("button", name="Zoom in").click()
    assert window(seen, name)[1] - window(seen, name)[0] == pytest.approx((full[1] - full[0]) / 2)
    figure.get_by_role("button", name="Reset the zoom").click()
    assert window(seen, name) == full
    figure.locator(".plot").first.focus()
    seen.page.keyboard.press("+")
    assert window(seen, name)[1] < full[1]
    seen.page.keyboard.press("0")
    assert window(seen, name) == full


def test_arrow_keys_read_the_values_aloud(visit: Open, report: str) -> None:
    seen = visit(report)
    figure = seen.figure(loss_figure(seen))
    figure.locator(".plot").first.focus()
    seen.page.keyboard.press("ArrowRight")
    spoken = figure.locator("[aria-live]")
    assert spoken.inner_text().startswith("epoch 1;")
    seen.page.keyboard.press("ArrowRight")
    assert spoken.inner_text().startswith("epoch 2;")
    assert "GMC" in spoken.inner_text()
    assert figure.locator(".tip").first.is_visible()


def test_intervals_zoom_up_and_down(visit: Open, report: str) -> None:
    seen = visit(report)
    figure = seen.figure("areas")
    box = figure.locator(".u-over").first.bounding_box()
    tip = hover(seen, figure, 0.5)
    assert re.search(r"GMC|NormLast", tip.inner_text())
    assert "[" in tip.inner_text()
    before = seen.page.evaluate('Charts.figures.get("areas").panels[0].plot.scales.y.max')
    seen.page.mouse.move(box["x"] + 40, box["y"] + 0.5 * box["height"])
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 60, box["y"] + 0.9 * box["height"], steps=4)
    seen.page.mouse.up()
    assert seen.page.evaluate('Charts.figures.get("areas").panels[0].plot.scales.y.max') < before


def test_single_seeds_can_be_shown(visit: Open, report: str) -> None:
    seen = visit(report)
    figure = seen.figure(loss_figure(seen))
    button = figure.get_by_role("button", name="Show every seed")
    assert button.get_attribute("aria-pressed") == "true"  # an interval of so few seeds could fill the panel
    button.click()
    assert button.get_attribute("aria-pressed") == "false"


def test_a_phone_has_a_menu_of_the_sections(visit: Open, report: str) -> None:
    seen = visit(report, PHONE, touch=True)
    link = seen.page.locator('.bar nav a[href="#provenance"]')
    assert link.is_hidden()
    seen.page.locator("#menu").click()
    link.click()
    assert link.is_hidden()
    assert seen.page.evaluate("location.hash") == "#provenance"


def test_few_exploration_runs_are_single_lines_until_bands_are_asked_for(visit: Open, report: str) -> None:
    seen = visit(report)
    figure = seen.figure("rewards")
    button = figure.get_by_role("button", name="Show every seed")
    assert button.get_attribute("aria-pressed") == "true"
    highest = 'Charts.figures.get("rewards").panels[0].spread(null)[1]'
    curves = 'Charts.figures.get("rewards").panels[0].data.series.flatMap(each => [each.mean, ...each.seeds].flat())'
    top = seen.page.evaluate(f"Math.max(...{curves})")
    before = seen.page.evaluate(highest)
    assert top < before < 1.1 * top
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert seen.page.evaluate(highest) != before  # that of the intervals
    assert seen.complaints == []


def test_nothing_is_asked_for_and_nothing_could_be(visit: Open, report: str) -> None:
    seen = visit(report)
    seen.draw_all()
    assert seen.requests == []
    assert seen.complaints == []
    tried = seen.page.evaluate("fetch('https://example.org/').then(() => 'got through', error => 'refused')")
    assert tried == "refused"
    seen.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=https://example.org/a.png>')")
    seen.page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
    )
    assert seen.page.evaluate("window.ran") is None
    assert seen.requests == [], "the policy stops it before it becomes a request"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(visit: Open, report: str, scheme: str) -> None:
    seen = visit(report, PHONE, scheme, touch=True)
    assert seen.is_narrow_enough()
    seen.draw_all()
    seen.page.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    assert seen.is_narrow_enough()
    assert seen.complaints == []


def test_a_tap_shows_values(visit: Open, report: str) -> None:
    seen = visit(report, PHONE, touch=True)
    figure = seen.figure(loss_figure(seen))
    figure.locator(".u-over").first.tap()
    figure.locator(".tip").first.wait_for(state="visible")
    assert "GMC" in figure.locator(".tip").first.inner_text()


def test_dark_and_light(visit: Open, report: str) -> None:
    def back() -> str:
        return seen.page.evaluate("getComputedStyle(document.body).backgroundColor")

    seen = visit(report, DESKTOP, "dark")
    figure = seen.figure(loss_figure(seen))
    assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert max(map(int, re.findall(r"\d+", back()))) < 60
    assert figure.locator("canvas").first.evaluate(COLOURED) > 20
    figure.get_by_role("button", name="GMC", exact=True).click()
    seen.page.get_by_role("button", name="Switch to light colours").click()
    assert min(map(int, re.findall(r"\d+", back()))) > 200
    assert figure.locator("canvas").first.evaluate(OF_COLOUR, [0xD9, 0x5F, 0x02]) > 20, "redrawn in the other colours"
    chip = figure.get_by_role("button", name="GMC", exact=True)
    assert chip.get_attribute("aria-pressed") == "false", "what was switched off stays off"
    seen.page.emulate_media(color_scheme="dark")
    assert min(map(int, re.findall(r"\d+", back()))) > 200, "the reader's choice counts more than the system's"
    assert seen.complaints == []


def test_headings_are_in_order_and_everything_is_named(visit: Open, report: str) -> None:
    seen = visit(report)
    seen.draw_all()
    levels = seen.page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(n => Number(n.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    nameless = seen.page.evaluate(
        "[...document.querySelectorAll('button, a[href], [tabindex=\"0\"]')]"
        ".filter(n => !(n.textContent.trim() || n.getAttribute('aria-label'))).length"
    )
    assert nameless == 0
    ids = seen.page.evaluate("[...document.querySelectorAll('[id]')].map(n => n.id)")
    assert len(ids) == len(set(ids))


def test_the_navigation_leads_to_every_section_and_marks_where_one_is(visit: Open, report: str) -> None:
    seen = visit(report)
    links = seen.page.locator(".bar nav a:visible")
    names = [links.nth(place).get_attribute("href") for place in range(links.count())]
    assert names == [
        "#" + name for name in seen.page.evaluate("[...document.querySelectorAll('main > section')].map(n => n.id)")
    ]
    seen.page.locator('.bar nav a[href="#claims"]').click()
    seen.page.locator('.bar nav a[href="#claims"][aria-current]').wait_for()


def test_print_draws_everything(visit: Open, report: str, tmp_path: Path) -> None:
    seen = visit(report)
    seen.page.pdf(path=tmp_path / "page.pdf")
    assert seen.page.locator("[data-figure] canvas").count() == sum(
        len(each["panels"]) for each in figures(seen).values()
    )
