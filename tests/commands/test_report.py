from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from headway.commands import main as cli
from headway.commands import report
from headway.commands.main import main
from headway.commands.report import ProgressLine
from headway.runs import RunStore
from tests.analysis.stores import controlled_specs, finish_all


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    found = RunStore(tmp_path / "runs")
    finish_all(found, controlled_specs(conditions=["noise"], methods=("uniform", "gmc"), seeds=2, epochs=3))
    return found


def test_the_command_writes_and_says_so(store: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report"
    assert main(["report", str(store.root), "--out", str(out), "--formats"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{out / 'index.html'}: 4 runs, 4 done"
    assert second.endswith(" s")
    assert (out / "index.html").is_file()


def test_a_benchmark_decides_the_claim_about_time(
    store: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timing = {"variant": "headway", "rounds": 40, "ratio": {"low": 1.01, "median": 1.02, "high": 1.03}}
    bench = tmp_path / "bench.json"
    bench.write_text(json.dumps({"cases": [{"key": key, "timings": [timing]} for key in "ab"]}))
    out = tmp_path / "report"
    assert main(["report", str(store.root), "--out", str(out), "--formats", "--bench", str(bench)]) == 0
    assert "1.02 [1.01, 1.03] (median and quartiles of 40 rounds)" in (out / "index.html").read_text()
    bench.write_text("{}")
    assert main(["report", str(store.root), "--out", str(out), "--formats", "--bench", str(bench)]) == 2
    assert "expected the JSON that headway bench or benchmarks/controlled.py wrote" in capsys.readouterr().err


def test_no_runs_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "none")]) == 1
    assert "expected a run store" in capsys.readouterr().err


def test_an_unknown_format_is_exit_code_2(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["report", str(store.root), "--formats", "bmp"])
    assert stop.value.code == 2


def test_the_page_is_opened_on_request(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(store.root), "--out", str(tmp_path / "report"), "--formats", "--open"]) == 0
    assert opened == [(tmp_path / "report" / "index.html").as_uri()]


def missing(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))


def test_a_missing_package_is_named_with_its_extra(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing(monkeypatch, "jinja2")
    assert main(["report", str(store.root)]) == 1
    assert "jinja2 is not installed; run: pip install 'headway-torch[report]'" in capsys.readouterr().err


def test_a_command_with_a_report_leaves_one(
    store: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.report_if_possible(store.root, tmp_path / "report")
    assert (tmp_path / "report" / "index.html").is_file()
    assert "Open it in a browser: file:///" in capsys.readouterr().out


def test_there_is_none_if_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(failures=lambda: ["one"])
    monkeypatch.setattr("headway.commands.demo.run_campaign", lambda *arguments: failed)
    assert main(["demo", "--out", str(tmp_path / "runs"), "--report", str(tmp_path / "report")]) == 1
    assert not (tmp_path / "report").exists()


def test_without_the_extra_a_line_says_so_and_all_is_well(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing(monkeypatch, "matplotlib")
    assert not report.report_if_possible(store.root, tmp_path / "report")
    assert "No report: matplotlib is not installed; run: pip install 'headway-torch[report]'" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_to_is_told(
    store: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report").write_text("")
    assert not report.report_if_possible(store.root, tmp_path / "report")
    assert "No report: expected a folder for the report" in capsys.readouterr().err


def test_a_module_that_is_missing_at_import_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "needs_numbers.py").write_text("raise ModuleNotFoundError('no', name='numpy.linalg')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "COMMANDS", {"fake": cli.Command("needs numbers", "needs_numbers", "report")})
    assert main(["fake"]) == 1
    assert "numpy is not installed; run: pip install 'headway-torch[report]'" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_line_is_written_over_and_taken_away() -> None:
    stream = Terminal()
    line = ProgressLine(stream)
    line("drawing a long name", 0, 12)
    line("x", 1, 12)
    line.clear()
    assert stream.getvalue().split("\r") == ["", "drawing a long name (1 of 12)", "x (2 of 12)".ljust(29), " " * 11, ""]
    quiet = io.StringIO()
    line = ProgressLine(quiet)
    line("x", 0, 1)
    line.clear()
    assert quiet.getvalue() == ""
