from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from headway.analysis.charts import figure
from headway.analysis.charts.figure import named_charts, plan_figures
from headway.analysis.report import Written, address, write_report
from headway.errors import FigureError, StoreError
from headway.runs import RunStore
from tests.analysis.made import controlled, together
from tests.analysis.stores import controlled_specs, damage, doorkey_spec, fail, finish, finish_all, write_mixed_store

NOW = datetime(2026, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return write_mixed_store(tmp_path_factory.mktemp("mixed") / "runs", epochs=5, seeds=2)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """Few runs, for tests that draw."""
    store = RunStore(tmp_path_factory.mktemp("small") / "runs")
    finish_all(store, controlled_specs(conditions=["noise"], methods=("uniform", "gmc"), seeds=2, epochs=4))
    return store


def data_of(index: Path) -> dict:
    return json.loads(re.search(r'id="figures-data">(.*?)</script>', index.read_text())[1])


def files_of(written: Written) -> set[str]:
    return {path.relative_to(written.index.parent).as_posix() for path in written.files}


def test_the_page_and_the_tables(store: RunStore, tmp_path: Path) -> None:
    written = write_report(store.root, tmp_path / "a" / "report", formats=(), now=NOW)
    assert written.index == tmp_path / "a" / "report" / "index.html"
    assert written.size == written.index.stat().st_size
    names = ("summary", "welch", "overall", "areas", "runs", "rewards")
    assert files_of(written) == {"index.html"} | {f"tables/{name}.{kind}" for name in names for kind in ("csv", "tex")}
    page = written.index.read_text()
    assert all(f'href="{name}"' in page for name in files_of(written) - {"index.html"})
    assert "02 January 2026 at 03:04" in page


def test_the_figures_for_print(small: RunStore, tmp_path: Path) -> None:
    steps: list[str] = []
    written = write_report(small.root, tmp_path, formats=("svg",), tell=lambda what, done, total: steps.append(what))
    figures = {name for name in files_of(written) if name.startswith("figures/")}
    assert {"figures/auc.svg", "figures/average-loss-mnist-noise.svg"} <= figures
    page = written.index.read_text()
    assert all(f'href="{name}"' in page for name in figures)
    assert all(path.is_file() for path in written.files)
    assert steps[0] == "reading the runs"
    assert "drawing auc" in steps
    assert steps[-1] == "writing the page"


def test_protocols_that_differ_in_a_sign_do_not_overwrite_each_others_figures() -> None:
    runs = [controlled(np.ones((5, 4)), method=m, dot_scale=scale) for m in ("uniform", "dot") for scale in (2.0, -2.0)]
    names = [name for name, _ in named_charts(plan_figures(together(*runs)))]
    assert len(set(names)) == len(names) > 0
    assert {name.split("/")[0] for name in names} == {
        "released-dot-scale-2-epochs-5",
        "released-dot-scale-2-epochs-5-2",
    }


def test_links_lead_to_the_raw_data(store: RunStore, tmp_path: Path) -> None:
    page = write_report(store.root, tmp_path / "report", formats=()).index
    links = re.findall(r'href="([^"#:]*?metrics\.parquet)"', page.read_text())
    assert len(links) == 42, "one for each run whose metrics are there and that can be named"
    assert all((page.parent / link).is_file() for link in links)


def test_a_damaged_store_is_right_about_the_rest(tmp_path: Path) -> None:
    """The figures and tables of whole runs do not change when broken ones are added."""
    specs = controlled_specs(conditions=["noise"], seeds=2, epochs=5)
    store = RunStore(tmp_path / "runs")
    finish_all(store, specs)
    before = write_report(store.root, tmp_path / "before", formats=(), now=NOW)
    worse = controlled_specs(conditions=["noise"], methods=("gmc",), seeds=6, epochs=5)
    finish(store, worse[2])
    damage(store, worse[2])
    fail(store, worse[3])
    store.add(worse[4])
    finish(store, worse[5])
    (store.folder(worse[5].run_id) / "spec.json").write_text("{")
    after = write_report(store.root, tmp_path / "after", formats=(), now=NOW)
    assert data_of(after.index) == data_of(before.index)
    for name in ("summary", "welch", "areas"):
        assert (tmp_path / "after/tables" / f"{name}.csv").read_text() == (
            tmp_path / "before/tables" / f"{name}.csv"
        ).read_text()
    assert len(after.view.overview.failures) == 1
    assert len(after.view.overview.problems) == 2


def test_it_is_written_again_over_an_older_one(store: RunStore, tmp_path: Path) -> None:
    first = write_report(store.root, tmp_path, formats=(), now=NOW).index.read_bytes()
    again = write_report(store.root, tmp_path, formats=(), now=NOW).index.read_bytes()
    assert again == first, "the same runs give the same page"


def test_a_store_without_a_finished_run(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    store.add_all(controlled_specs(seeds=1, epochs=3))
    written = write_report(store.root, tmp_path / "report", formats=("png",))
    assert "12" in written.index.read_text()
    assert data_of(written.index) == {}


def test_no_store_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="got nothing; check the path"):
        write_report(tmp_path / "none", tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_file_in_the_way_of_the_folder(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("")
    with pytest.raises(StoreError, match="expected a folder for the report"):
        write_report(store.root, tmp_path / "report")


def test_a_figure_that_cannot_be_drawn_is_left_out_with_its_reason(
    small: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise FigureError("too beautiful")

    monkeypatch.setattr("headway.analysis.charts.figure.save", refuse)
    written = write_report(small.root, tmp_path, formats=("png",))
    assert ("auc", "too beautiful") in written.omissions
    assert "too beautiful" in written.index.read_text()


@pytest.mark.slow
def test_several_processes_draw_the_same_figures(
    small: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = write_report(small.root, tmp_path / "one", formats=("svg",))
    monkeypatch.setattr(figure, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr(figure, "print_chart", lambda *arguments: pytest.fail("drawn here"))
    two = write_report(small.root, tmp_path / "two", formats=("svg",), processes=2)
    assert files_of(one) == files_of(two)
    drawn = [path for path in one.files if path.suffix == ".svg"]
    assert drawn
    assert all(path.read_bytes() == (tmp_path / "two/figures" / path.name).read_bytes() for path in drawn)


def test_what_other_processes_do_not_draw_is_drawn_here(
    small: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr(figure, "_print_in_processes", lambda source, folder, names, *rest: set(names))
    written = write_report(small.root, tmp_path, formats=("svg",), processes=2)
    assert all(path.is_file() for path in written.files)


def test_recordings_are_in_the_page(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    ids = [finish(store, doorkey_spec(method=method, seed=seed)) for method in ("ppo", "icm") for seed in range(2)]
    (store.folder(ids[1]) / "play.gif").write_bytes(b"GIF89a tiny")
    (store.folder(ids[2]) / "play.gif").write_bytes(b"<svg onload=alert(1)>")
    written = write_report(store.root, tmp_path / "report", formats=())
    (recording,) = written.view.recordings
    assert recording.title == "PPO, MiniGrid DoorKey, No noise, seed 1"
    assert 'src="data:image/gif;base64,R0lGODlhIHRpbnk="' in written.index.read_text()


def test_addresses_are_relative_and_quoted(tmp_path: Path) -> None:
    assert address(tmp_path / "a b" / "<x>.csv", tmp_path / "report") == "../a%20b/%3Cx%3E.csv"
