"""The page of results says what the files in the repository say."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from headway.analysis import load_results
from headway.analysis.charts.figure import Printed, named_charts, plan_figures
from headway.analysis.claims.verdicts import MIN_SEEDS
from headway.analysis.report import make_view
from headway.analysis.report.markdown import FIGURES, FORMAT, PARTS, frame, pages_at, parts_of, render
from headway.commands.campaign_file import read_campaign_file
from headway.commands.claims import read_bench
from tests.runs.test_later import former_ids

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
BENCH = [f"benchmarks/results/{name}.json" for name in ("bench", "controlled-mnist", "controlled-cifar10")]
COMMAND = f"headway report results --out report/results --bench {' '.join(BENCH)} --markdown docs/results.md"


WORDS = 2500
"""A page has fewer, but for the table of claims, which is for reference."""


def test_the_pages_are_those_of_the_results() -> None:
    results = load_results(RESULTS)
    figures = [
        Printed(name, chart.caption, [PAGE.parent / FIGURES / PAGE.stem / f"{name}.{FORMAT}"], chart.part)
        for name, chart in named_charts(plan_figures(results))
    ]
    bench = read_bench([ROOT / name for name in BENCH])
    view = make_view(RESULTS, results, datetime(2026, 1, 1), bench=bench)
    shown = []
    for page in pages_at(PAGE):
        (before, after), parts, text = frame(page), parts_of(page), page.read_text("utf-8")
        assert text == f"{before}{render(view, figures, page.parent, parts)}{after}", f"run: {COMMAND}"
        assert len(text.split()) < WORDS or "claims" in parts, page.name
        shown += parts
    assert sorted([*shown, "sources"]) == sorted(PARTS), "each part of the results is on one page"
    assert COMMAND in PAGE.read_text("utf-8"), "the page says how it is made"
    for figure in figures:
        assert figure.part in shown, figure.name
        assert figure.files[0].is_file(), figure.name


def campaign_sections() -> dict[str, set[str]]:
    """The ids of the runs of every section that is run on a small machine, by its name."""
    files = [ROOT / "campaigns" / f"{name}.toml" for name in ("evidence", "sensitivity")]
    return {
        section.name: {spec.run_id for spec in section.specs()}
        for file in files
        for section in read_campaign_file(file).sections
    }


def test_every_file_has_finished_runs_of_its_section() -> None:
    sections, former = campaign_sections(), set().union(*former_ids().values())
    for file in RESULTS.glob("*.parquet"):
        runs = load_results(file)
        assert {run.id for run in runs} <= sections[file.stem] | former, file.name
        assert all(run.finished for run in runs), file.name


def test_sections_that_decide_claims_have_enough_seeds_and_uniform() -> None:
    file = ROOT / "campaigns" / "evidence.toml"
    sections = {section.name: section.specs() for section in read_campaign_file(file).sections}
    for name, specs in sections.items():
        assert len({spec.seed for spec in specs}) >= MIN_SEEDS, name
    deciding = ("noise-mnist", "noise-cifar10", "curriculum-mnist", "curriculum-cifar10")
    for name in (*deciding, "noise-mnist-paper", "curriculum-mnist-100"):
        assert "uniform" in {spec.method for spec in sections[name]}, name
