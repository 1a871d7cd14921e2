"""A campaign that is stopped, politely or not, and one that shares its store."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from headway.runs import RunStore, State
from tests.faults.campaigns import Output, check_aftermath, check_done, start
from tests.runs.dummy import spec_of

pytestmark = [
    pytest.mark.usefixtures("dummies"),
    pytest.mark.skipif(os.name == "nt", reason="there are no process groups to send signals to"),
]

SPECS = [*(spec_of(seed=seed) for seed in range(3)), *(spec_of("wait", seed, 9) for seed in range(4))]


def begin(store: RunStore, workers: int, *options: object) -> Output:
    """A campaign whose first runs are done, and whose others wait."""
    output = Output(start("--method", "good", "--seeds", "0:3", "--out", store.root, "--workers", workers))
    output.read_until("done", 3)
    assert output.end()[0] == 0
    waiting = ["--method", "wait", "--seeds", "0:4", "--steps", 9, "--out", store.root, "--workers", workers]
    again = Output(start(*waiting, *options))
    again.text = output.text
    again.read_until("started", max(1, workers))
    return again


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_asked_to_stop(store: RunStore, number: signal.Signals, workers: int) -> None:
    output = begin(store, workers)
    os.killpg(output.process.pid, number)
    code, errors = output.end()
    assert code == 130
    assert errors == "headway: interrupted, 4 runs left; the same command resumes\n"
    states = [store.record(spec.run_id).state for spec in SPECS[3:]]
    assert states.count(State.INTERRUPTED) == max(1, workers)
    check_aftermath(store, SPECS, output)


def test_ctrl_c_twice(store: RunStore) -> None:
    output = Output(start("--method", "stubborn", "--seeds", "0:2", "--out", store.root, "--workers", 2))
    output.read_until("started", 2)
    os.killpg(output.process.pid, signal.SIGINT)
    output.read_until("stopping after the batches under way; Ctrl-C again stops at once")
    os.killpg(output.process.pid, signal.SIGINT)
    code, errors = output.end()
    assert code == 130
    assert errors == "headway: stopped at once; the same command resumes from the last checkpoints\n"
    check_aftermath(store, [spec_of("stubborn", seed) for seed in range(2)], output)


def wait_for_interrupted(store: RunStore, number: int) -> None:
    """Until a listing tells that so many processes are gone; on a busy machine a killed one needs a moment to die."""
    deadline = time.monotonic() + 60
    while True:
        states = [store.record(spec.run_id).state for spec in SPECS[3:]]
        if states.count(State.INTERRUPTED) == number:
            return
        assert time.monotonic() < deadline, states
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_with_everything_that_belongs_to_it(store: RunStore, workers: int) -> None:
    output = begin(store, workers)
    os.killpg(output.process.pid, signal.SIGKILL)
    code, errors = output.end()
    assert code == -signal.SIGKILL
    assert errors == ""
    wait_for_interrupted(store, max(1, workers))
    check_aftermath(store, SPECS, output)


def test_a_killed_worker_is_replaced(store: RunStore) -> None:
    specs = [spec_of("die-first", seed) for seed in range(3)] + [spec_of("die"), spec_of()]
    output = Output(
        start("--method", "die-first", "--seeds", "0:3", "--out", store.root, "--workers", 2),
    )
    assert output.end()[0] == 0
    assert output.text.count("was killed by SIGKILL; was the memory used up?; starts again from its checkpoint") == 3
    again = Output(start("--method", "die", "good", "--out", store.root, "--workers", 2))
    again.text = output.text
    code, errors = again.end()
    assert code == 1
    assert "WorkerLostError: the worker process" in errors
    assert "SIGKILL; was the memory used up?, for the second time" in errors
    check_aftermath(store, specs, again, failed=[specs[3]])


def test_a_run_without_memory_fails_alone(store: RunStore) -> None:
    output = Output(start("--method", "hungry", "good", "--out", store.root, "--workers", 1))
    code, errors = output.end()
    assert code == 1
    assert f"{spec_of('hungry').run_id} none hungry seed 0: MemoryError" in errors
    check_aftermath(store, [spec_of("hungry"), spec_of()], output, failed=[spec_of("hungry")])


def test_three_campaigns_on_one_store_and_one_of_them_killed(store: RunStore, tmp_path: Path) -> None:
    waiting = Output(start("--method", "wait", "--steps", 9, "--seeds", "0:2", "--out", store.root, "--workers", 2))
    waiting.read_until("started", 2)
    shared = ["--method", "good", "wait", "--steps", 9, "--seeds", "0:2", "--out", store.root, "--workers", 1]
    others = [Output(start(*shared)) for _ in range(2)]
    for other in others:
        other.read_until("another process works on it; waiting")
    os.killpg(waiting.process.pid, signal.SIGKILL)
    waiting.end()
    for other in others:  # each takes one over
        other.read_until("started", 1)
    for other in others:
        os.killpg(other.process.pid, signal.SIGTERM)
    specs = [spec_of(method, seed, 9) for method in ("good", "wait") for seed in (0, 1)]
    for other in others:
        assert other.end()[0] == 130
        check_done(store, [spec for spec in specs if (spec.method, spec.seed) in other.reported_done()])
    check_aftermath(store, specs)
