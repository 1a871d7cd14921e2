"""Campaigns on a Ray cluster: the same events, records and numbers as with the other launchers."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import LauncherError, UsageError
from headway.runs import RunSpec, RunStore, State, launchers
from headway.runs import ray as launcher
from headway.runs.attempt import Task
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.experiments import Context
from headway.runs.launchers import InProcess, Job, StallTimer, StopRequest, Work
from headway.runs.progress import Advanced, Ended, Event, Lost, Outcome, Started, Stopping
from headway.runs.ray import RayLauncher
from headway.runs.ray_cluster import Resources
from headway.study.controlled import specs as controlled_specs
from headway.study.protocols.classification import Protocol
from tests.runs.conftest import Recorder
from tests.runs.dummy import spec_of

pytestmark = pytest.mark.usefixtures("dummies", "ray_cluster")


def states(store: RunStore, specs: list[RunSpec]) -> list[State]:
    return [record.state for record in store.records(spec.run_id for spec in specs)]


def test_runs_are_carried_out_and_told_in_order(store: RunStore, recorder: Recorder) -> None:
    spec = spec_of(steps=4)
    progress = run_campaign(Campaign([spec], store), RayLauncher(), recorder)
    kinds = [type(event) for event in recorder.events]
    assert (kinds[0], kinds[-1]) == (Started, Ended)
    assert set(kinds[1:-1]) == {Advanced}
    assert recorder.events[-1] == Ended(spec.run_id, Outcome.DONE)
    first = recorder.events[0]
    assert isinstance(first, Started)
    assert first.pid != os.getpid()
    assert first.host
    assert progress.is_complete()
    assert store.metrics(spec.run_id)["step"] == [1, 2, 3, 4]


def test_failures_are_recorded_and_lost_workers_replaced(store: RunStore, recorder: Recorder) -> None:
    specs = [spec_of("fail"), spec_of("die-first"), spec_of("unfinished"), spec_of()]
    progress = run_campaign(Campaign(specs, store), RayLauncher(), recorder)
    assert states(store, specs) == [State.FAILED, State.DONE, State.FAILED, State.DONE]
    assert sorted(end.message for end in progress.failures()) == [
        "ExperimentError: expected the experiment dummy to finish() its run, got a return",
        "ValueError: two is too much",
    ]
    (lost,) = (event for event in recorder.events if isinstance(event, Lost))
    assert lost.run_id == specs[1].run_id
    assert lost.message.endswith("was killed or has crashed")
    assert store.metrics(specs[1].run_id)["step"] == [1, 2, 3]
    status = store.record(specs[1].run_id).status
    assert status is not None
    assert status.attempt == 2


@pytest.mark.slow
def test_a_run_that_never_gets_on_fails_in_the_end(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "MOST_LOSSES", 1)
    monkeypatch.setattr(launcher, "MOST_FAILED_STARTS", 2)  # it does start, and then dies
    specs = [spec_of("die-always"), spec_of()]
    progress = run_campaign(Campaign(specs, store), RayLauncher(workers=1), recorder)
    assert states(store, specs) == [State.FAILED, State.DONE]
    (failure,) = progress.failures()
    assert failure.message.startswith("WorkerLostError: its worker process on ")
    assert failure.message.endswith("for the second time")


def test_a_lost_node_with_many_workers_is_no_failure_to_start(store: RunStore) -> None:
    from ray import exceptions

    def get(reference: object) -> None:
        raise exceptions.NodeDiedError("gone")

    tasks = object.__new__(launcher._Tasks)
    waiting = launchers.Queue([], most_losses=1)
    tasks.__dict__.update(
        vars(Work(Job(store, (), Context()), lambda event: None, StopRequest(), waiting)),
        _ray=SimpleNamespace(exceptions=exceptions, get=get),
        _failed_starts=0,
    )
    for seed in range(launcher.MOST_FAILED_STARTS + 1):
        tasks._conclude(launchers.Attempt(Task(spec_of(seed=seed)), StallTimer(math.inf)), None)
    assert tasks.trouble == ""
    assert len(waiting) == launcher.MOST_FAILED_STARTS + 1


def test_a_run_that_kills_its_workers_on_other_machines_fails_in_the_end(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "ASK_AGAIN", 0.05)
    monkeypatch.setattr(launcher, "MOST_LOSSES", 1)
    spec, stop = spec_of("die-abroad"), StopRequest()

    def end_the_endless(event: Event) -> None:
        if sum(isinstance(event, Started) for event in recorder.events) > 2:
            stop.ask()

    recorder.react = end_the_endless
    progress = run_campaign(Campaign([spec], store), RayLauncher(), recorder, stop)
    assert states(store, [spec]) == [State.FAILED]
    (failure,) = progress.failures()
    assert failure.message.endswith("was killed or has crashed, for the second time")


def test_a_store_with_a_relative_path_is_the_same_for_workers_elsewhere(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where no worker is
    spec = spec_of()
    run_campaign(Campaign([spec], RunStore("runs")), RayLauncher(), recorder)
    assert states(RunStore(tmp_path / "runs"), [spec]) == [State.DONE]


def test_asked_to_stop_runs_leave_checkpoints_and_resume(store: RunStore, recorder: Recorder) -> None:
    stop, specs = StopRequest(), [spec_of("wait", seed) for seed in range(4)]

    def ask(event: Event) -> None:
        if sum(isinstance(event, Started) for event in recorder.events) == 2:
            stop.ask()

    recorder.react = ask
    progress = run_campaign(Campaign(specs, store), RayLauncher(), recorder, stop)
    assert Stopping() in recorder.events
    assert sorted(states(store, specs)) == [State.INTERRUPTED] * 2 + [State.PENDING] * 2
    assert progress.count(Outcome.INTERRUPTED) == 2
    assert not progress.is_complete()
    recorder.react = lambda event: None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.runs.dummy.WAITS", False)
        assert run_campaign(Campaign(specs, store), InProcess(), recorder).is_complete()
    assert [store.metrics(spec.run_id)["step"] for spec in specs] == [[1, 2, 3]] * 4


def test_a_full_disk_stops_everything_in_good_order(store: RunStore, recorder: Recorder) -> None:
    specs = [spec_of("wait"), spec_of("full"), *(spec_of(seed=seed) for seed in range(40))]
    with pytest.raises(LauncherError, match="the disk is full; free some space"):
        run_campaign(Campaign(specs, store), RayLauncher(), recorder)
    assert store.record(specs[1].run_id).state is State.INTERRUPTED
    assert store.record(specs[0].run_id).state in (State.INTERRUPTED, State.PENDING)


@pytest.mark.slow
def test_the_numbers_are_those_of_the_other_launchers(store: RunStore, recorder: Recorder, tmp_path: Path) -> None:
    protocol = Protocol.demo().override({"hidden": "8", "batch_size": "256", "test_batches": "1"})
    specs = controlled_specs(["digits"], ["noise", "curriculum"], ["gmc"], [0], protocol, 2)
    context = Context(keep_weights=True, checkpoint_seconds=0.0)
    for own, carrier in ((store, RayLauncher()), (RunStore(tmp_path / "here"), InProcess())):
        assert run_campaign(Campaign(specs, own, context), carrier, recorder).failures() == []
    for spec in specs:
        for name in ("metrics.parquet", "final.pt", "provenance.json"):
            here = RunStore(tmp_path / "here").read_file(spec.run_id, name)
            assert store.read_file(spec.run_id, name) == here, (spec, name)


def test_a_run_that_another_process_holds_is_waited_for(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "ASK_AGAIN", 0.05)
    specs = [spec_of(seed=0), spec_of(seed=1)]
    held = store.lock(specs[0])
    assert held is not None

    def let_go(event: Event) -> None:
        if event == Ended(specs[0].run_id, Outcome.HELD, here=False):
            held.interrupt()

    recorder.react = let_go
    assert run_campaign(Campaign(specs, store), RayLauncher(), recorder).is_complete()
    assert recorder.events.count(Ended(specs[0].run_id, Outcome.HELD, here=False)) == 1


@pytest.mark.slow
def test_a_store_that_the_nodes_do_not_share_is_an_error(
    store: RunStore, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(RunStore):
        def __reduce__(self) -> Any:
            return RunStore, (tmp_path / "elsewhere",)

    with pytest.raises(LauncherError, match=r"expected the run store .*elsewhere on every node, got none on "):
        run_campaign(Campaign([spec_of()], Elsewhere(store.root)), RayLauncher(), recorder)
    assert not (tmp_path / "elsewhere").exists()
    assert states(store, [spec_of()]) == [State.PENDING]


def test_another_version_on_a_node_is_an_error(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "versions", lambda: {"torch": "1.0"})
    with pytest.raises(LauncherError, match=r"expected torch 1\.0 on every node, .* got "):
        run_campaign(Campaign([spec_of()], store), RayLauncher(), recorder)


def test_what_no_node_has_room_for_is_an_error(store: RunStore, recorder: Recorder) -> None:
    message = r"expected a node with 64 CPU and 1 GPU .* got nodes with at most 2 CPU and 0 GPU; ask for less"
    with pytest.raises(LauncherError, match=message):
        run_campaign(Campaign([spec_of()], store), RayLauncher(Resources(64, 1)), recorder)


def test_a_limit_on_runs_at_once_is_kept(store: RunStore, recorder: Recorder) -> None:
    specs = [spec_of(seed=seed) for seed in range(4)]
    assert run_campaign(Campaign(specs, store), RayLauncher(workers=1), recorder).is_complete()
    under_way = 0
    for event in recorder.events:
        under_way += isinstance(event, Started) - isinstance(event, Ended)
        assert under_way <= 1
    with pytest.raises(UsageError, match="expected at least 1 worker, got 0"):
        RayLauncher(workers=0)


def test_a_signal_to_a_worker_is_no_reason_to_give_up(store: RunStore, recorder: Recorder) -> None:
    spec = spec_of("wait", steps=9)

    def terminate(event: Event) -> None:
        if isinstance(event, Started) and not any(isinstance(other, Lost) for other in recorder.events):
            os.kill(event.pid, signal.SIGTERM)
        elif isinstance(event, Started):
            stop.ask()

    stop = StopRequest()
    recorder.react = terminate
    run_campaign(Campaign([spec], store), RayLauncher(), recorder, stop)
    assert any(isinstance(event, Lost) for event in recorder.events)
    assert states(store, [spec]) == [State.INTERRUPTED]
