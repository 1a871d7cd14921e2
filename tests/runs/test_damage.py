from __future__ import annotations

import json

import pytest

from headway.errors import DamagedError, NewerSchemaError, StoreError
from headway.runs import RunSpec, RunStore, State
from tests.runs.helpers import checkpointed, edit, finish, lock, one, spec_of


def test_corrupt_runs_are_listed_last_with_the_reason(store: RunStore) -> None:
    specs = [spec_of(seed) for seed in range(5)]
    for spec in specs:
        finish(store, spec)
    folders = [store.folder(spec.run_id) for spec in specs]
    (folders[0] / "spec.json").write_bytes(b"{")
    (folders[1] / "spec.json").unlink()
    edit(folders[2] / "spec.json", seed=77)
    (folders[3] / "status.json").write_bytes((folders[3] / "status.json").read_bytes()[:-5])
    records = {record.run_id: record for record in store.status()}
    assert store.status()[0].run_id == specs[3].run_id  # its spec is known, so it keeps its place
    reasons = [
        "expected a JSON object, got b'{'",
        "got no such file",
        "expected run_id",
        "expected a JSON object",
    ]
    for spec, reason in zip(specs, reasons, strict=False):
        assert records[spec.run_id].state is State.CORRUPT
        assert reason in records[spec.run_id].reason
        assert reason in store.problems(spec.run_id)[0]
    assert records[specs[4].run_id].state is State.DONE


def test_a_damaged_spec_is_mended_when_its_run_is_added(store: RunStore, spec: RunSpec) -> None:
    finish(store, spec)
    path = store.folder(spec.run_id) / "spec.json"
    for damage in (b"", b"{", json.dumps(spec_of(99).to_dict()).encode()):
        path.write_bytes(damage)
        store.add(spec)
        assert one(store).state is State.DONE


def test_a_damaged_status_means_that_the_run_goes_on(store: RunStore, spec: RunSpec) -> None:
    run = checkpointed(store, spec, 1)
    run.interrupt()
    (run.folder / "status.json").write_bytes(b"torn")
    with lock(store, spec) as run:
        checkpoint = run.restore()
        assert checkpoint is not None
        run.finish()
    status = one(store).status
    assert status is not None
    assert "status.json: expected a JSON object, got b'torn'" in status.note


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_done_run_without_its_metrics_is_run_again(store: RunStore, spec: RunSpec, damage: str) -> None:
    finish(store, spec)
    path = store.folder(spec.run_id) / "metrics.parquet"
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedError, match=r"reset\(\) the run and run it again"):
        store.metrics(spec.run_id)
    finish(store, spec)
    assert store.problems(spec.run_id) == []


def test_changed_metrics_are_noticed(store: RunStore, spec: RunSpec) -> None:
    finish(store, spec)
    path = store.folder(spec.run_id) / "metrics.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedError):
        store.metrics(spec.run_id)
    store.reset(spec.run_id)
    finish(store, spec)
    assert store.problems(spec.run_id) == []


def test_a_folder_copied_under_another_name_is_not_taken_for_that_run(store: RunStore) -> None:
    finish(store, spec_of(0))
    other = spec_of(1)
    store.folder(spec_of(0).run_id).rename(store.root / other.run_id)
    assert one(store).state is State.CORRUPT
    with lock(store, other) as run:
        assert run.restore() is None
        run.finish()
    assert store.metrics(other.run_id) == {}


def test_two_specs_with_one_id_are_noticed(store: RunStore, spec: RunSpec) -> None:
    store.add(spec)
    twin = spec_of(5)
    twin.__dict__["run_id"] = spec.run_id
    with pytest.raises(StoreError, match="two specs share an id"):
        store.add(twin)


def test_a_store_of_a_newer_version_is_refused(store: RunStore, spec: RunSpec) -> None:
    store.add(spec)
    edit(store.root / "store.json", schema=3)
    again = RunStore(store.root)
    for act in (again.status, lambda: again.add(spec), lambda: again.lock(spec)):
        with pytest.raises(NewerSchemaError, match="schema 3, this version reads up to 1; upgrade"):
            act()


def test_a_damaged_store_file_is_an_error(store: RunStore, spec: RunSpec) -> None:
    store.add(spec)
    (store.root / "store.json").write_text("")
    with pytest.raises(StoreError, match=r"store\.json: expected a JSON object, got nothing"):
        RunStore(store.root).status()


@pytest.mark.parametrize("name", ["spec.json", "status.json"])
def test_a_run_of_a_newer_version_is_listed_and_never_overwritten(store: RunStore, spec: RunSpec, name: str) -> None:
    finish(store, spec)
    path = store.folder(spec.run_id) / name
    edit(path, schema=2)
    before = path.read_bytes()
    record = one(store)
    assert record.state is State.CORRUPT
    assert "was written by a newer headway: schema 2" in record.reason
    with pytest.raises(NewerSchemaError):
        store.lock(spec)
    with pytest.raises(NewerSchemaError):
        store.reset(spec.run_id) if name == "status.json" else store.add(spec)
    assert path.read_bytes() == before
