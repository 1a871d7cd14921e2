"""Metrics for TensorBoard, read back with TensorBoard's own loader."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from headway.commands.main import main
from headway.errors import MissingExtraError
from headway.runs import Columns, RunSpec, RunStore, tensorboard
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.launchers import InProcess, LaunchOptions
from headway.runs.processes import make_local
from headway.runs.progress import Advanced, CampaignProgress, Ended, Outcome, Started
from headway.runs.tensorboard import DONE_FILE, INTERVAL, Mirror, folder_name, scalars, steps_of
from tests.runs.conftest import Recorder
from tests.runs.dummy import spec_of

pytest.importorskip("tensorboard")

PLAIN = RunSpec(experiment="doorkey", method="ppo", seed=0)


def events(folder: Path) -> list[Any]:
    """All events of a run, read by TensorBoard."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = folder.glob("*tfevents*")
    return list(EventFileLoader(str(file)).Load())


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    """The steps and values of a tag, in the order in which they were written."""
    from tensorboard.util.tensor_util import make_ndarray

    return [
        (event.step, float(make_ndarray(value.tensor)))
        for event in events(folder)
        for value in event.summary.value
        if value.tag == tag
    ]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "board"


def mirrored(
    store: RunStore, folder: Path, recorder: Recorder, *specs: RunSpec, retry_failed: bool = False, **options: Any
) -> CampaignProgress:
    campaign = Campaign(specs, store, retry_failed=retry_failed)
    with Mirror(store, folder, specs, **options) as mirror:
        return run_campaign(campaign, InProcess(), recorder, listen=mirror.notice)


def stored(store: RunStore, spec: RunSpec) -> list[tuple[int, float]]:
    columns = store.metrics(spec.run_id)
    return [(step, pytest.approx(value)) for step, value in zip(columns["step"], columns["value"], strict=True)]


@pytest.mark.usefixtures("dummies")
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_files_hold_what_the_store_holds(store: RunStore, folder: Path, recorder: Recorder, workers: int) -> None:
    specs = [spec_of(seed=seed) for seed in range(3)]
    with Mirror(store, folder, specs) as mirror:
        run_campaign(Campaign(specs, store), make_local(LaunchOptions(workers)), recorder, listen=mirror.notice)
    for spec in specs:
        assert points(folder / folder_name(spec), "value") == stored(store, spec)


@pytest.mark.usefixtures("dummies")
def test_a_run_that_failed_and_resumed_has_no_point_twice(store: RunStore, folder: Path, recorder: Recorder) -> None:
    spec = spec_of("fail-first", steps=4)
    mirrored(store, folder, recorder, spec)
    assert points(folder / folder_name(spec), "step") == [(1, 1), (2, 2)]
    assert not (folder / folder_name(spec) / DONE_FILE).exists()
    mirrored(store, folder, recorder, spec, retry_failed=True)
    assert points(folder / folder_name(spec), "step") == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert points(folder / folder_name(spec), "value") == stored(store, spec)


def test_a_run_that_loses_rows_and_repeats_them_has_no_point_twice(store: RunStore, folder: Path) -> None:
    spec, clock = spec_of(), Clock()
    mirror = Mirror(store, folder, [spec], clock)
    run = store.lock(spec)
    run.restore()
    for step in (1, 2):
        run.log({"step": step})
        run.checkpoint(step, lambda file: file.write(b"x"))
    mirror.notice(Advanced(spec.run_id, 2, 3))
    newest = max(run.folder.glob("checkpoint.*"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-1])
    clock.now += INTERVAL
    mirror.notice(Advanced(spec.run_id, 1, 3))
    run.log({"step": 3})
    run.finish()
    mirror.notice(Ended(spec.run_id, Outcome.DONE))
    assert points(folder / folder_name(spec), "step") == [(1, 1), (2, 2), (3, 3)]


