"""A folder and a URL keep the same promises: each test runs on both."""

from __future__ import annotations

import pickle
import secrets
from pathlib import Path

import pytest

from headway import errors
from headway.runs import RunStore, State
from headway.runs.folder import FolderStorage
from tests.runs.helpers import checkpointed, finish, lock, one, spec_of


@pytest.fixture(params=["folder", "url"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    if request.param == "folder":
        return RunStore(tmp_path / "runs")
    pytest.importorskip("fsspec")
    return RunStore(f"memory://{secrets.token_hex(4)}/runs")


def test_a_run_from_its_lock_to_its_end(store: RunStore) -> None:
    assert not store.exists()
    spec = spec_of(0)
    run = checkpointed(store, spec, 1, 2)
    assert one(store).state is State.RUNNING
    assert store.lock(spec) is None
    assert store.metrics(spec.run_id)["step"] == [1, 2]
    run.save("notes", lambda file: file.write(b"kept"))
    run.finish()
    assert (one(store).state, one(store).spec) == (State.DONE, spec)
    assert store.has_metrics(one(store))
    assert store.metrics(spec.run_id)["step"] == [1, 2]
    assert store.read_file(spec.run_id, "notes") == b"kept"
    assert store.problems(spec.run_id) == []
    assert store.lock(spec) is None


def test_what_has_failed_is_run_again_on_request(store: RunStore) -> None:
    spec = spec_of(0)
    with pytest.raises(ZeroDivisionError), checkpointed(store, spec, 1):
        raise ZeroDivisionError
    assert one(store).state is State.FAILED
    assert store.lock(spec, retry_failed=False) is None
    with lock(store, spec) as run:
        found = run.restore()
        assert found is not None
        assert (found.step, run.attempt) == (1, 2)


def test_a_run_that_is_reset_is_pending(store: RunStore) -> None:
    spec = spec_of(0)
    finish(store, spec)
    store.reset(spec.run_id)
    assert one(store).state is State.PENDING
    assert store.metrics(spec.run_id) == {}
    assert lock(store, spec).restore() is None


def test_names_and_lengths_are_checked(store: RunStore) -> None:
    spec = spec_of(0)
    finish(store, spec)
    with pytest.raises(errors.StoreError, match="nothing"):
        store.read_file(spec.run_id, "nothing")
    with pytest.raises(errors.DamagedError, match="at most 3 bytes"):
        store.read_file(spec.run_id, "metrics.parquet", limit=3)
    for look in (store.record, store.metrics, store.problems, store.reset, store.free):
        with pytest.raises(errors.StoreError, match="expected the id of a run"):
            look("0" * 16)


def test_a_store_of_a_newer_version_is_left_alone(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add(spec_of(0))
    reader = pickle.loads(pickle.dumps(store)) if isinstance(store.storage, FolderStorage) else RunStore(store.place)
    monkeypatch.setattr(reader.storage, "read_version", lambda: b'{"schema": 2}')
    with pytest.raises(errors.NewerSchemaError):
        reader.status()
    with pytest.raises(errors.NewerSchemaError):
        reader.add(spec_of(1))


def test_it_is_pickled_without_what_it_has_seen(store: RunStore) -> None:
    again = pickle.loads(pickle.dumps(RunStore(store.storage, lease=7.0)))
    assert (type(again.storage), again.place, again.lease) == (type(store.storage), store.place, 7.0)


def test_a_relative_folder_is_pickled_as_an_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(pickle.dumps(RunStore("runs")))
    assert again.root == tmp_path / "runs"


def test_former_names_still_work() -> None:
    assert RunStore.claim is RunStore.lock
    assert errors.ClaimLostError is errors.LockLostError
