"""The results as a page in Markdown: its numbers are those of the runs, and what people wrote around it stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from headway.analysis import load_results
from headway.analysis.charts.figure import named_charts, plan_figures
from headway.analysis.claims.formats import as_markdown
from headway.analysis.comparison import method_rows
from headway.analysis.report import View, claims_of, make_view
from headway.analysis.report.markdown import BEGIN, END, render
from headway.analysis.rundata import RunData
from headway.commands.report import make_report
from headway.errors import UsageError
from headway.runs import RunStore
from tests.analysis.made import controlled, together
from tests.analysis.stores import controlled_specs, doorkey_spec, finish_all

NOW = datetime(2026, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    store = RunStore(tmp_path_factory.mktemp("runs"))
    finish_all(store, controlled_specs(conditions=["noise"], methods=("uniform", "gmc"), seeds=3, epochs=4))
    finish_all(store, [doorkey_spec(seed=seed) for seed in range(2)])
    return store


@pytest.fixture(scope="module")
def view(store: RunStore) -> View:
    return make_view(store.root, load_results(store.root), NOW)


def test_the_numbers_are_those_of_the_tables(view: View) -> None:
    text = render(view, [], Path())
    for members in view.results.select(experiment="controlled").groups().values():
        for row in method_rows(members):
            if row.method == "gmc":
                assert row.relative is not None
                cells = f"| GMC | 3 | {row.relative.value:.4f} | [{row.relative.low:.4f}, {row.relative.high:.4f}] |"
                assert cells in text
    assert "| method | seeds | return at the end | 95% interval | of each seed |" in text
    assert text.startswith("† MNIST is not the official copy: made up.\n\n8 runs, 8 done.")
    assert "17 claims under protocol" in text


@pytest.mark.slow
def test_a_page_is_made_and_made_anew(store: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "docs" / "results.md"
    make_report(store.root, tmp_path / "report", [], markdown=page)
    first = page.read_text("utf-8")
    assert first.startswith(f"# Results\n\n{BEGIN}\n")
    assert f"{page}: the same in Markdown" in capsys.readouterr().out
    names = [name for name, _ in named_charts(plan_figures(load_results(store.root)))]
    assert names
    for name in names:
        assert (page.parent / "figures" / "results" / f"{name}.svg").read_text("utf-8").startswith("<?xml")
        assert f"(figures/results/{name}.svg)" in first
    page.write_text(f"# Mine\n\n{BEGIN}\nold\n{END}\n\nmore\n", "utf-8")
    make_report(store.root, tmp_path / "report", [], markdown=page)
    generated = first.partition(BEGIN)[2].partition(END)[0]
    assert page.read_text("utf-8") == f"# Mine\n\n{BEGIN}{generated}{END}\n\nmore\n"


def test_only_figures_of_the_earlier_page_are_removed(store: RunStore, tmp_path: Path) -> None:
    page, folder = tmp_path / "results.md", tmp_path / "figures" / "results"
    folder.mkdir(parents=True)
    old, mine, elsewhere = folder / "old.svg", folder / "mine.svg", tmp_path / "figures" / "other.svg"
    for file in (old, mine, elsewhere):
        file.write_text("<svg/>")
    shown = "![old](figures/results/old.svg) ![o](figures/other.svg) ![o](figures/results/../other.svg)"
    page.write_text(f"![mine](figures/results/mine.svg)\n{BEGIN}\n{shown}\n{END}\n", "utf-8")
    make_report(store.root, tmp_path / "report", [], markdown=page)
    assert [file.exists() for file in (old, mine, elsewhere)] == [False, True, True]
    assert "old.svg" not in page.read_text("utf-8")


def test_pages_beside_it_have_the_parts_that_their_marks_name(store: RunStore, tmp_path: Path) -> None:
    page, claims, diary = (tmp_path / name for name in ("results.md", "results/claims.md", "results/diary.md"))
    claims.parent.mkdir()
    page.write_text(f"<!-- results: begin runs, noise, exploration -->\n{END}\n", "utf-8")
    claims.write_text(f"# Claims\n\n<!-- results: begin claims -->\nold\n{END}\nmore\n", "utf-8")
    diary.write_text("dear diary", "utf-8")
    make_report(store.root, tmp_path / "report", [], markdown=page)
    first, second = page.read_text("utf-8"), claims.read_text("utf-8")
    assert first.startswith("<!-- results: begin runs, noise, exploration -->\n")
    assert "## Noise+MNIST" in first
    assert "## Claims" not in first
    assert "(figures/results/" in first
    assert second.startswith("# Claims\n\n<!-- results: begin claims -->\n")
    assert second.endswith(f"{END}\nmore\n")
    assert "## Claims: protocol" in second
    assert "## Noise" not in second
    assert "![" not in second
    assert diary.read_text("utf-8") == "dear diary"
    claims.write_text(f"<!-- results: begin verdicts -->\n{END}\n", "utf-8")
    with pytest.raises(UsageError, match="'verdicts'"):
        make_report(store.root, tmp_path / "report", [], markdown=page)


def test_telemetry_has_its_states_and_last_numbers(tmp_path: Path) -> None:
    head = "step,source,samples,share,loss,gradient_norm,gmc,coupling,state"
    rows = [
        "50,web,8,0.25,2.5,4,0.5,0.125,learning",
        "50,a|<b>_c_,24,0.75,1,3,,,learning",
        "100,web,16,0.5,1.5,2,0.75,0.375,saturated",
    ]
    (tmp_path / "sources.csv").write_text("\n".join([head, *rows, "x"]), "utf-8")
    make_report(tmp_path / "sources.csv", tmp_path / "report", markdown=tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text("utf-8")
    assert "## Data sources, sources.csv\n\n*1 of 4 rows could not be read and is left out.*\n" in text
    assert (
        "| source | state | step | loss | share | samples | gradient norm | gmc | coupling | states over time" in text
    )
    assert "| web | saturated | 100 | 1.5 | 50% | 16 | 2 | 0.75 | 0.375 | learning to 50, saturated to 100 |" in text
    assert r"| a\|\<b\>\_c\_ | learning | 50 | 1 | 75% | 24 | 3 | – | – | learning to 50 |" in text
    assert "0 runs" not in text
    assert "protocol" not in text


def test_of_many_states_the_latest_are_named(tmp_path: Path) -> None:
    rows = [f"{step},web,1,1,1,1,1,1,{('learning', 'saturated')[step % 2]}" for step in range(1, 10)]
    head = "step,source,samples,share,loss,gradient_norm,gmc,coupling,state"
    (tmp_path / "sources.csv").write_text("\n".join([head, *rows]), "utf-8")
    make_report(tmp_path / "sources.csv", tmp_path / "report", markdown=tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text("utf-8")
    assert "| 3 before, learning to 4, saturated to 5, learning to 6, saturated to 7, learning to 8, saturated" in text


def test_a_page_of_somebody_else_is_left_alone(store: RunStore, tmp_path: Path) -> None:
    page = tmp_path / "diary.md"
    page.write_text("dear diary", "utf-8")
    with pytest.raises(UsageError, match="expected a page with the marks"):
        make_report(store.root, tmp_path / "report", [], markdown=page)
    assert page.read_text("utf-8") == "dear diary"
    assert not (tmp_path / "report").exists()


def test_claims_without_runs_are_only_named() -> None:
    results = together(*(controlled(np.ones((3, 4)), method=method) for method in ("uniform", "gmc", "curiosity")))
    (found,) = claims_of(results).values()
    text = as_markdown(found, only_found=True)
    assert "| C5 | **undecided** |" in text
    assert "| C14 |" not in text
    assert "Not tested, for want of runs: C1, " in text
    assert "| C14 |" not in as_markdown(found).split("| claim | part |")[0]


def test_claims_are_judged_where_they_can_be() -> None:
    """Not under the protocols of gates and of the points of a grid, however many runs they have."""
    grid = [controlled(np.ones((3, 4)), seed=seed, floor=floor) for floor in (1e-3, 1e-2) for seed in range(5)]
    base = [controlled(np.ones((3, 4)), method=method) for method in ("uniform", "gmc")]
    assert set(claims_of(together(*base, *grid))) == {"released, epochs=3"}
    assert len(claims_of(together(*grid))) == 2, "all there are, if there is nothing better"


def several(level: float, method: str, seeds: int = 2, **options: object) -> list[RunData]:
    runs = range(seeds)
    return [controlled(np.full((3, 4), level * (1 + 0.1 * s)), method=method, seed=s, **options) for s in runs]


def test_gates_and_grids_have_tables() -> None:
    small = {"floor_unit": "sample"}
    runs = [*several(1.0, "uniform"), *several(0.8, "gmc"), *several(1.2, "gmc", 3, **small)]
    runs += several(0.6, "gmc_hard", **small)
    runs += several(0.9, "gmc", beta=0.9, **small)
    text = render(make_view(Path("made"), together(*runs), NOW), (), Path())
    assert "Compared with the runs of Uniform under protocol released, epochs=3." in text
    gate = (
        "released, epochs=3, floor_unit=sample | 2 | 0.6000 | [0.6000, 0.6000] | 0.5000 | [0.5000, 0.5000] | 0.7500 |"
    )
    assert f"| Noise+MNIST | GMC, hard gate | {gate}" in text
    assert "released, epochs=3, floor_unit=sample | 3 | 1.2000 (2 of 3 seeds) |" in text
    assert "Protocol released, 2 to 3 seeds in a cell; floors in the unit of a sample's own gradient; " in text
    assert "compared with Uniform under protocol released, epochs=3." in text
    assert "| decay rate β \\ floor | 1e-8 |" in text
    assert "| 0.9 | 0.9000* / 0% / – / – |" in text
    assert "| 0.999 | 1.2000* / 0% / – / – |" in text
    assert "| GMC, Noise+MNIST, over decay rate β and floor, 3 epochs: 5 runs | see the table | 0–2 |" in text


def test_data_that_are_not_the_official_copy_are_marked_everywhere() -> None:
    copied = [
        replace(run, environment={"note": "JPEG-compressed copy"})
        for method in ("uniform", "gmc")
        for run in several(1.0, method, dataset="cifar10")
    ]
    text = render(make_view(Path("made"), together(*copied, *several(1.0, "uniform")), NOW), (), Path())
    assert text.startswith("† CIFAR-10 is not the official copy: JPEG-compressed copy.\n")
    body = text.partition("\n")[2]
    assert "## Noise+CIFAR-10†, protocol released" in body
    assert body.count("CIFAR-10†") == body.count("CIFAR-10")
    assert "MNIST†" not in body
