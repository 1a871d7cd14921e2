"""What telemetry leaves behind, read back by those who will read it."""

from __future__ import annotations

import csv
import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from headway.errors import MissingExtraError, SignalError, WrongVersionError
from headway.integrations.versions import SUPPORTED
from headway.telemetry import CsvWriter, SourceMonitor, TensorBoardWriter, WandbWriter
from headway.telemetry.writers import COLUMNS, LEAST_WANDB


def filled(*writers, losses: bool = True) -> SourceMonitor:
    monitor = SourceMonitor(["web", "books"], every=1, writers=writers)
    for step in range(1, 4):
        values = {"norm_all": torch.tensor([1.0, 2.0]) / step, "gmc": torch.tensor([0.1, 0.3])}
        monitor.update([0, 1], values, torch.tensor([0.1, 0.2]) if losses else None)
    monitor.close()
    return monitor


def missing(monkeypatch, name: str) -> None:
    """Make a package look as if it were not installed."""
    monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("losses", [True, False])
def test_csv_holds_the_rows_exactly(tmp_path: Path, losses: bool) -> None:
    path = tmp_path / "new" / "sources.csv"
    monitor = filled(CsvWriter(path), losses=losses)
    with path.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert tuple(read[0]) == COLUMNS
    for row, text in zip(monitor.rows, read, strict=True):
        for name, value in row.items():
            assert text[name] == "" if value is None else type(value)(text[name]) == value


def test_rows_are_on_the_disk_at_once(tmp_path: Path) -> None:
    monitor = SourceMonitor(["web"], every=1, writers=[CsvWriter(tmp_path / "sources.csv")])
    monitor.update([0], {"norm_all": torch.ones(1), "gmc": torch.ones(1)})
    assert len((tmp_path / "sources.csv").read_text("utf-8").splitlines()) == 2
    monitor.close()


@pytest.mark.parametrize("losses", [True, False])
def test_parquet_holds_the_rows_exactly(tmp_path: Path, losses: bool) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monitor = filled(losses=losses)
    monitor.write_parquet(tmp_path / "new" / "sources.parquet")
    assert parquet.read_table(tmp_path / "new" / "sources.parquet").to_pylist() == monitor.rows


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    reading = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    monitor = filled(TensorBoardWriter(tmp_path))
    events = reading.EventAccumulator(str(tmp_path))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("gradient_norm/books")]
    own = [row for row in monitor.rows if row["source"] == "books"]
    assert found == [(row["step"], pytest.approx(row["gradient_norm"])) for row in own]
    assert {"coupling/web", "gmc/web", "loss/web", "samples/web", "share/web"} <= set(events.Tags()["scalars"])
    assert len(events.Tensors("state/books/text_summary")) == len(
        [1 for before, row in zip([None, *own], own, strict=False) if before is None or before["state"] != row["state"]]
    )


def test_a_summary_writer_of_others_is_left_open() -> None:
    class Recorder:
        calls: list[tuple] = []  # noqa: RUF012

        def add_scalar(self, tag, value, step) -> None:
            self.calls.append((tag, value, step))

        def add_text(self, tag, text, step) -> None:
            self.calls.append((tag, text, step))

        def flush(self) -> None:
            self.calls.append(("flush",))

    filled(TensorBoardWriter(Recorder()))
    assert ("gradient_norm/web", 0.5, 2) in Recorder.calls
    assert Recorder.calls[-1] == ("flush",)


class Run:
    """Stands in for a run of Weights & Biases."""

    def __init__(self) -> None:
        self.defined: list[tuple] = []
        self.logged: list[dict] = []

    def define_metric(self, name, step_metric=None) -> None:
        self.defined.append((name, step_metric))

    def log(self, values) -> None:
        self.logged.append(values)


def test_wandb_gets_one_entry_per_step_on_an_axis_of_its_own() -> None:
    run = Run()
    monitor = filled(WandbWriter(run))
    assert run.defined == [("sources/step", None), ("sources/*", "sources/step")]
    assert [entry["sources/step"] for entry in run.logged] == [1, 2, 3]
    assert run.logged[1]["sources/books/gradient_norm"] == 1.0
    assert run.logged[1]["sources/books/state"] == monitor.rows[3]["state"]


def test_quantiles_of_training_without_sources_are_in_all_writers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    reading = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    run = Run()
    monitor = SourceMonitor(every=1, writers=[TensorBoardWriter(tmp_path), WandbWriter(run)])
    monitor.update(None, torch.arange(1.0, 102.0))
    monitor.close()
    events = reading.EventAccumulator(str(tmp_path))
    events.Reload()
    for name, quantile in {"gmc_q10": 11, "gmc_q50": 51, "gmc_q90": 91}.items():
        assert events.Scalars(f"{name}/all")[0].value == pytest.approx(quantile, rel=0.05)
        assert run.logged[0][f"sources/all/{name}"] == pytest.approx(quantile, rel=0.05)


def test_what_is_no_run_of_wandb_is_refused() -> None:
    with pytest.raises(SignalError, match="got 'run'"):
        WandbWriter("run")


@pytest.mark.slow
def test_wandb_itself_takes_it(tmp_path: Path, monkeypatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(SignalError, match=r"wandb.init\(\)"):
        WandbWriter()
    patient = wandb.Settings(x_service_wait=300, init_timeout=300)  # its service starts a process
    run = wandb.init(mode="offline", dir=str(tmp_path), project="headway-tests", settings=patient)
    try:
        filled(WandbWriter())
        assert run.summary["sources/books/gradient_norm"] == pytest.approx(2 / 3)
        assert run.summary["sources/step"] == 3
    finally:
        run.finish()


def test_an_old_wandb_gives_both_versions(monkeypatch) -> None:
    assert SUPPORTED["wandb"].least == LEAST_WANDB
    theirs = type("Run", (Run,), {"__module__": "wandb.sdk.wandb_run"})()
    for version, works in (("0.19.11", False), ("0.9.7", False), ("0.20.1", True), ("1.0", True)):
        module = types.ModuleType("wandb")
        module.__version__, module.run = version, theirs
        monkeypatch.setitem(sys.modules, "wandb", module)
        for run in (None, theirs):
            if works:
                WandbWriter(run)
                continue
            with pytest.raises(
                WrongVersionError, match=rf"wandb 0.20 or newer, got {version}; .*headway-torch\[wandb\]"
            ):
                WandbWriter(run)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path: Path) -> None:
    missing(monkeypatch, "torch.utils.tensorboard")
    with pytest.raises(MissingExtraError, match=r"pip install 'headway-torch\[tensorboard\]'"):
        TensorBoardWriter(tmp_path)
    missing(monkeypatch, "wandb")
    with pytest.raises(MissingExtraError, match=r"pip install 'headway-torch\[wandb\]'"):
        WandbWriter()
    missing(monkeypatch, "pyarrow")
    with pytest.raises(MissingExtraError, match=r"pyarrow is not installed; run: pip install 'headway-torch\["):
        filled().write_parquet(tmp_path / "sources.parquet")


@pytest.mark.slow
def test_what_readers_of_rows_need_is_there_without_torch() -> None:
    code = (
        "import sys; from headway.telemetry.states import State; from headway.telemetry.writers import COLUMNS; "
        "assert 'torch' not in sys.modules; from headway.telemetry import SourceMonitor; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'Monitor'"):
        importlib.import_module("headway.telemetry").Monitor  # noqa: B018
