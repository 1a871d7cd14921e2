"""Campaigns in local processes: the same numbers with any number of workers, and workers that die."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest

from headway.errors import LauncherError, UsageError
from headway.runs import RunStore, State, launchers, processes
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.launchers import LaunchOptions
from headway.runs.processes import LocalProcesses, make_local
from headway.runs.progress import Ended, Lost, Outcome, Started
from headway.study import controlled
from headway.study.protocols.classification import Protocol
from tests.runs.conftest import Recorder
from tests.runs.dummy import spec_of

pytestmark = pytest.mark.usefixtures("dummies")

TINY = dataclasses.replace(Protocol.demo(), hidden=8, actor_hidden=8, batch_size=256, test_batches=1)


@pytest.mark.slow
def test_the_number_of_workers_changes_no_number(tmp_path: Path, recorder: Recorder) -> None:
    specs = controlled.specs(["digits"], ["noise"], ["gmc", "curiosity"], [0, 1], TINY, 2)
    files = []
    for workers in (0, 1, 2):
        store = RunStore(tmp_path / str(workers))
        assert run_campaign(Campaign(specs, store), make_local(LaunchOptions(workers)), recorder).is_complete()
        files.append([store.read_file(spec.run_id, "metrics.parquet") for spec in specs])
    assert files[0] == files[1] == files[2]


@pytest.mark.slow
def test_dead_workers_are_replaced_and_the_others_go_on(store: RunStore, recorder: Recorder) -> None:
    methods = ["die", "die-first", "fail", "good"]
    specs = {method: spec_of(method) for method in methods}
    progress = run_campaign(Campaign(list(specs.values()), store), LocalProcesses(2), recorder)
    lost = [event for event in recorder.events if isinstance(event, Lost)]
    assert {event.run_id for event in lost} == {specs["die"].run_id, specs["die-first"].run_id}
    assert all("was killed by SIGKILL; was the memory used up?" in event.message for event in lost)
    records = {method: store.record(spec.run_id) for method, spec in specs.items()}
    assert {method: record.state for method, record in records.items()} == {
        "die": State.FAILED,
        "die-first": State.DONE,
        "fail": State.FAILED,
        "good": State.DONE,
    }
    assert store.metrics(specs["die-first"].run_id)["step"] == [1, 2, 3]
    status = records["die"].status
    assert status is not None
    assert "WorkerLostError: the worker process" in status.error
    assert "SIGKILL" in status.error
    assert progress.is_complete()
    assert len(progress.failures()) == 2


def test_a_run_that_a_dead_process_of_another_machine_holds_is_given_up_later(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "ASK_AGAIN", 0.05)
    monkeypatch.setattr(processes, "Queue", partial(launchers.Queue, most_losses=0))
    spec = spec_of("die-abroad")
    progress = run_campaign(Campaign([spec], store), LocalProcesses(1), recorder)
    assert [type(event) for event in recorder.events] == [Started, Ended, Ended]
    assert len(progress.failures()) == 1
    assert store.record(spec.run_id).state is State.FAILED


def test_a_full_disk_stops_all_workers(store: RunStore, recorder: Recorder) -> None:
    specs = [spec_of("wait"), spec_of("full"), spec_of()]
    with pytest.raises(LauncherError, match="the disk is full; free some space"):
        run_campaign(Campaign(specs, store), LocalProcesses(2), recorder)
    waiting, full, never_started = (store.record(spec.run_id).state for spec in specs)
    assert waiting in (State.INTERRUPTED, State.PENDING)  # its worker may not have come to it yet
    assert full is State.INTERRUPTED
    assert never_started is State.PENDING
    began = any(isinstance(event, Started) and event.run_id == specs[0].run_id for event in recorder.events)
    assert (Ended(specs[0].run_id, Outcome.INTERRUPTED) in recorder.events) == began


def test_workers_that_do_not_start_are_an_error(
    store: RunStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "main", int)  # int(connection, setup) ends the process with an exception
    with pytest.raises(LauncherError, match=r"expected worker processes to start, got none: .* exit code 1"):
        run_campaign(Campaign([spec_of()], store), LocalProcesses(1), recorder)
    assert store.record(spec_of().run_id).state is State.PENDING


def test_a_crew_needs_somebody() -> None:
    with pytest.raises(UsageError, match="got 0"):
        LocalProcesses(0)
