from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.errors import DamagedError, LockLostError, StoreError
from headway.runs import RunSpec, RunStore, State
from headway.runs.run import PROGRESS_INTERVAL
from tests.runs.helpers import checkpointed, finish, lock, names, one


def test_a_run_from_lock_to_end(store: RunStore, spec: RunSpec) -> None:
    run = lock(store, spec)
    assert run.restore() is None
    record = one(store)
    assert record.state is State.RUNNING
    assert record.status is not None
    assert record.status.pid == os.getpid()
    assert record.status.attempt == run.attempt == 1
    assert store.lock(spec) is None
    assert RunStore(store.root).lock(spec) is None
    run.log({"loss": 0.5, "arms": [1, 2]})
    run.progress(1, 1, {"loss": 0.5})
    run.finish()
    record = one(store)
    assert record.state is State.DONE
    assert record.status is not None
    assert (record.status.step, record.status.total, dict(record.status.losses)) == (1, 1, {"loss": 0.5})
    assert store.metrics(run.run_id) == {"loss": [0.5], "arms": [[1, 2]]}
    assert store.problems(run.run_id) == []
    assert store.lock(spec) is None
    assert names(run.folder) == ["claim.1", "metrics.parquet", "spec.json", "status.json"]


def test_a_resumed_run_sees_the_rows_up_to_its_checkpoint_only(store: RunStore, spec: RunSpec) -> None:
    with checkpointed(store, spec, 1) as run:
        run.log({"step": 2})
    assert one(store).state is State.INTERRUPTED
    assert store.metrics(spec.run_id) == {"step": [1], "loss": [1.0], "arms": [[1, 0.5]]}
    with lock(store, spec) as run:
        checkpoint = run.restore()
        assert checkpoint is not None
        assert (checkpoint.step, checkpoint.payload) == (1, b"state 1")
        assert run.columns()["step"] == [1]
        assert run.attempt == 2
        run.log({"step": 2})
        run.finish()
    assert store.metrics(spec.run_id)["step"] == [1, 2]


def test_a_run_that_logged_a_mask_can_be_finished(store: RunStore, spec: RunSpec) -> None:
    with lock(store, spec) as run:
        run.restore()
        run.log({"mask": torch.tensor([True, False]), "is_late": torch.tensor(True)})
        run.finish()
    assert store.metrics(spec.run_id) == {"mask": [[1, 0]], "is_late": [True]}


def test_metrics_do_not_depend_on_interruptions(tmp_path: Path, spec: RunSpec) -> None:
    whole, torn = RunStore(tmp_path / "whole"), RunStore(tmp_path / "torn")
    finish(whole, spec, 4)
    for _ in range(4):
        with lock(torn, spec) as run:
            checkpoint = run.restore()
            step = checkpoint.step + 1 if checkpoint else 1
            run.log({"step": step, "loss": 1 / step, "arms": [step, 0.5]})
            run.checkpoint(step, lambda file: file.write(b"state"))
            run.log({"step": 100, "extra": "lost"})
    with lock(torn, spec) as run:
        run.restore()
        run.finish()
    name = "metrics.parquet"
    assert torn.read_file(spec.run_id, name) == whole.read_file(spec.run_id, name)


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    store: RunStore, spec: RunSpec, damage: bytes | None
) -> None:
    checkpointed(store, spec, 1, 2, 3).interrupt()
    newest = store.folder(spec.run_id) / "checkpoint.0"
    newest.write_bytes(newest.read_bytes()[:-7] if damage is None else damage)
    assert len(store.problems(spec.run_id)) == 1
    with lock(store, spec) as run:
        checkpoint = run.restore()
        assert checkpoint is not None
        assert (checkpoint.step, checkpoint.payload) == (2, b"state 2")
        assert run.columns()["step"] == [1, 2]
        run.checkpoint(3, lambda file: file.write(b"state 3"))
    assert store.problems(spec.run_id) == []  # the damaged one was replaced, not the good one
    with lock(store, spec) as run:
        restored = run.restore()
        assert restored is not None
        assert restored.step == 3
        run.finish()


def test_a_skipped_checkpoint_is_told_in_the_status(store: RunStore, spec: RunSpec) -> None:
    checkpointed(store, spec, 1).interrupt()
    (store.folder(spec.run_id) / "checkpoint.0").write_bytes(b"torn")
    with lock(store, spec) as run:
        assert run.restore() is None
        run.finish()
    status = one(store).status
    assert status is not None
    assert "checkpoint.0: expected a whole checkpoint" in status.note
    assert status.note.endswith("started from the beginning")


def test_a_checkpoint_that_may_not_be_read_now_is_not_passed_over(
    store: RunStore, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointed(store, spec, 1).interrupt()
    run = lock(store, spec)
    opened = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if "checkpoint" in str(path):
            raise PermissionError(errno.EACCES, "denied")
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="permission denied"), run:
        run.restore()


