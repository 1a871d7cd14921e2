from __future__ import annotations

import csv
from pathlib import Path

import pytest

from headway.analysis import load_results
from headway.commands.main import main
from tests.analysis.stores import write_mixed_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("export")
    write_mixed_store(root, epochs=4, seeds=1)
    return str(root)


def test_all_readable_runs_are_exported(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "export.parquet"
    assert main(["export", store, "--out", str(out)]) == 0
    said, complained = capsys.readouterr()
    assert said.startswith(f"23 runs in {out}, ")
    assert "left out Noise+MNIST, GMC, seed 102" in complained
    assert "1 runs were never started" in complained
    assert len(load_results(out.parent)) == 23


def test_finished_runs_and_some_columns(store: str, tmp_path: Path) -> None:
    out = tmp_path / "export.parquet"
    words = ["--finished", "--columns", "test_loss", "train_count", "--float32"]
    assert main(["export", store, "--out", str(out), *words]) == 0
    runs = load_results(out)
    assert len(runs) == len(runs.finished()) == 20
    assert {name for run in runs for name in run.columns} == {"test_loss", "train_count"}


def test_lots_can_be_put_together(store: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["export", store, "--out", str(tmp_path / "exports" / f"{name}.parquet")]) == 0
    assert main(["export", str(tmp_path / "exports"), "--out", str(tmp_path / "both.parquet")]) == 0
    assert len(load_results(tmp_path / "both.parquet")) == 23


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "export.csv"], "expected a file name that ends in .parquet, got export.csv"),
        (["--out", "export.parquet", "--columns", "absent"], "expected metrics out of approx_kl"),
    ],
)
def test_bad_use(store: str, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["export", store, *words]) == 2
    assert message in capsys.readouterr().err


def test_metrics_can_be_printed_as_csv(store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["export", store, "--finished", "--columns", "test_loss_mean", "--format", "csv"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    heads, first, *_ = csv.reader(printed.splitlines())
    assert heads[-3:] == ["protocol", "row", "test_loss_mean"]
    assert first[-2] == "1"
    assert main([*words, "--out", str(tmp_path / "runs.csv")]) == 0
    assert (tmp_path / "runs.csv").read_text() == printed
