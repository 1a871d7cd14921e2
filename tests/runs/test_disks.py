from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.errors import MissingExtraError, StoreError
from headway.runs import Run, RunSpec, RunStore, State
from tests.runs.helpers import checkpointed, failing, finish, full_disk, lock, one, spec_of


def test_a_file_in_the_place_of_the_store_is_an_error(tmp_path: Path, spec: RunSpec) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="expected a folder for the run store, got a file"):
        RunStore(tmp_path / "file").add(spec)
    with pytest.raises(StoreError, match="expected a folder, got a file"):
        RunStore(tmp_path / "file" / "runs").add(spec)
    with pytest.raises(StoreError, match="expected a folder, got a file"):
        RunStore(tmp_path / "file").status()


def test_a_disk_that_fills_up_loses_nothing(store: RunStore, spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    run = checkpointed(store, spec, 1)
    run.log({"step": 2})
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StoreError, match="the disk is full; free some space and run the same") as caught, run:
        run.checkpoint(2, lambda file: file.write(b"two"))
    if sys.version_info >= (3, 11):
        assert "its status could not be recorded" in caught.value.__notes__[0]
    assert one(store).state is State.INTERRUPTED  # given back, though nothing could be written
    with pytest.raises(StoreError, match="the disk is full"):
        store.lock(spec)
    with pytest.raises(StoreError, match="the disk is full"):
        store.add(spec_of(9))
    monkeypatch.undo()
    assert [record.spec for record in store.status()] == [spec]
    assert store.problems(spec.run_id) == []
    with lock(store, spec) as run:
        checkpoint = run.restore()
        assert checkpoint is not None
        assert checkpoint.payload == b"state 1"
        run.finish()
    assert store.metrics(spec.run_id)["step"] == [1]


def test_a_disk_that_fills_up_at_the_end_leaves_the_run_to_be_finished_later(
    store: RunStore, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = checkpointed(store, spec)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StoreError, match="the disk is full"), run:
        run.finish()
    monkeypatch.undo()
    finish(store, spec)
    assert one(store).state is State.DONE


def test_a_disk_that_fills_up_while_a_run_is_locked_leaves_it_free(
    store: RunStore, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(spec)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StoreError, match="the disk is full"):
        store.lock(spec)
    monkeypatch.undo()
    finish(store, spec)
    assert one(store).state is State.DONE


@pytest.fixture
def tiny_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small file system is not permitted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(run: Run) -> None:
    for step in range(1, 100):
        run.log({"step": step})
        run.checkpoint(step, lambda file, step=step: file.write(bytes(step * 8192)))


def test_a_disk_that_is_really_full(tiny_disk: Path, spec: RunSpec) -> None:
    store = RunStore(tiny_disk / "runs")
    with pytest.raises(StoreError, match="the disk is full"), checkpointed(store, spec) as run:
        fill(run)
    survivors = store.metrics(spec.run_id)["step"]
    assert survivors == list(range(1, len(survivors) + 1))
    assert len(survivors) > 3
    assert store.problems(spec.run_id) == []
    filler = tiny_disk / "filler"
    with pytest.raises(OSError, match="No space"), filler.open("wb") as file:
        file.write(bytes(2**20))
    with pytest.raises(StoreError, match="the disk is full"):
        store.add_all([spec_of(seed) for seed in range(1, 100)])
    assert {record.state for record in store.status()} <= {State.PENDING, State.FAILED, State.INTERRUPTED}
    filler.unlink()
    with lock(store, spec) as run:
        checkpoint = run.restore()
        assert checkpoint is not None
        assert checkpoint.step == len(survivors)
        run.finish()
    assert store.metrics(spec.run_id)["step"] == survivors


def test_a_read_only_store_can_be_read_and_says_so_when_written(tiny_disk: Path, spec: RunSpec) -> None:
    store = RunStore(tiny_disk / "runs")
    finish(store, spec)
    store.add(spec_of(1))
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    assert [record.state for record in store.status()] == [State.DONE, State.PENDING]
    assert store.metrics(spec.run_id)["step"] == [1, 2, 3]
    assert store.lock(spec) is None
    writes = (
        lambda: store.lock(spec_of(1)),
        lambda: store.add(spec_of(2)),
        lambda: store.reset(spec.run_id),
    )
    for act in writes:
        with pytest.raises(StoreError, match="the file system is read-only; choose another folder"):
            act()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_an_unwritable_folder_is_a_clear_error(
    tmp_path: Path, spec: RunSpec, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(Path, "mkdir", failing(code))
    with pytest.raises(StoreError, match=r"read-only|permission denied"):
        RunStore(tmp_path / "runs").add(spec)


def test_without_pyarrow_a_run_is_refused_before_it_starts(
    store: RunStore, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'headway-torch\[experiments\]'"):
        store.lock(spec)


def test_a_full_disk_is_recognised_also_behind_the_error_of_a_library(tiny_disk: Path, spec: RunSpec) -> None:
    torch = pytest.importorskip("torch")
    store = RunStore(tiny_disk / "runs")
    run = lock(store, spec)
    run.restore()
    with pytest.raises(StoreError, match="the disk is full") as caught:
        run.checkpoint(1, lambda file: torch.save(torch.zeros(200_000), file))
    run.interrupt("the disk is full")
    assert isinstance(caught.value.__cause__, OSError)  # by which a campaign knows that it concerns every run
