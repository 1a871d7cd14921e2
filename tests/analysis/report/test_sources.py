"""The section about data sources, from files that a monitor has written."""

from __future__ import annotations

import importlib
import json
import re
import sys
from datetime import datetime
from pathlib import Path

import pytest
import torch

from headway.analysis.report import REQUIRED, sources, telemetry_at, telemetry_files, write_report
from headway.analysis.report.rendering import chart_data
from headway.analysis.report.sources import Row, Stretch, read_rows
from headway.commands.main import main
from headway.commands.report import make_report
from headway.errors import StoreError
from headway.runs import RunStore
from headway.telemetry import CsvWriter, SourceMonitor
from headway.telemetry.writers import NUMBERS
from tests.analysis.stores import controlled_specs, finish_all

NOW = datetime(2026, 1, 2, 3, 4)
NAMES = ["web", "<b>books & $"]


def monitored(path: Path, losses: bool = True) -> SourceMonitor:
    """A monitor with a few rows of two sources, in a file."""
    is_csv = path.suffix == ".csv"
    monitor = SourceMonitor(NAMES, every=5, writers=[CsvWriter(path)] if is_csv else [])
    for step in range(1, 21):
        values = {"norm_all": torch.tensor([8.0, 2.0]) / step, "gmc": torch.tensor([0.5, 0.25])}
        monitor.update([0, 1], values, torch.tensor([1 / step, 2.0]) if losses else None)
    monitor.close()
    if not is_csv:
        monitor.write_parquet(path)
    return monitor


def row(step: int, source: str, state: str, **values: float) -> Row:
    return Row(step, source, state, dict.fromkeys(NUMBERS, float("nan")) | values)


def test_files_of_the_version_before_are_read(tmp_path: Path) -> None:
    """Without targets, quantiles and advice, and in another order."""
    path = tmp_path / "sources.csv"
    head = "step,source,samples,share,loss,gradient_norm,gmc,coupling,state"
    path.write_text(f"{head}\n50,web,8,0.25,2.5,4,0.5,0.125,incoherent\n")
    (own,), unread = read_rows(path)
    assert (unread, own.state, own.advice, own.values["loss"]) == (0, "incoherent", "", 2.5)
    assert own.values["target"] != own.values["target"]
    parquet = pytest.importorskip("pyarrow.parquet")
    table = importlib.import_module("pyarrow.csv").read_csv(path)
    parquet.write_table(table, tmp_path / "sources.parquet")
    ((other,), _) = read_rows(tmp_path / "sources.parquet")
    assert (other.values["loss"], other.state) == (2.5, "incoherent")
    assert len(telemetry_files(tmp_path)) == 2


@pytest.mark.parametrize("name", ["sources.csv", "sources.parquet"])
@pytest.mark.parametrize("losses", [True, False])
def test_rows_are_read_as_they_were_written(tmp_path: Path, name: str, losses: bool) -> None:
    monitor = monitored(tmp_path / name, losses)
    found, unread = read_rows(tmp_path / name)
    assert unread == 0
    for own, written in zip(found, monitor.rows, strict=True):
        values = {key: None if value != value else value for key, value in own.values.items()}
        words = {"source": own.source, "state": own.state, "advice": own.advice}
        assert {"step": own.step, **words, **values} == written


@pytest.mark.parametrize("name", ["sources.csv", "sources.parquet"])
@pytest.mark.parametrize("losses", [True, False])
def test_a_file_alone_makes_a_page(tmp_path: Path, name: str, losses: bool, capsys) -> None:
    """Given itself, or the folder that it lies in."""
    monitor = monitored(tmp_path / "in" / name, losses)
    for number, place in enumerate((tmp_path / "in" / name, tmp_path / "in")):
        index = make_report(place, tmp_path / str(number), [])
        page = index.read_text("utf-8")
        assert "index.html: 1 telemetry file" in capsys.readouterr().out
        assert re.findall('<section id="([a-z]*)"', page) == ["sources"]
        assert "could not be read" not in page
        assert "intervals over seeds" not in page
        assert "folder <code>figures" not in page
        assert "<b>books" not in page
        (figure,) = json.loads(re.search(r'id="figures-data">(.*?)</script>', page)[1]).values()
        panels = {panel["key"]: panel for panel in figure["panels"]}
        assert list(panels) == [*(["loss"] if losses else []), "share", "gradient_norm", "gmc", "coupling"]
        assert monitor.rows[-1]["advice"] in page
        for key, panel in panels.items():
            assert panel["x"] == [5, 10, 15, 20]
            for each in panel["series"]:
                own = [entry[key] for entry in monitor.rows if entry["source"] == each["key"]]
                assert each["mean"] == pytest.approx(own, rel=1e-4)


