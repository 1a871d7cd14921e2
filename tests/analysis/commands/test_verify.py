from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.analysis import load_results
from headway.analysis.commands.verify import choose, differences
from headway.analysis.lots import write_lot
from headway.cli import main
from headway.errors import UsageError
from tests.analysis.made import controlled, made, together

SMALL = ["--dataset", "digits", "--protocol", "demo", "--epochs", "2", "--workers", "0"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two signals and two seeds, run for real and exported."""
    root = tmp_path_factory.mktemp("verify")
    words = ["run", "controlled", *SMALL, "--signal", "gmc", "uniform", "--condition", "noise", "--seeds", "0:2"]
    assert main([*words, "--out", str(root / "runs")]) == 0
    assert main(["export", str(root / "runs"), "--finished", "--out", str(root / "results" / "lot.parquet")]) == 0
    return root / "results"


def test_two_random_runs_come_out_identical(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(results), "--out", str(tmp_path / "again"), "--workers", "0"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("identical: ")]
    assert len(lines) == 2
    assert len(set(lines)) == 2
    assert "2 rows of " in lines[0]


def test_a_changed_number_is_found(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = load_results(results).select(method="gmc", seed=1)
    loss = run.columns["test_loss"].copy()
    loss[1, 2] = np.nextafter(loss[1, 2], 9)
    write_lot([made(run.spec, **(dict(run.columns) | {"test_loss": loss}))], tmp_path / "changed.parquet")
    words = ["verify", str(tmp_path / "changed.parquet"), "--only", run.id, "--out", str(tmp_path / "again")]
    assert main([*words, "--workers", "0"]) == 1
    said = capsys.readouterr()
    assert f"different: {run.id} Noise+Digits, GMC, seed 1" in said.err
    assert "test_loss differs from row 2" in said.err
    assert "before, 2." in said.err, "versions that were not known before are named"


def test_a_dry_run_compares_nothing(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(results), "--dry-run", "--out", str(tmp_path / "again")]) == 0
    assert "2 runs: 2 pending" in capsys.readouterr().out
    assert not (tmp_path / "again").exists()


def test_a_url_is_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(results), "--out", "memory://again"]) == 2
    assert "expected a folder for --out, got memory://again" in capsys.readouterr().err


def test_missing_values_are_alike_and_speed_does_not_count() -> None:
    first = {"loss": np.array([1.0, np.nan]), "steps_per_second": np.array([5.0, 6.0])}
    assert differences(first, first | {"steps_per_second": np.array([7.0, 8.0])}) == []
    assert differences(first, first | {"loss": np.array([np.nan, np.nan])}) == [
        "loss differs from row 1: 1.0 before, nan now"
    ]


def test_other_metrics_and_other_lengths_are_told() -> None:
    first = {"a": np.ones(3), "b": np.ones(2)}
    assert differences(first, {"a": np.ones(4), "c": np.ones(2)}) == [
        "a has the shape (3,) before and (4,) now",
        "b is only in the first",
        "c is only in the second",
    ]


def test_the_choice_is_random_and_repeats_with_a_seed() -> None:
    runs = together(*(controlled(np.ones((2, 4)), seed=seed) for seed in range(20)))
    choices = {tuple(run.seed for run in choose(runs, 2, seed, None)) for seed in range(20)}
    assert len(choices) > 10
    assert choose(runs, 2, 7, None) == choose(runs, 2, 7, None)
    assert len(choose(runs, 99, 0, None)) == 20


def test_bad_choices_are_refused() -> None:
    runs = together(controlled(np.ones((2, 4))))
    with pytest.raises(UsageError, match="expected --runs of at least 1, got 0"):
        choose(runs, 0, None, None)
    with pytest.raises(UsageError, match="expected the id of a finished run, got 'abc'"):
        choose(runs, 1, None, ["abc"])
    with pytest.raises(UsageError, match="expected finished runs to repeat, got none"):
        choose(together(), 1, None, None)
