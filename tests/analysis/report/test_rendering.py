from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from headway.analysis.report import View, make_view, rendering, update_view
from headway.analysis.report.rendering import (
    HERE,
    SECTIONS,
    Live,
    embed,
    reach,
    render_page,
    render_sections,
)
from headway.analysis.results import load_results
from headway.analysis.stats import Estimate
from headway.runs import RunStore
from tests.analysis.made import controlled, exploration, together
from tests.analysis.stores import controlled_specs, finish_all, write_mixed_store

NOW = datetime(2026, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    root = tmp_path_factory.mktemp("runs")
    write_mixed_store(root, epochs=4, seeds=2)
    return make_view(root, load_results(root), NOW)


class Elements(HTMLParser):
    """Collects elements, their attributes, and the content of scripts and styles; checks that all is closed."""

    EMPTY = frozenset({"meta", "link", "br", "img", "line", "circle"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.content: dict[str, list[str]] = {"script": [], "style": []}
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)
        if tag in self.content:
            self.content[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.content:
            self.content[self.open[-1]][-1] += data


def of(elements: Elements, tag: str) -> list[dict[str, str | None]]:
    return [attributes for name, attributes in elements.found if name == tag]


def policy_of(elements: Elements) -> dict[str, str]:
    (text,) = [each["content"] for each in of(elements, "meta") if each.get("http-equiv") == "Content-Security-Policy"]
    return dict(part.strip().split(" ", 1) for part in text.split(";"))


def sum_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("live", [None, Live(2.0, "v", "f")], ids=["report", "live"])
def test_the_policy_names_the_scripts_and_styles_of_the_page_and_nothing_else(view: View, live: Live | None) -> None:
    elements = Elements(render_page(view, live=live))
    assert elements.open == []
    policy = policy_of(elements)
    scripts = [
        text
        for text, attributes in zip(elements.content["script"], of(elements, "script"), strict=True)
        if attributes.get("type") != "application/json"
    ]
    assert policy.pop("script-src").split() == [sum_of(text) for text in scripts]
    assert policy.pop("style-src").split() == [sum_of(text) for text in elements.content["style"]]
    expected = {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert policy == expected | ({"connect-src": "'self'"} if live else {})
    if live:
        assert rendering.policy(live=True) in render_page(view, live=live).replace("&#39;", "'")


def test_nothing_is_loaded_and_no_style_or_handler_stands_in_an_element(view: View) -> None:
    elements = Elements(render_page(view))
    for tag, attributes in elements.found:
        assert not any(name == "style" or name.startswith("on") for name in attributes), (tag, attributes)
        assert tag not in ("iframe", "object", "embed", "form", "base")
        source = attributes.get("src") or (attributes.get("href") if tag == "link" else None)
        assert source is None or source.startswith("data:")


def test_every_figure_of_the_page_has_its_data_and_the_other_way_round(view: View) -> None:
    elements = Elements(render_page(view))
    (data,) = [text for text in elements.content["script"] if text.startswith("{")]
    places = [attributes["data-figure"] for _, attributes in elements.found if "data-figure" in attributes]
    assert sorted(places) == sorted(json.loads(data))


def test_json_cannot_leave_its_element() -> None:
    attack = {"</script><!--": ["]]>", "\u2028", "&lt;", "é"]}
    text = embed(attack)
    assert not set("<>&\u2028é") & set(text)
    assert json.loads(text) == attack


def test_numbers_that_json_does_not_have_are_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        embed([float("nan")])


def test_templates_escape_and_are_strict(view: View) -> None:
    page = render_page(view)
    assert "loss is not finite &lt;b&gt;&amp;" in page
    assert "loss is not finite <b>" not in page


def test_sections_with_nothing_to_show_are_left_out(tmp_path: Path) -> None:
    empty = make_view(tmp_path, together(), NOW)
    sections = render_sections(empty)
    assert [name for name, html in sections.items() if html] == ["overview"]
    assert "There are no runs yet" in sections["overview"]
    elements = Elements(render_page(empty))
    assert [each["id"] for each in of(elements, "section")] == ["overview"]
    elements = Elements(render_page(empty, live=Live(1.0, "v", "f")))
    assert [each["id"] for each in of(elements, "section")] == list(SECTIONS), "a live page may need them later"


def test_the_page_says_what_was_run_and_what_went_wrong(view: View) -> None:
    html = render_sections(view)["overview"]
    text = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", html))
    assert "1 run failed" in text
    assert "3 runs could not be read" in text
    assert "1 run stopped before the end" in text
    assert "after 2 of 4: stopped on request" in text
    assert "RuntimeError: loss is not finite" in text


def test_the_live_page_tells_progress(view: View) -> None:
    assert render_sections(view)["progress"] == ""
    assert "No run is under way now" in render_sections(view, live=True)["progress"]
    assert render_sections(view, live=True)["data"] == ""


def test_an_updated_view_tells_the_new_counts(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    specs = controlled_specs(conditions=["noise"], methods=("gmc",), seeds=2, epochs=3)
    store.add_all(specs)
    first = make_view(tmp_path, load_results(tmp_path), NOW, live=True)
    finish_all(store, specs)
    second = update_view(first, load_results(tmp_path), NOW)
    assert first.overview.over == 0
    assert second.overview.over == 2
    assert second.charts == first.charts


def test_small_axes_hold_one_and_all_intervals() -> None:
    place = reach([Estimate(1.5, 1.2, 2.0, 3), Estimate(0.5, float("-inf"), float("inf"), 1)])
    assert place(0.5) == 2
    assert place(2.0) == 142
    assert 2 < place(1) < 142
    assert reach([])(1) == 2


def test_the_licence_of_what_comes_from_elsewhere_is_beside_it() -> None:
    vendor = HERE / "assets" / "vendor"
    assert "MIT License" in (vendor / "uPlot-LICENSE").read_text()
    assert "uPlot (v1.6.32)" in (vendor / "uPlot.iife.min.js").read_text()[:100]


def test_protocols_for_which_no_claims_are_judged_are_named(tmp_path: Path) -> None:
    runs = [controlled(np.ones((5, 4)), beta=beta, seed=seed) for beta in (0.9, 0.99) for seed in (0, 1)]
    runs += [controlled(np.ones((5, 4)), beta=beta) for beta in (0.5, 0.6, 0.7)]
    view = make_view(tmp_path, together(*runs), NOW)
    assert len(view.claims) == 3
    assert view.unjudged == ["released, beta=0.6, epochs=5", "released, beta=0.7, epochs=5"]
    page = render_page(view)
    assert "judges 2 others that have finished runs: released, beta=0.6, epochs=5; released, beta=0.7" in page
    assert "judges" not in render_page(make_view(tmp_path, together(*runs[:2]), NOW))


def test_a_page_about_runs_that_diverged(tmp_path: Path) -> None:
    """Nothing warns, and what is not known is a dash."""
    draws = np.ones((5, 4), dtype=int)
    draws[2] = 0
    runs = [controlled(np.ones((5, 4)), method=name, seed=seed) for name in ("uniform", "gmc") for seed in (0, 1)]
    runs.append(controlled(np.full((5, 4), np.inf), method="uniform", seed=2))
    runs.append(controlled(np.ones((5, 4)), draws=draws, method="gmc", seed=2))
    runs.append(exploration(np.full(20, np.nan)))
    page = render_page(make_view(tmp_path, together(*runs), NOW))
    assert "A run of Uniform diverged" in page
    assert "no test: a run diverged" in page
    assert "too few seeds" not in page
    assert "nan" not in page.split("<h2>Summary</h2>")[1].split("<h2>")[0]
