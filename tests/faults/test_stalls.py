"""Workers that stand still, and campaigns that are asked to stop whatever their workers do."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from headway.runs import RunStore, State
from headway.runs.attempt import attempt
from headway.runs.experiments import Context
from headway.runs.launchers import StallTimer
from headway.runs.progress import Outcome
from tests.faults.campaigns import Output, check_aftermath, start
from tests.runs import dummy
from tests.runs.dummy import spec_of

pytestmark = [
    pytest.mark.usefixtures("dummies"),
    pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here"),
]


def begin(store: RunStore, method: str, *options: object, workers: int = 1) -> tuple[Output, list[int]]:
    """A campaign whose workers have begun, and their processes."""
    seeds = f"0:{workers}"
    output = Output(start("--method", method, "--seeds", seeds, "--out", store.root, "--workers", workers, *options))
    pids = []
    for _ in range(workers):
        found = re.search(r"started \(process (\d+)\)", output.read_until("started"))
        assert found is not None
        pids.append(int(found[1]))
    return output, pids


def test_a_worker_that_was_stopped_is_named_and_goes_on(store: RunStore, tmp_path: Path) -> None:
    output, (pid,) = begin(store, "wait", "--stall-seconds", 0.5)
    os.kill(pid, signal.SIGSTOP)
    line = output.read_until("no progress for")
    hint = "is it suspended, or its disk or network unavailable?"
    assert line == f"none wait seed 0: no progress for 1 s (process {pid}); {hint}\n"
    output.read_until("no progress for 2 s")  # it is said again
    os.kill(pid, signal.SIGCONT)
    os.kill(output.process.pid, signal.SIGTERM)
    code, errors = output.end()
    assert code == 130
    assert errors == "headway: interrupted, 1 run left; the same command resumes\n"
    assert store.record(spec_of("wait").run_id).state is State.INTERRUPTED
    check_aftermath(store, [spec_of("wait")], output)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["sigterm", "ctrl-c"])
def test_a_campaign_ends_although_its_workers_do_not(store: RunStore, number: signal.Signals) -> None:
    output, pids = begin(store, "stubborn", workers=2)
    os.kill(pids[0], signal.SIGSTOP)  # the other one does not listen
    os.kill(output.process.pid, number)
    code, errors = output.end()
    assert code == 130
    assert errors == "headway: interrupted, 2 runs left; the same command resumes\n"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    check_aftermath(store, [spec_of("stubborn", seed) for seed in range(2)], output)


def test_a_worker_that_has_nothing_to_do_and_stands_still_holds_nobody_up(store: RunStore) -> None:
    output, (first, second) = begin(store, "wait", workers=2)
    os.kill(first, signal.SIGSTOP)
    os.kill(second, signal.SIGKILL)
    output.read_until("starts again from its checkpoint")
    os.kill(output.process.pid, signal.SIGTERM)
    assert output.end()[0] == 130
    check_aftermath(store, [spec_of("wait", seed) for seed in range(2)], output)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_asked_to_stop_before_the_first_run_has_begun_workers_lock_nothing(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv(dummy.SLOW_FOLDER, str(tmp_path))
    output = Output(start("--seeds", "0:2", "--out", store.root, "--workers", 2))
    while len(list(tmp_path.glob("importing-*"))) < 2:
        assert output.process.poll() is None
    os.killpg(output.process.pid, number)
    output.read_until("stopping after the batches under way")
    (tmp_path / "go").touch()
    code, errors = output.end()
    assert code == 130, errors
    assert "started" not in output.text
    specs = [spec_of(seed=seed) for seed in range(2)]
    for spec in specs:
        assert [path.name for path in (store.root / spec.run_id).iterdir()] == ["spec.json"]
    check_aftermath(store, specs, output)


def test_an_attempt_looks_whether_to_stop_before_it_locks(store: RunStore) -> None:
    ended = attempt(store, spec_of(), Context(should_stop=lambda: True), pytest.fail)
    assert ended.outcome is Outcome.INTERRUPTED
    assert not store.exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_whose_folder_was_deleted_ends_alone(store: RunStore, tmp_path: Path, workers: int) -> None:
    deleted, good = spec_of("meet", folder=tmp_path), spec_of(folder=tmp_path)
    options = ["--method", "meet", "good", "--seeds", "0", "--folder", tmp_path, "--out", store.root]
    output = Output(start(*options, "--workers", workers))
    while not (tmp_path / "here-0").exists():  # it waits for the other one now
        assert output.process.poll() is None
    shutil.rmtree(store.root / deleted.run_id)
    (tmp_path / "here-1").touch()  # what the run waits for
    code, errors = output.end()
    assert code == 1
    assert "got none at" in errors
    assert "somebody has deleted it; the same command starts the run again" in errors
    assert store.record(good.run_id).state is State.DONE
    check_aftermath(store, [deleted, good])


def test_silence_is_worth_saying_again_and_again() -> None:
    now = [0.0]
    stall_timer = StallTimer(10.0, lambda: now[0])
    assert stall_timer.left() == 10.0
    now[0] = 9.0
    assert stall_timer.seconds_to_report() is None
    now[0] = 12.0
    assert stall_timer.seconds_to_report() == 12.0
    assert stall_timer.seconds_to_report() is None
    now[0] = 22.0
    assert stall_timer.seconds_to_report() == 22.0
    stall_timer.restart()
    assert stall_timer.left() == 10.0
