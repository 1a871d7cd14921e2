"""What comes next: runs that others hold, runs that lost their workers, runs that are to be given up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headway.runs import RunStore, State
from headway.runs import launchers as module
from headway.runs.attempt import Task
from headway.runs.experiments import Context
from headway.runs.launchers import Job, Queue, StopRequest, Work
from headway.runs.locks import Owner
from headway.runs.progress import Ended, Event, Lost, Outcome
from tests.runs.dummy import spec_of

SPECS = [spec_of(seed=seed) for seed in range(6)]


def next_of(queue: Queue) -> Task:
    task = queue.take()
    assert task is not None
    return task


def test_a_run_that_lost_a_worker_is_next_and_after_several_the_others_are() -> None:
    queue = Queue(SPECS, most_losses=4)
    task = next_of(queue)
    assert queue.put_back(task)
    assert next_of(queue) == task
    assert queue.put_back(task, reached=7)  # it has come further
    assert next_of(queue) == task
    assert queue.put_back(task, reached=7)
    assert [next_of(queue).spec.seed for _ in SPECS] == [1, 2, 3, 4, 5, 0]


def test_workers_lost_all_around_do_not_make_one_run_fail() -> None:
    queue = Queue(SPECS, most_losses=4)
    for _ in range(4 * len(SPECS)):
        assert queue.put_back(next_of(queue))
    assert not queue.put_back(next_of(queue))  # now every run has lost four


def test_a_run_whose_worker_died_on_another_machine_is_given_up_once_it_is_free(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_AGAIN", 0.01)
    spec, reported = SPECS[0], list[Event]()
    queue = Queue([spec], most_losses=1)
    work = Work(Job(store, (spec,), Context()), reported.append, StopRequest(), queue)
    store.add(spec)
    for number in (1, 2):
        abroad = replace(Owner.this_process(lease=0.05), machine="abroad")
        (store.folder(spec.run_id) / f"claim.{number}").write_text(json.dumps(abroad.to_dict()))
        work.start_again(next_of(queue), "the node was lost")
    assert [type(event) for event in reported] == [Lost, Ended]
    assert reported[1] == Ended(spec.run_id, Outcome.HELD, here=False)
    while queue:
        assert work.take() is None  # never again to be attempted
    assert store.record(spec.run_id).state is State.FAILED
    last = reported[-1]
    assert isinstance(last, Ended)
    assert last.message == "WorkerLostError: the node was lost, for the second time"
