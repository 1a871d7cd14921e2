from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from headway.analysis import load_results
from headway.analysis.exports import write_export
from headway.commands.main import main
from headway.commands.verify import choose, compare, differences
from headway.errors import UsageError
from headway.runs import RunStore
from tests.analysis.made import controlled, made, together

SMALL = ["--dataset", "digits", "--protocol", "demo", "--epochs", "2", "--workers", "0"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two signals and two seeds, run for real and exported."""
    root = tmp_path_factory.mktemp("verify")
    words = ["run", "controlled", *SMALL, "--signal", "gmc", "uniform", "--condition", "noise", "--seeds", "0:2"]
    assert main([*words, "--out", str(root / "runs")]) == 0
    assert main(["export", str(root / "runs"), "--finished", "--out", str(root / "results" / "export.parquet")]) == 0
    return root / "results"


def verify(*words: object) -> int:
    return main(["verify", *map(str, words), "--workers", "0"])


def test_two_random_runs_come_out_identical(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert verify(results) == 0
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith("identical: ")]
    assert len(set(lines)) == 2
    assert ", 2 rows of " in lines[0]
    (folder,) = (tmp_path / "verify").iterdir()
    assert f"--out verify/{folder.name} the same command resumes" in said


def changed(results: Path, out: Path) -> str:
    """An export with one run whose last number but one is the next one up."""
    (run,) = load_results(results).select(method="gmc", seed=1)
    loss = run.columns["test_loss"].copy()
    loss[1, 2] = np.nextafter(loss[1, 2], 9)
    write_export([made(run.spec, **(dict(run.columns) | {"test_loss": loss}))], out)
    return run.id


def test_a_changed_number_is_found(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = changed(results, tmp_path / "changed.parquet")
    assert verify(tmp_path / "changed.parquet", "--only", run_id, "--out", tmp_path / "again") == 1
    said = capsys.readouterr()
    assert f"different: {run_id} Noise+Digits, GMC, seed 1" in said.err
    assert "test_loss differs from row 2" in said.err
    assert "torch: None before, 2." in said.err, "versions that were not known before are named"


def test_every_call_runs_anew(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_id = changed(results, tmp_path / "changed.parquet")
    assert verify(results, "--only", run_id) == 0
    monkeypatch.setattr("headway.commands.verify.datetime", Later)
    assert verify(tmp_path / "changed.parquet", "--only", run_id) == 1
    assert len(list((tmp_path / "verify").iterdir())) == 2


def test_a_repeat_by_other_code_is_told(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(results, "--runs", 1, "--seed", 0, "--out", tmp_path / "again") == 0
    assert "note: " not in capsys.readouterr().out
    runs = choose(load_results(results), 1, 0, None)
    assert compare(runs, tmp_path / "again", "0" * 12) == 0
    assert f"note: {runs[0].id} " in capsys.readouterr().out


def test_what_came_to_its_end_is_compared_although_another_run_failed(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = choose(load_results(results), 1, 0, None)[0]
    bad = made(replace(good.spec, method="nothing"), **good.columns)
    write_export([good, bad], tmp_path / "both.parquet")
    assert verify(tmp_path / "both.parquet", "--out", tmp_path / "again") == 1
    said = capsys.readouterr()
    assert f"identical: {good.id} " in said.out
    assert f"not run again: {bad.id} " in said.err


class Later:
    """A clock that stands at another time."""

    @staticmethod
    def now() -> datetime:
        return datetime(2031, 1, 1)


def test_runs_are_not_compared_with_themselves(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(results, "--out", results / "again") == 2
    assert verify(results, "--out", results.parent) == 2
    assert "expected --out apart from the results" in capsys.readouterr().err


def test_exported_columns_and_digits_are_compared(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--columns", "test_loss", "train_count", "--float32", "--out", str(tmp_path / "small.parquet")]
    assert main(["export", str(results), *words]) == 0
    assert verify(tmp_path / "small.parquet", "--runs", 1, "--out", tmp_path / "again") == 0
    said = capsys.readouterr().out
    assert "2 rows of 2 metrics, in single precision as they were exported; not among the results: draw_share, " in said


def test_another_copy_of_the_data_is_told_before_anything_is_run(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = load_results(results).select(method="gmc", seed=0)
    other = replace(run, environment={**run.environment, "fingerprint": "0" * 64})
    write_export([other], tmp_path / "other.parquet")
    assert verify(tmp_path / "other.parquet", "--out", tmp_path / "again") == 2
    assert "expected the digits that " in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_missing_values_are_alike_and_speed_does_not_count() -> None:
    first = {"loss": np.array([1.0, np.nan]), "steps_per_second": np.array([5.0, 6.0])}
    assert differences(first, first | {"steps_per_second": np.array([7.0, 8.0])}) == []
    assert differences(first, first | {"loss": np.array([np.nan, np.nan])}) == [
        "loss differs from row 1: 1.0 before, nan now"
    ]


def test_missing_metrics_and_other_lengths_are_told() -> None:
    first = {"a": np.ones(3), "b": np.ones(2)}
    assert differences(first, {"a": np.ones(4), "c": np.ones(2)}) == [
        "a has the shape (3,) before and (4,) now",
        "b is not there any more",
    ]


def test_a_run_that_is_gone_counts_as_different(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunStore(tmp_path).add(controlled(np.ones((2, 4))).spec)
    assert compare([controlled(np.ones((2, 4)))], tmp_path, "") == 1
    assert "not run again: " in capsys.readouterr().err


def test_the_choice_is_random_and_repeats_with_a_seed() -> None:
    runs = together(*(controlled(np.ones((2, 4)), seed=seed) for seed in range(20)))
    choices = {tuple(run.seed for run in choose(runs, 2, seed, None)) for seed in range(20)}
    assert len(choices) > 10
    assert choose(runs, 2, 7, None) == choose(runs, 2, 7, None)
    assert len(choose(runs, 99, 0, None)) == 20


def test_bad_choices_are_refused() -> None:
    runs = together(controlled(np.ones((2, 4))))
    with pytest.raises(UsageError, match="got 'abc'"):
        choose(runs, None, None, ["abc"])
    with pytest.raises(UsageError, match="expected --runs or --only, got --runs 1 with 1 named"):
        choose(runs, 1, None, ["abc"])
    with pytest.raises(UsageError, match="expected finished runs to repeat, got none"):
        choose(together(), 1, None, None)
