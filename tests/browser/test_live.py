"""The live page in a real browser, while runs go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.analysis import watch as live_page
from headway.runs import RunStore
from tests.analysis.stores import begin, controlled_rows, controlled_spec, controlled_specs, finish_all
from tests.browser.conftest import PHONE, Open, serving


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the store as often as the page asks; runs tell each step."""
    monkeypatch.setattr(live_page, "INTERVAL", 0.05)
    monkeypatch.setattr(live_page, "FULL_INTERVAL", 0.0)
    monkeypatch.setattr(live_page, "SHARE", 1e9)
    monkeypatch.setattr("headway.runs.run.PROGRESS_INTERVAL", 0.0)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    found = RunStore(tmp_path / "runs")
    finish_all(found, controlled_specs(conditions=["noise"], methods=("uniform", "gmc"), seeds=2, epochs=10))
    return found


def test_it_shows_the_same_and_follows_a_run_to_its_end(visit: Open, store: RunStore) -> None:
    spec = controlled_spec(seed=2, epochs=10)
    rows = controlled_rows(spec)
    run = begin(store, spec, rows[:4])
    run.progress(4, 10, speed=2.0)
    run.checkpoint(4, lambda file: file.write(b"state"))
    with serving(store.root) as address:
        seen = visit(address)
        progress = seen.page.locator("#progress")
        assert "Noise+MNIST, GMC, seed 2" in progress.inner_text()
        assert "4/10" in progress.inner_text()
        assert "1 run is under way" in progress.inner_text()
        assert "3 s" in progress.inner_text(), "six epochs at two per second"
        assert seen.page.locator("#figures [data-figure]").count() == 2
        figure = seen.figure(seen.page.locator("#figures [data-figure]").first.get_attribute("data-figure"))
        figure.get_by_role("button", name="Uniform", exact=True).click()
        seen.page.evaluate("window.stayed = true")
        for row in rows[4:]:
            run.log(row)
        run.finish()
        seen.page.locator("#progress", has_text="Nothing is left to do").wait_for()
        seen.page.locator("#overview .tiles li", has_text="5").first.wait_for()
        seen.page.wait_for_function(
            "[...document.querySelectorAll('#summary td')].some(cell => cell.textContent.trim() === '3')"
        )
        assert seen.page.evaluate("window.stayed"), "the page was not loaded again"
        chip = seen.page.locator("#figures [data-figure]").first.get_by_role("button", name="Uniform", exact=True)
        assert chip.get_attribute("aria-pressed") == "false", "what the reader has switched off stays off"
        assert seen.requests == []
        assert seen.complaints == []


def test_a_failure_appears_with_its_message_and_stays_open(visit: Open, store: RunStore) -> None:
    spec = controlled_spec(seed=2, epochs=10)
    run = begin(store, spec, controlled_rows(spec)[:4])
    with serving(store.root) as address:
        seen = visit(address)
        assert seen.page.locator("#overview", has_text="failed").count() == 0
        try:
            raise ValueError("the loss is not finite")
        except ValueError as error:
            run.fail(error)
        summary = seen.page.locator("#overview summary", has_text="ValueError: the loss is not finite")
        summary.wait_for()
        summary.click()
        assert "Traceback" in seen.page.locator("#overview pre").inner_text()
        other = begin(store, controlled_spec(seed=3, epochs=10), controlled_rows(spec)[:4])
        seen.page.locator("#progress", has_text="seed 3").wait_for()
        assert seen.page.locator("#overview pre").first.is_visible(), "what was unfolded stays so"
        other.interrupt("enough")
        seen.page.locator("#overview", has_text="enough").wait_for()
        assert seen.complaints == []


def test_it_says_when_the_server_is_gone(visit: Open, store: RunStore) -> None:
    with serving(store.root) as address:
        seen = visit(address)
        assert seen.page.locator("#live").inner_text().startswith("live")
    seen.page.locator("#live.lost").wait_for()
    assert "is headway watch still running?" in seen.page.locator("#live").get_attribute("title")


def test_a_phone_needs_no_sideways_scrolling(visit: Open, store: RunStore) -> None:
    run = begin(store, controlled_spec(seed=2, epochs=10), controlled_rows(controlled_spec(seed=2, epochs=10))[:4])
    with serving(store.root) as address:
        seen = visit(address, PHONE, "dark", touch=True)
        seen.draw_all()
        assert seen.is_narrow_enough()
        assert seen.complaints == []
    run.interrupt("the test is over")


def test_a_store_without_runs_fills_up(visit: Open, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    specs = controlled_specs(conditions=["noise"], methods=("uniform", "gmc"), seeds=2, epochs=4)
    store.add_all(specs)
    with serving(store.root) as address:
        seen = visit(address)
        assert seen.page.locator("#figures").is_hidden()
        assert seen.page.locator('.bar nav a[href="#figures"]').is_hidden()
        finish_all(store, specs)
        chart = seen.page.locator("#figures [data-figure]").first
        chart.wait_for(state="attached")
        seen.figure(chart.get_attribute("data-figure"))
        assert seen.page.locator('.bar nav a[href="#figures"]').is_visible()
        assert seen.complaints == []
