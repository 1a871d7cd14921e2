"""The page of results says what the files in the repository say."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from headway.analysis import load_results
from headway.analysis.report.markdown import frame, planned_figures, render
from headway.analysis.report.view import make_view

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"


def test_the_page_is_that_of_the_results() -> None:
    results = load_results(RESULTS)
    figures = planned_figures(results, PAGE)
    before, after = frame(PAGE)
    made = render(make_view(RESULTS, results, datetime(2026, 1, 1)), figures, PAGE.parent)
    assert PAGE.read_text("utf-8") == f"{before}{made}{after}", "run: headway report results --markdown docs/results.md"
    for figure in figures:
        assert figure.files[0].is_file(), figure.name


def test_every_lot_is_one_of_the_campaigns() -> None:
    campaigns = "\n".join(path.read_text("utf-8") for path in (ROOT / "campaigns").glob("*.toml"))
    for lot in RESULTS.glob("*.parquet"):
        assert f'name = "{lot.stem}"' in campaigns, lot.name
        assert all(run.finished for run in load_results(lot)), lot.name
