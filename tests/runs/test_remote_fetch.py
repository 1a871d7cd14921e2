"""Copies of a store behind a URL: they follow it, but what was worked on here is not lost."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from headway.errors import StoreError
from headway.runs import RunStore, State
from headway.runs.url_storage import fetch
from tests.runs.helpers import checkpointed, finish, lock, spec_of

SPEC = spec_of(0)


@pytest.fixture
def remote() -> RunStore:
    """A store with a run that was interrupted at its second step."""
    store = RunStore(f"memory://{secrets.token_hex(4)}/runs")
    checkpointed(store, SPEC, 1, 2).interrupt()
    return store


@pytest.fixture
def local(remote: RunStore, tmp_path: Path) -> RunStore:
    """Its copy."""
    store = RunStore(tmp_path / "copy")
    assert fetch(remote, store) == 1
    return store


def go_on(store: RunStore, *steps: int) -> None:
    """Work on the run, and stop."""
    with lock(store, SPEC) as run:
        run.restore()
        for step in steps:
            run.log({"step": step, "loss": 1 / step, "arms": [step, 0.5]})
            run.checkpoint(step, lambda file: file.write(b"state"))
            run.progress(step, 9)
        if steps[-1] == 9:
            run.finish()


def test_a_run_that_was_done_here_stays_done(remote: RunStore, local: RunStore) -> None:
    go_on(local, 9)
    assert fetch(remote, local) == 0
    go_on(remote, 3)
    assert fetch(remote, local) == 0
    assert local.record(SPEC.run_id).state is State.DONE
    assert local.metrics(SPEC.run_id)["step"] == [1, 2, 9]


def test_a_run_that_is_further_here_is_left_alone_until_it_is_further_there(remote: RunStore, local: RunStore) -> None:
    go_on(local, 3, 4)
    assert fetch(remote, local) == 0
    assert local.metrics(SPEC.run_id)["step"] == [1, 2, 3, 4]
    go_on(remote, 3, 4, 5)
    assert fetch(remote, local) == 1
    assert local.metrics(SPEC.run_id)["step"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("lost", ["metrics.parquet", "final.pt"])
def test_a_copy_that_has_lost_a_file_is_made_whole(remote: RunStore, local: RunStore, lost: str) -> None:
    with lock(remote, SPEC) as run:
        run.restore()
        run.save("final.pt", lambda file: file.write(b"weights"))
        run.finish()
    assert fetch(remote, local) == 1
    assert fetch(remote, local) == 0
    (local.folder(SPEC.run_id) / lost).unlink()
    assert fetch(remote, local) == 1
    assert local.problems(SPEC.run_id) == []


def test_a_run_that_is_done_there_comes_whole(remote: RunStore, local: RunStore) -> None:
    go_on(local, 3)
    go_on(remote, 9)
    assert fetch(remote, local) == 1
    assert local.record(SPEC.run_id).state is State.DONE
    (local.folder(SPEC.run_id) / "metrics.parquet").unlink()
    remote.reset(SPEC.run_id)
    finish(remote, SPEC)
    assert fetch(remote, local) == 1
    assert local.problems(SPEC.run_id) == []


def test_a_copy_that_nobody_worked_on_follows_its_run_also_back(remote: RunStore, local: RunStore) -> None:
    remote.reset(SPEC.run_id)
    checkpointed(remote, SPEC, 1).fail(ValueError("one is too much"))
    assert fetch(remote, local) == 1
    assert local.record(SPEC.run_id).state is State.FAILED
    assert fetch(remote, local) == 0


def test_nobody_starts_a_run_while_its_copy_is_replaced(
    remote: RunStore, local: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on(remote, 3)
    bring, locked = remote.storage.bring, []

    def bring_slowly(run_id: str, folder: Path) -> object:
        locked.append(RunStore(local.root).lock(SPEC))
        return bring(run_id, folder)

    monkeypatch.setattr(remote.storage, "bring", bring_slowly)
    assert fetch(remote, local) == 1
    assert locked == [None]
    go_on(local, 9)  # it was given back


def test_a_run_under_way_here_is_not_replaced(remote: RunStore, local: RunStore) -> None:
    run = lock(local, SPEC)
    go_on(remote, 3)
    with pytest.raises(StoreError, match=f"got {SPEC.run_id}"):
        fetch(remote, local)
    run.interrupt()
