"""`headway bench` from its options to its files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from benchmarks.cost import command, runner
from benchmarks.cost.results import Result, load, save
from benchmarks.cost.runner import Settings
from benchmarks.cost.tables import markdown
from headway.commands.main import main
from tests.benchmarks.tiny import MLP, interrupted, result


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(arguments)


def test_without_options_everything_is_measured() -> None:
    assert command.settings_of(parse()) == Settings()


def test_options_win_over_what_quick_stands_for() -> None:
    options = parse("--quick", "--cases", "b", "b", "--seconds", "2.5", "--threads", "1", "--no-memory")
    settings = command.settings_of(options)
    assert [case.key for case in settings.cases] == ["b"]
    assert settings.variants == ("plain", "headway", "torch.func")
    assert (settings.seconds, settings.threads, settings.memory) == (2.5, 1, False)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Replaces the measuring by the result of `tiny`; lists the settings that it was asked for."""
    asked: list[Settings] = []

    def fake(settings: Settings, progress: object) -> Result:
        asked.append(settings)
        return interrupted() if settings.rounds == 99 else result()

    monkeypatch.setattr(command, "run", fake)
    return asked


def test_results_are_shown(measured: list[Settings], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--quick"]) == 0
    assert "1.50 ±0.15" in capsys.readouterr().out
    assert len(measured) == 1


def test_json_and_figure_go_to_the_folder(measured: list[Settings], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert main(["bench", "--out", str(tmp_path / "new" / "folder")]) == 0
    files = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert files == ["bench.json", "bench.png", "bench.svg"]
    assert load(tmp_path / "new" / "folder" / "bench.json") == result()


def test_an_interrupted_run_exits_with_130_and_replaces_nothing(
    measured: list[Settings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(result(), tmp_path / "bench.json")
    assert main(["bench", "--rounds", "99", "--out", str(tmp_path)]) == 130
    assert load(tmp_path / "bench.json") == result()
    assert load(tmp_path / "bench-partial.json") == interrupted()
    out, err = capsys.readouterr()
    assert "1.50 ±0.15" in out
    assert "interrupted" in err


def test_without_matplotlib_the_numbers_are_stored_and_the_message_has_the_command(
    measured: list[Settings], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "--out", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    assert "no figure: matplotlib is not installed; run: pip install 'headway-torch[bench]'" in capsys.readouterr().err


def test_an_earlier_run_is_shown_and_put_into_the_docs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    save(result(), tmp_path / "bench.json")
    page = tmp_path / "page.md"
    page.write_text("<!-- bench: begin --><!-- bench: end -->\n", "utf-8")
    assert main(["bench", "--load", str(tmp_path / "bench.json"), "--docs", str(page)]) == 0
    assert page.read_text("utf-8") == f"<!-- bench: begin -->\n{markdown(result())}\n<!-- bench: end -->\n"
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["benchmarks.png", "benchmarks.svg"]
    assert "1.50 ±0.15" in capsys.readouterr().out


def test_docs_without_matplotlib_fail_before_anything_is_measured(
    measured: list[Settings], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = tmp_path / "page.md"
    page.write_text("", "utf-8")
    assert main(["bench", "--docs", str(page)]) == 1
    assert "pip install 'headway-torch[bench]'" in capsys.readouterr().err
    assert measured == []


def test_a_folder_that_cannot_be_made_is_an_error(
    measured: list[Settings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    assert main(["bench", "--out", str(tmp_path / "file" / "inside")]) == 1
    assert "expected a folder that can be written to" in capsys.readouterr().err
    assert measured == []


@pytest.mark.slow
def test_a_tiny_benchmark_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "CASES", {"a": MLP, "c": MLP})
    arguments = ["bench", "--quick", "--rounds", "2", "--seconds", "0.01", "--threads", "1"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "a: MLP 6-8-4" in out
    assert "case a: warming up" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "z"], "argument --cases: invalid choice: 'z'"),
        (["--variants", "jax"], "argument --variants: invalid choice: 'jax'"),
        (["--rounds", "0"], "argument --rounds: expected a whole number of at least 1, got '0'"),
        (["--rounds", "many"], "argument --rounds: expected a whole number of at least 1, got 'many'"),
        (["--threads", "-1"], "argument --threads: expected a whole number of at least 1, got '-1'"),
        (["--seconds", "-3"], "argument --seconds: expected a number above 0, got '-3'"),
        (["--seconds", "soon"], "argument --seconds: expected a number above 0, got 'soon'"),
        (["--seconds", "inf"], "argument --seconds: expected a number above 0, got 'inf'"),
        (["--out", __file__], "argument --out: expected a folder, got the file"),
        (["--load", "missing.json"], "argument --load: expected a file, got 'missing.json', which is not one"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_a_wrong_option_exits_with_2_and_says_what_was_expected(
    arguments: list[str], message: str, measured: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert measured == []


def test_a_file_that_is_no_result_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.json").write_text("{}", "utf-8")
    assert main(["bench", "--load", str(tmp_path / "bench.json")]) == 1
    assert "headway: expected the JSON of a benchmark" in capsys.readouterr().err