def test_telemetry_beside_runs_is_shown_with_them(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "all" / "runs")
    specs = controlled_specs(conditions=["noise"], methods=("gmc",), seeds=1, epochs=3)
    finish_all(store, specs)
    files = [
        tmp_path / "all" / "sources.parquet",
        store.root / "sources.csv",
        store.folder(specs[0].run_id) / "sources.csv",
    ]
    for file in files:
        monitored(file)
    (store.root / "other.csv").write_text("step,loss\n1,2\n")
    assert telemetry_files(tmp_path / "all") == sorted(files)
    written = write_report(tmp_path / "all", tmp_path / "report", formats=(), now=NOW)
    assert [each.file for each in written.view.telemetry] == sorted(files)
    assert written.view.overview.total == 1
    assert written.view.overview.is_whole, "telemetry as Parquet is no damaged export"


def test_what_is_no_telemetry_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("step,loss\n1,2\n")
    with pytest.raises(StoreError, match=r"columns of a SourceMonitor \(step, source, .*got others"):
        write_report(tmp_path / "other.csv", tmp_path / "report")


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "sources.csv"
    monitored(path)
    whole = read_rows(path)[0]
    with path.open("a", encoding="utf-8") as file:
        file.write("25,web,5,0.5,0.1,0.2")
    assert read_rows(path) == (whole, 1)
    (found,) = telemetry_at(tmp_path)
    assert found.remark == f"1 of {len(whole) + 1} rows could not be read and is left out."
    path.write_bytes(path.read_bytes() + b"\xff\xfe")
    (found,) = telemetry_at(tmp_path)
    assert "sources.csv: expected rows of a SourceMonitor" in found.remark
    assert found.chart is None


def test_rows_that_are_left_out_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sources.csv"
    monitored(path)
    with path.open("a", encoding="utf-8") as file:
        file.write("x,y,z\n" * 12)
    assert main(["report", str(path), "--out", str(tmp_path / "report")]) == 0
    out, err = capsys.readouterr()
    assert err == "sources.csv: 12 of 20 rows could not be read and are left out.\n"
    first, second = out.splitlines()
    assert first.endswith("index.html: 1 telemetry file")
    assert re.fullmatch(r"0\.\d MB, \d+ s", second), "one file, and its size once"


@pytest.mark.parametrize(("rows", "remark"), [("", "no rows yet"), ("x,y,z\n", "1 of 1 row could not be read")])
def test_telemetry_without_a_row_to_show_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str, remark: str
) -> None:
    path = tmp_path / "sources.csv"
    path.write_text(",".join(REQUIRED) + "\n" + rows)
    assert main(["report", str(path), "--out", str(tmp_path / "report")]) == 1
    assert remark in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_telemetry_needs_no_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monitored(tmp_path / "sources.csv")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    make_report(tmp_path / "sources.csv", tmp_path / "report", markdown=tmp_path / "sources.md")
    assert (tmp_path / "report" / "index.html").is_file()
    assert (tmp_path / "sources.md").is_file()


@pytest.mark.parametrize("option", ["--formats", "--bench"])
def test_options_about_runs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    path = tmp_path / "sources.csv"
    monitored(path)
    assert main(["report", str(path), "--out", str(tmp_path / "report"), option, "png"]) == 2
    assert f"expected runs for {option}, got telemetry alone in {path}" in capsys.readouterr().err


def test_the_live_page_wants_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sources.csv"
    monitored(path)
    assert main(["watch", str(path)]) == 1
    assert f"got telemetry alone; headway report {path} draws it" in capsys.readouterr().err


def test_states_become_stretches() -> None:
    rows = [
        row(10, "a", "learning"),
        row(20, "a", "learning"),
        row(20, "late", "diverged"),
        row(30, "a", "saturated"),
        row(40, "a", "saturated"),
    ]
    one, two = sources.strips(rows)
    assert one.stretches == [Stretch("learning", 0, 20, 0.0, 50.0), Stretch("saturated", 20, 40, 50.0, 50.0)]
    assert two.stretches == [Stretch("diverged", 10, 20, 25.0, 25.0)]
    assert (one.state, one.words) == ("saturated", "learning from step 0 to 20, saturated from step 20 to 40")


def test_long_telemetry_is_thinned_but_keeps_its_end() -> None:
    rows = [row(step, "a", "learning", share=1.0) for step in range(1, 2501)]
    (panel,) = chart_data(sources.chart(rows, "long", "key"))["panels"]
    assert len(panel["x"]) <= sources.MOST_STEPS
    assert panel["x"][-1] == 2500
    assert set(panel["series"][0]["mean"]) == {1.0}


def test_sources_look_different() -> None:
    rows = [row(1, str(number), "learning", share=0.1) for number in range(30)]
    items = chart_data(sources.chart(rows, "thirty", "key"))["legend"]["items"]
    assert [item["name"] for item in items] == [str(number) for number in range(30)]
    assert len({item["light"] for item in items[:9]}) == 9
    assert len({(item["light"], tuple(item["dash"])) for item in items}) == 30