def test_a_failure_is_recorded_with_its_traceback_and_can_be_retried(store: RunStore, spec: RunSpec) -> None:
    with pytest.raises(ZeroDivisionError), lock(store, spec):
        raise ZeroDivisionError("division by zero")
    record = one(store)
    assert record.state is State.FAILED
    assert record.status is not None
    assert "test_run.py" in record.status.error
    assert record.status.error.endswith("ZeroDivisionError: division by zero\n")
    assert store.lock(spec, retry_failed=False) is None
    finish(store, spec)
    record = one(store)
    assert record.status is not None
    assert (record.state, record.status.error, record.status.attempt) == (State.DONE, "", 2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_stopped_run_is_interrupted(store: RunStore, spec: RunSpec, error: type[BaseException]) -> None:
    with pytest.raises(error), lock(store, spec):
        raise error
    record = one(store)
    assert record.state is State.INTERRUPTED
    assert record.status is not None
    assert record.status.note == f"stopped by {error.__name__}"


def test_a_run_asks_for_restore_first_and_for_steps_that_grow(store: RunStore, spec: RunSpec) -> None:
    with lock(store, spec) as run:
        for act in (run.columns, run.finish, lambda: run.log({})):
            with pytest.raises(StoreError, match=r"expected restore\(\) first"):
                act()
        run.restore()
        with pytest.raises(StoreError, match="got a second call"):
            run.restore()
        run.checkpoint(3, lambda file: None)
        for step in (0, 3):
            with pytest.raises(StoreError, match="expected a checkpoint after step 3"):
                run.checkpoint(step, lambda file: None)
        run.finish()
        with pytest.raises(StoreError, match="which it has given back"):
            run.log({})


def test_progress_is_written_now_and_then(store: RunStore, spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("headway.runs.store.Run.__init__.__defaults__", (lambda: now[0],))
    with lock(store, spec) as run:
        run.restore()
        run.progress(1, 10, {"loss": 2})
        assert one(store).status.step == 0  # type: ignore[union-attr]
        now[0] = 2 * PROGRESS_INTERVAL
        run.progress(4, losses={"loss": float("nan")})
        status = one(store).status
        assert status is not None
        assert (status.step, status.total, status.speed) == (4, 10, 2.0)
        assert status.seconds == 2.0
        run.progress(5)
        run.finish()
    assert one(store).status.step == 5  # type: ignore[union-attr]


def test_a_run_that_was_taken_over_stops_and_leaves_the_new_holder_alone(store: RunStore, spec: RunSpec) -> None:
    run = checkpointed(store, spec)
    (run.folder / "claim.2").write_text("another machine's")
    before = (run.folder / "status.json").read_bytes()
    with pytest.raises(LockLostError):
        run.checkpoint(1, lambda file: None)
    with pytest.raises(LockLostError):
        run.save("final.pt", lambda file: None)
    with pytest.raises(LockLostError), run:
        run.finish()
    assert (run.folder / "status.json").read_bytes() == before


def test_files_are_kept_with_their_sums(store: RunStore, spec: RunSpec) -> None:
    with lock(store, spec) as run:
        run.restore()
        run.save("final.pt", lambda file: file.write(b"weights"))
        reserved = ("spec.json", "Spec.JSON", "checkpoint.0", "claim.1", "metrics.parquet")
        for name in (*reserved, "../x", "", ".hidden", "a/b"):
            with pytest.raises(StoreError, match="expected a plain file name"):
                run.save(name, lambda file: None)
    finish(store, spec)  # a later attempt remembers it
    assert store.read_file(spec.run_id, "final.pt") == b"weights"
    with pytest.raises(StoreError, match=r"has saved \(final.pt, metrics.parquet\), got 'other'"):
        store.read_file(spec.run_id, "other")
    (store.folder(spec.run_id) / "final.pt").write_bytes(b"weight$")
    with pytest.raises(DamagedError, match="expected the 7 bytes that the run wrote, got 7 other bytes"):
        store.read_file(spec.run_id, "final.pt")
    assert len(store.problems(spec.run_id)) == 1


def test_reset_makes_a_run_pending_again(store: RunStore, spec: RunSpec) -> None:
    finish(store, spec)
    store.reset(spec.run_id)
    assert one(store).state is State.PENDING
    assert store.metrics(spec.run_id) == {}
    run = lock(store, spec)
    with pytest.raises(StoreError, match="stop its process first"):
        store.reset(spec.run_id)
    run.interrupt()


def test_half_written_files_of_a_killed_process_are_cleared_away(store: RunStore, spec: RunSpec) -> None:
    folder = store.root / store.add(spec)
    for name in ("status.json", "checkpoint.1", "final.pt"):
        (folder / f".{name}.0123456789abcdef.tmp").write_bytes(b"half")
    lock(store, spec).interrupt()
    assert not list(folder.glob(".*"))
