"""Campaigns in processes of their own: Ctrl-C, SIGTERM, SIGKILL, and two campaigns on one store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.runs import RunSpec, RunStore, State
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.launchers import InProcess
from tests.runs import dummy
from tests.runs.conftest import Recorder
from tests.runs.dummy import spec_of

pytestmark = [
    pytest.mark.usefixtures("dummies"),
    pytest.mark.skipif(os.name == "nt", reason="there are no process groups to send signals to"),
]

ROOT = Path(__file__).parents[2]


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start a campaign of the dummy experiment in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runs.dummy_cli", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_until(process: subprocess.Popen[str], text: str, times: int = 1) -> None:
    """Read lines until one with this text has come so many times."""
    assert process.stdout is not None
    seen = []
    while times:
        line = process.stdout.readline()
        seen.append(line)
        assert line, f"expected {text!r}, got the end: {seen} {process.communicate()}"
        times -= text in line


def check_that_it_resumes(store: RunStore, specs: list[RunSpec], recorder: Recorder) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dummy, "WAITS", False)
        assert run_campaign(Campaign(specs, store), InProcess(), recorder).is_complete()
    for spec in specs:
        assert store.record(spec.run_id).state is State.DONE
        assert store.metrics(spec.run_id)["step"] == [1, 2, 3]


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 2), (signal.SIGTERM, 2), (signal.SIGINT, 0)], ids=str)
def test_a_signal_to_the_group_stops_in_good_order(
    store: RunStore, recorder: Recorder, number: signal.Signals, workers: int
) -> None:
    process = start("--method", "wait", "--seeds", "0:3", "--out", store.root, "--workers", workers)
    read_until(process, "started", max(1, workers))
    os.killpg(process.pid, number)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors == "headway: interrupted, 3 runs left; the same command resumes\n"
    specs = [spec_of("wait", seed) for seed in range(3)]
    found = [store.record(spec.run_id).state for spec in specs]
    assert found.count(State.INTERRUPTED) == max(1, workers)
    assert found.count(State.PENDING) == 3 - max(1, workers)
    check_that_it_resumes(store, specs, recorder)


def test_ctrl_c_twice_stops_at_once(store: RunStore, recorder: Recorder) -> None:
    process = start("--method", "stubborn", "--out", store.root, "--workers", 1)
    read_until(process, "started")
    os.killpg(process.pid, signal.SIGINT)
    read_until(process, "stopping after the batches under way; Ctrl-C again stops at once")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors == "headway: stopped at once; the same command resumes from the last checkpoints\n"
    assert store.record(spec_of("stubborn").run_id).state is State.INTERRUPTED
    check_that_it_resumes(store, [spec_of("stubborn")], recorder)


def test_workers_stop_when_their_parent_is_killed(store: RunStore, recorder: Recorder) -> None:
    process = start("--method", "wait", "--out", store.root, "--workers", 1)
    read_until(process, "started")
    process.kill()
    _, errors = process.communicate()  # ends when the worker, which shares the pipes, has ended
    assert errors == ""
    record = store.record(spec_of("wait").run_id)
    assert record.status is not None
    assert record.status.state is State.INTERRUPTED  # it says so itself, in good order
    check_that_it_resumes(store, [spec_of("wait")], recorder)


@pytest.mark.slow
def test_two_campaigns_share_the_work_of_one_store(store: RunStore, tmp_path: Path) -> None:
    arguments = ["--method", "meet", "good", "--seeds", "0:2", "--folder", tmp_path, "--out", store.root]
    campaigns = [start(*arguments, "--workers", 1) for _ in range(2)]
    for campaign in campaigns:
        output, errors = campaign.communicate()
        assert campaign.returncode == 0, output + errors
        assert "4 runs in" in output
        assert "4 done" in output
    specs = [spec_of(method, seed, folder=tmp_path) for method in ("meet", "good") for seed in (0, 1)]
    assert sorted((tmp_path / "log").read_text().split()) == sorted(spec.run_id for spec in specs)


def test_failures_are_listed_with_the_way_to_see_them(store: RunStore) -> None:
    process = start("--method", "fail", "good", "--out", store.root, "--workers", 0)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.splitlines() == [
        "headway: 1 of 2 runs failed:",
        f"  {spec_of('fail').run_id} none fail seed 0: ValueError: two is too much",
        f"see why: headway status {store.root} --failed",
        "run them again: the same command with --retry-failed",
    ]