def test_a_run_is_looked_at_now_and_then(store: RunStore, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, clock, looks = spec_of(), Clock(), []
    store.add(spec)
    mirror = Mirror(store, folder, [spec], clock)
    monkeypatch.setattr(mirror, "_copy", lambda spec: looks.append(clock.now))
    mirror.notice(Started(spec.run_id, 1))
    for clock.now in (0.0, 0.1, INTERVAL - 0.1, INTERVAL, INTERVAL + 0.1, 3 * INTERVAL):
        mirror.notice(Advanced(spec.run_id, 1, 3))
    assert looks == [0.0, INTERVAL, 3 * INTERVAL]


@pytest.mark.usefixtures("dummies")
def test_runs_that_were_done_before_are_copied_once(store: RunStore, folder: Path, recorder: Recorder) -> None:
    specs = [spec_of(), spec_of("fail")]
    run_campaign(Campaign(specs, store), InProcess(), recorder)
    Mirror(store, folder, specs).catch_up()
    assert points(folder / folder_name(specs[0]), "value") == stored(store, specs[0])
    assert not (folder / folder_name(specs[1])).exists()
    before = sorted(folder.rglob("*"))
    Mirror(store, folder, specs).catch_up()
    assert sorted(folder.rglob("*")) == before


@pytest.mark.usefixtures("dummies")
def test_an_open_board_is_told_to_start_over_and_the_spec_is_there(
    store: RunStore, folder: Path, recorder: Recorder
) -> None:
    from tensorboard.compat.proto.event_pb2 import SessionLog

    spec = spec_of()
    mirrored(store, folder, recorder, spec)
    first, second, third, *_ = events(folder / folder_name(spec))
    assert first.file_version
    assert second.session_log.status == SessionLog.START
    assert spec.run_id in third.summary.value[0].tensor.string_val[0].decode()


@pytest.mark.usefixtures("dummies")
def test_files_that_cannot_be_written_are_told_once_and_stop_nothing(
    store: RunStore, tmp_path: Path, recorder: Recorder
) -> None:
    (tmp_path / "board").write_text("a file in the way")
    reported: list[str] = []
    specs = [spec_of(), spec_of(seed=1)]
    progress = mirrored(store, tmp_path / "board", recorder, *specs, complain=reported.append)
    assert progress.count(Outcome.DONE) == 2
    assert len(reported) == 1
    assert "cannot write for TensorBoard" in reported[0]


def test_names_stay_inside_the_folder() -> None:
    spec = RunSpec(experiment="../..", method="/etc/<b>", seed=0, condition="..", params={"dataset": "a\\b/../c"})
    name = folder_name(spec)
    assert ".." not in name
    assert name == f"_/a_b_c/_/_etc_b_/seed-0-{spec.run_id[:8]}"


def test_lists_get_a_tag_for_each_place_and_words_none() -> None:
    columns = {"share": [[0.25, 0.75]], "loss": [math.inf], "word": ["x"], "gap": [None], "flag": [True]}
    assert scalars(columns, 0, PLAIN) == {"share/0": 0.25, "share/1": 0.75, "loss": math.inf, "flag": 1.0}


def test_steps_come_from_the_first_column_that_has_them_all() -> None:
    assert steps_of({"loss": [1.0, 2.0], "step": [10, 20]}, 2) == [10, 20]
    assert steps_of({"epoch": [1, None], "rollout": [3, 4]}, 2) == [3, 4]
    assert scalars({"train_loss": [[1.0, None]]}, 0, PLAIN) == {"train_loss/0": 1.0}
    assert steps_of({"env_steps": [2048, 4096], "episodes": [1, 2]}, 2) == [2048, 4096]
    assert steps_of({"loss": [1.0, 2.0]}, 2) == [1, 2]


def test_the_option_writes_the_files(tmp_path: Path) -> None:
    quick = ["--protocol", "demo", "--set", "hidden=8", "--set", "batch_size=256", "--set", "test_batches=1"]
    small = ["--epochs", "2", "--condition", "noise", "--signal", "gmc", "--workers", "0", "--seeds", "0"]
    board = tmp_path / "board"
    out = tmp_path / "runs"
    assert main(["run", "controlled", "--out", str(out), "--tensorboard", str(board), *quick, *small]) == 0
    (record,) = RunStore(out).status()
    folder = board / folder_name(record.spec)
    columns = RunStore(out).metrics(record.run_id)
    for place in range(4):
        shares = [row[place] for row in columns["draw_share"]]
        assert [value for _, value in points(folder, f"draw_share/{place}")] == pytest.approx(shares)
    assert [step for step, _ in points(folder, "test_loss_mean")] == [1, 2]
    assert json.loads((folder / DONE_FILE).read_text()) == {"run_id": record.run_id, "rows": 2}


def test_without_the_package_the_option_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise MissingExtraError("tensorboard", "tensorboard")

    monkeypatch.setattr(tensorboard, "_event_file_writer", missing)
    assert main(["run", "controlled", "--out", str(tmp_path / "runs"), "--tensorboard", str(tmp_path / "board")]) == 1
    assert "tensorboard is not installed; run: pip install 'headway-torch[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_returns_are_in_the_environments_own_unit() -> None:
    spec = RunSpec(experiment="doorkey", method="ppo", seed=0, protocol={"extrinsic_scale": 10.0})
    columns: Columns = {"episode_return": [9.0], "entropy": [2.0]}
    assert scalars(columns, 0, spec) == {"episode_return": 0.9, "entropy": 2.0}
    assert scalars(columns, 0, PLAIN)["episode_return"] == 9.0
