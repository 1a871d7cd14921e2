"""The page of results says what the files in the repository say."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from headway.analysis import load_results
from headway.analysis.commands.claims import read_bench
from headway.analysis.report.markdown import frame, planned_figures, render
from headway.analysis.report.view import make_view

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
BENCH = ROOT / "benchmarks" / "results" / "bench.json"
COMMAND = "headway report results --bench benchmarks/results/bench.json --markdown docs/results.md"


def test_the_page_is_that_of_the_results() -> None:
    results = load_results(RESULTS)
    figures = planned_figures(results, PAGE)
    before, after = frame(PAGE)
    made = render(make_view(RESULTS, results, datetime(2026, 1, 1), bench=read_bench(BENCH)), figures, PAGE.parent)
    assert PAGE.read_text("utf-8") == f"{before}{made}{after}", f"run: {COMMAND}"
    assert COMMAND in before, "the page says how it is made"
    for figure in figures:
        assert figure.files[0].is_file(), figure.name


def test_every_lot_is_one_of_the_campaigns() -> None:
    campaigns = "\n".join(path.read_text("utf-8") for path in (ROOT / "campaigns").glob("*.toml"))
    for lot in RESULTS.glob("*.parquet"):
        assert f'name = "{lot.stem}"' in campaigns, lot.name
        assert all(run.finished for run in load_results(lot)), lot.name
