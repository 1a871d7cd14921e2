"""Disks that are full, read-only, slow or damaged."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.errors import StoreError
from headway.runs import RunSpec, RunStore, State
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.launchers import InProcess, StopRequest
from tests.faults.campaigns import Output, check_aftermath, check_done, run_to_end, start
from tests.runs.conftest import Recorder
from tests.runs.dummy import spec_of
from tests.runs.helpers import full_disk

pytestmark = pytest.mark.usefixtures("dummies")
SPECS = [spec_of("large", seed) for seed in range(6)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_disk_that_fills_up(disk: Callable[[str], Path], workers: int) -> None:
    # beside the filler, too little for one run (two checkpoints and the next); without it, enough for two workers
    # at once and all that the campaign before has left
    store = RunStore(disk("size=2m") / "runs")
    (store.root.parent / "filler").write_bytes(bytes(1_700_000))
    arguments = ["--method", "large", "--seeds", "0:6", "--out", store.root, "--workers", workers]
    code, errors, output = run_to_end(*arguments)
    assert code == 1
    assert "the disk is full; free some space and run the same command again" in errors
    assert "Traceback" not in errors
    assert {record.state for record in store.status()} <= {State.DONE, State.INTERRUPTED, State.PENDING}
    (store.root.parent / "filler").unlink()
    code, errors, again = run_to_end(*arguments)
    assert (code, errors) == (0, "")
    assert output.reported_done() | again.reported_done() == {("large", seed) for seed in range(6)}
    check_aftermath(store, SPECS, output)


@pytest.mark.parametrize("writes", [0, 1, 7, 8, 9, 10, 23])
def test_a_disk_that_is_full_from_some_write_on(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    specs, sync, left = [spec_of(seed=seed) for seed in range(3)], os.fsync, [writes]

    def fill_up(descriptor: int) -> None:
        left[0] -= 1
        full_disk() if left[0] < 0 else sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill_up)
        with pytest.raises(StoreError, match="the disk is full; free some space and run the same command again"):
            run_campaign(Campaign(specs, store), InProcess(), recorder)
    done = {event.run_id for event in recorder.events if getattr(event, "outcome", "") == "done"}
    check_done(store, [spec for spec in specs if spec.run_id in done])
    check_aftermath(store, specs)


def test_a_store_that_turns_read_only(disk: Callable[[str], Path]) -> None:
    store = RunStore(disk("size=8m") / "runs")
    first = ["--method", "large", "--seeds", "0:2", "--out", store.root, "--workers", 1]
    code, _, output = run_to_end(*first)
    assert code == 0
    disk("ro")
    for workers in (0, 1):
        code, errors, _ = run_to_end("--method", "large", "--seeds", "0:6", "--out", store.root, "--workers", workers)
        assert code == 1
        assert "the file system is read-only; choose another folder" in errors
        assert "Traceback" not in errors
    assert run_to_end(*first)[0] == 0  # what is done needs no writing
    disk("rw")
    check_aftermath(store, SPECS, output)


def test_a_slow_file_system(store: RunStore) -> None:
    slow = "tests.faults.slow_cli"
    arguments = ["--seeds", "0:3", "--out", store.root, "--workers", 2]
    output = Output(start("--method", "good", "wait", "--steps", 9, *arguments, module=slow))
    output.read_until("none wait seed 0: started")
    os.killpg(output.process.pid, signal.SIGINT)
    code, errors = output.end()
    assert code == 130
    assert errors.endswith("the same command resumes\n")
    check_aftermath(store, [spec_of(method, seed, 9) for method in ("good", "wait") for seed in range(3)], output)


def damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    match how:
        case "changed":
            place = len(whole) // 2
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        case "cut short":
            path.write_bytes(whole[:-20])
        case "empty":
            path.write_bytes(b"")
        case "zeros":
            path.write_bytes(bytes(len(whole)))
        case "gone":
            path.unlink()


def interrupted(store: RunStore, recorder: Recorder) -> RunSpec:
    """A run with checkpoints at steps 1 and 2."""
    stop, spec = StopRequest(), spec_of(steps=9)
    recorder.react = lambda event: stop.ask() if getattr(event, "step", 0) == 2 else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.runs.attempt.REPORT_INTERVAL", 0.0)
        run_campaign(Campaign([spec], store), InProcess(), recorder, stop)
    assert store.metrics(spec.run_id)["step"] == [1, 2]
    return spec


@pytest.mark.parametrize("how", ["changed", "cut short", "empty", "zeros", "gone"])
@pytest.mark.parametrize("slots", [(1,), (0, 1)], ids=["newest", "both"])
def test_a_damaged_checkpoint(store: RunStore, recorder: Recorder, how: str, slots: tuple[int, ...]) -> None:
    spec = interrupted(store, recorder)
    for slot in slots:
        damage(store.root / spec.run_id / f"checkpoint.{slot}", how)
    left = {1: [1], 2: []}[len(slots)]
    assert store.metrics(spec.run_id).get("step", []) == left
    check_aftermath(store, [spec])
    status = store.record(spec.run_id).status
    assert status is not None
    if how != "gone":
        origin = "resumed from step 1" if left else "started from the beginning"
        assert status.note.endswith(origin)
        assert "checkpoint.1: " in status.note


@pytest.mark.parametrize("how", ["changed", "cut short", "empty", "zeros", "gone"])
@pytest.mark.parametrize("name", ["spec.json", "status.json", "metrics.parquet"])
def test_other_damage(store: RunStore, recorder: Recorder, name: str, how: str) -> None:
    specs = [spec_of(seed=seed) for seed in range(2)]
    run_campaign(Campaign(specs, store), InProcess(), recorder)
    damage(store.root / specs[0].run_id / name, how)
    if name == "metrics.parquet" and how in ("changed", "zeros"):
        assert "it was damaged since: reset() the run and run it again" in store.problems(specs[0].run_id)[0]
        store.reset(specs[0].run_id)
    check_aftermath(store, specs)
