"""Text from a store cannot become markup: every place where a store can put words holds an attack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.runs import RunSpec, RunStore
from tests.analysis.stores import begin, controlled_rows, controlled_spec, fail, stop
from tests.browser.conftest import Open, serving

ATTACKS = (
    "<img src=x onerror=window.pwned=1>",
    "</script><script>window.pwned=2</script>",
    "\"><svg onload=window.pwned=3>'",
    "<!--<script>window.pwned=4//-->",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.pwned=5",
    "]]></style><style>*{display:none}",
)


@pytest.fixture(scope="module")
def hostile_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose names, parameters, notes, tracebacks and provenance are attacks."""
    root = tmp_path_factory.mktemp("hostile") / "</title><script>window.pwned=6<" / "script>"
    store = RunStore(root)
    for seed in range(2):
        for method in ("uniform", *ATTACKS):
            model = controlled_spec(method="uniform", seed=seed, epochs=6)
            params = {"dataset": ATTACKS[0], "epochs": 6, ATTACKS[2]: ATTACKS[1]}
            spec = RunSpec(
                experiment=ATTACKS[1],
                condition="noise",
                method=method,
                seed=seed,
                params=params,
                protocol={**model.protocol, ATTACKS[3]: ATTACKS[0]},
            )
            run = begin(store, spec, controlled_rows(model))
            content = json.dumps({"torch": ATTACKS[1], "note": ATTACKS[0], ATTACKS[2]: ATTACKS[3]}).encode()
            run.save("provenance.json", lambda file, content=content: file.write(content))
            run.finish()
    for number, attack in enumerate(ATTACKS):
        fail(store, controlled_spec(seed=100 + number, epochs=6), attack)
    stop(store, controlled_spec(seed=200, epochs=6))
    broken = controlled_spec(seed=300, epochs=6)
    store.add(broken)
    (store.folder(broken.run_id) / "spec.json").write_text(ATTACKS[1])
    return root


def check(visit: Open, address: str) -> None:
    seen = visit(address)
    seen.draw_all()
    seen.page.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    assert seen.page.evaluate("window.pwned") is None
    assert seen.page.locator("main img, main script, main style, svg[onload], [onerror]").count() == 0
    text = seen.page.locator("main").inner_text()
    for attack in ATTACKS:
        assert attack in text, "the words themselves are shown"
    assert "49" not in seen.page.locator(".chips").first.inner_text()
    assert seen.requests == []
    assert seen.complaints == []
    assert seen.page.locator("h1").is_visible()


def test_in_the_report(visit: Open, hostile_store: Path, tmp_path: Path) -> None:
    from headway.analysis.report import write_report

    written = write_report(hostile_store, tmp_path / "report", formats=("svg",))
    check(visit, written.index.as_uri())


def test_on_the_live_page(visit: Open, hostile_store: Path) -> None:
    with serving(hostile_store) as address:
        check(visit, address)


def test_links_lead_to_the_files_of_runs_only(visit: Open, hostile_store: Path, tmp_path: Path) -> None:
    from headway.analysis.report import write_report

    seen = visit(write_report(hostile_store, tmp_path / "report", formats=()).index.as_uri())
    links = seen.page.evaluate("[...document.querySelectorAll('a[href]')].map(n => n.href)")
    assert links
    assert all(link.startswith("file:///") for link in links)
