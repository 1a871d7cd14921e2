from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from headway.errors import StoreError
from headway.runs import RunSpec, RunStore, State
from tests.runs.helpers import checkpointed, edit, finish, one, spec_of


def test_making_a_store_object_touches_nothing(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    with pytest.raises(StoreError, match=r"expected a run store \(with store.json\) at .*, got none"):
        store.status()
    with pytest.raises(StoreError, match="expected a lease of more than 0"):
        RunStore(tmp_path, lease=0)


def test_added_runs_are_pending_and_adding_twice_changes_nothing(store: RunStore) -> None:
    specs = [spec_of(seed) for seed in (2, 0, 1)]
    ids = store.add_all(specs)
    assert ids == [spec.run_id for spec in specs]
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*")}
    assert store.add_all(specs) == ids
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*")} == before
    records = store.status()
    assert [record.spec for record in records] == [spec_of(0), spec_of(1), spec_of(2)]
    assert {record.state for record in records} == {State.PENDING}


def test_a_store_can_be_sent_to_another_process(store: RunStore, spec: RunSpec) -> None:
    store.add(spec)
    assert one(pickle.loads(pickle.dumps(store))).spec == spec


def test_a_run_can_be_held_without_being_started(store: RunStore, spec: RunSpec) -> None:
    run_id = store.add(spec)
    with store.held(run_id):
        assert RunStore(store.root).lock(spec) is None
        with pytest.raises(StoreError, match="expected a run that no process holds"), RunStore(store.root).held(run_id):
            pass
    assert one(store).state is State.PENDING
    finish(store, spec)


def test_a_run_of_a_machine_that_is_gone_is_reset_after_its_lease(store: RunStore, spec: RunSpec) -> None:
    run = checkpointed(store, spec, 1)
    lock = run.folder / "claim.1"
    edit(lock, host="other", machine="other boot", lease=0.05)
    RunStore(store.root).reset(spec.run_id)
    assert one(store).state is State.PENDING
    run._lock.release()


def test_a_run_of_another_machine_is_not_reset_once_that_shows_a_sign_of_life(
    store: RunStore, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = checkpointed(store, spec, 1)
    lock = run.folder / "claim.1"
    edit(lock, host="other", machine="other boot")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            os.utime(lock, (0, 0))

    monkeypatch.setattr("headway.runs.locks.time.sleep", wait)
    with pytest.raises(StoreError, match="expected a run that no process holds"):
        RunStore(store.root).reset(spec.run_id)
    assert len(waits) == 3
    assert (run.folder / "checkpoint.0").exists()
    run._lock.release()


def test_a_run_whose_machine_vanished_long_ago_is_listed_as_interrupted(store: RunStore, spec: RunSpec) -> None:
    run = checkpointed(store, spec, 1)
    lock = run.folder / "claim.1"
    edit(lock, host="other", machine="other boot")
    assert one(store).state is State.RUNNING
    os.utime(lock, (0, 0))
    assert one(store).state is State.INTERRUPTED
    run._lock.release()


def test_other_folders_and_files_are_left_alone(store: RunStore, spec: RunSpec) -> None:
    store.root.mkdir()
    (store.root / "notes").mkdir()
    (store.root / ("0" * 16)).write_text("a file with the name of a run")
    store.add(spec)
    assert one(store).spec == spec


def test_what_a_process_killed_while_adding_runs_has_left_goes_after_a_day(store: RunStore, spec: RunSpec) -> None:
    store.add(spec)
    left, under_way, other = (store.root / name for name in (f".new-{'0' * 16}-a", f".new-{'0' * 16}-b", ".notes"))
    for folder in (left, under_way, other):
        folder.mkdir()
        (folder / "spec.json").write_text("{")
    for folder in (left, other):
        os.utime(folder, (0, 0))
    status = RunStore(store.root).status()
    assert left.is_dir()  # readers change nothing
    adder = RunStore(store.root)
    assert adder.status() == status
    adder.add(spec)
    assert [folder.is_dir() for folder in (left, under_way, other)] == [False, True, True]


def test_runs_are_chosen_by_a_function(store: RunStore) -> None:
    store.add_all([spec_of(seed) for seed in range(4)])
    finish(store, spec_of(2))
    assert [r.spec for r in store.runs(lambda record: record.state is State.DONE)] == [spec_of(2)]


@pytest.mark.parametrize("run_id", ["", "..", "0" * 16, "../runs", "x" * 16, "0" * 15])
def test_an_unknown_id_is_an_error(store: RunStore, spec: RunSpec, run_id: str) -> None:
    store.add(spec)
    for look in (store.record, store.metrics, store.folder, store.problems, store.reset):
        with pytest.raises(StoreError, match="expected the id of a run"):
            look(run_id)
