"""Ray workers, nodes, the head and the campaign itself killed in mid-run."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.runs import RunStore, State
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.progress import Event, Lost, Started
from headway.runs.ray import RayLauncher
from tests.faults.campaigns import Output, check_aftermath, check_done, expected, start
from tests.runs.conftest import MEMORY, Recorder, patiently
from tests.runs.dummy import spec_of

pytestmark = [pytest.mark.usefixtures("dummies"), pytest.mark.slow]

ALERT = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
"""Settings of a head that notices soon when a node is gone."""


def kill_process(number: int) -> None:
    """Kill a process, unless it has just ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


def test_workers_killed_again_and_again(ray_cluster: Any, store: RunStore, recorder: Recorder) -> None:
    specs = [spec_of(seed=seed, steps=20) for seed in range(12)]
    started: list[Started] = []

    def kill(event: Event) -> None:
        if isinstance(event, Started):
            started.append(event)
            if len(started) % 4 == 0:
                kill_process(event.pid)

    recorder.react = kill
    progress = run_campaign(Campaign(specs, store), RayLauncher(), recorder)
    lost = [event for event in recorder.events if isinstance(event, Lost)]
    assert progress.failures() == []
    assert progress.is_complete()
    assert lost
    assert all("was killed or has crashed" in event.message for event in lost)
    check_done(store, specs)
    check_aftermath(store, specs)


def test_workers_killed_with_a_store_behind_a_url(ray_cluster: Any, recorder: Recorder, tmp_path: Path) -> None:
    remote = RunStore(f"file://{tmp_path}/bucket/runs")
    specs = [*(spec_of("die-first", seed, 5) for seed in range(3)), *(spec_of(seed=seed) for seed in range(3))]
    progress = run_campaign(Campaign(specs, remote), RayLauncher(), recorder)
    assert progress.failures() == []
    assert sum(isinstance(event, Lost) for event in recorder.events) == 3
    for spec in specs:
        assert remote.metrics(spec.run_id) == expected(spec)
        assert remote.problems(spec.run_id) == []
        status = remote.record(spec.run_id).status
        assert status is not None
        assert status.attempt == (2 if spec.method == "die-first" else 1)


@pytest.fixture
def machines() -> Iterator[Any]:
    """A cluster of which any part can be killed: a head without cores, and a node of one core."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False, "_system_config": ALERT}
        cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        try:
            patiently(
                lambda: cluster.add_node(num_cpus=1, object_store_memory=MEMORY),
                lambda: [cluster.remove_node(node) for node in list(cluster.worker_nodes)],
            )
            yield cluster
        finally:
            cluster.shutdown()


def begin(store: RunStore, address: str, *options: object) -> Output:
    return Output(start("--launcher", "ray", "--address", address, "--out", store.root, *options))


def pid_of(line: str) -> int:
    """The process in a line such as "none wait seed 0: started (process 7 on host)"."""
    return int(line.partition("(process ")[2].split()[0])


def test_a_node_is_lost_and_its_run_goes_on_elsewhere(machines: Any, store: RunStore) -> None:
    node = next(iter(machines.worker_nodes))
    output = begin(store, machines.address, "--method", "wait-first", "good", "--steps", 9)
    worker = pid_of(output.read_until("wait-first seed 0: started"))
    patiently(lambda: machines.add_node(num_cpus=1, object_store_memory=MEMORY))
    machines.remove_node(node, allow_graceful=False)
    kill_process(worker)  # with the power gone, it would not have lived on
    code, errors = output.end()
    assert code == 0, errors
    assert "wait-first seed 0: its node on" in output.text
    assert "was lost; starts again from its checkpoint" in output.text
    specs = [spec_of(method, 0, 9) for method in ("wait-first", "good")]
    check_done(store, specs)
    check_aftermath(store, specs, output)


def test_the_head_is_killed(machines: Any, store: RunStore) -> None:
    options = ["--method", "good", "wait", "--seeds", "0:2", "--steps", 9, "--workers", 1]  # in this order
    output = Output(
        start("--patience", 8, "--launcher", "ray", "--address", machines.address, "--out", store.root, *options)
    )
    output.read_until("wait seed 0: started")
    machines.head_node.kill_gcs_server(check_alive=False)
    code, errors = output.end()
    assert code == 1
    assert "the head of the Ray cluster" in errors
    assert "runs that were done are kept, and the same command resumes the others once the cluster is back" in errors
    assert output.reported_done() == {("good", 0), ("good", 1)}
    for seed in range(2):
        wait_until_free(store, spec_of("wait", seed, 9).run_id)  # its worker ends too, now or a minute later
    check_aftermath(store, [spec_of(method, seed, 9) for method in ("good", "wait") for seed in range(2)], output)


@pytest.fixture
def address(ray_cluster: Any) -> str:
    """Where other processes find the cluster of the session."""
    found: str = ray_cluster.get_runtime_context().gcs_address
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_asked_to_stop(address: str, store: RunStore, number: signal.Signals) -> None:
    output = begin(store, address, "--method", "good", "wait", "--seeds", "0:4", "--steps", 9)
    output.read_until("started", 6)  # the four that end, and one on each core
    os.killpg(output.process.pid, number)
    code, errors = output.end()
    assert code == 130
    assert errors == "headway: interrupted, 4 runs left; the same command resumes\n"
    specs = [spec_of(method, seed, 9) for method in ("good", "wait") for seed in range(4)]
    assert [store.record(spec.run_id).state for spec in specs].count(State.INTERRUPTED) == 2
    check_aftermath(store, specs, output)


def test_ctrl_c_twice(address: str, store: RunStore) -> None:
    output = begin(store, address, "--method", "stubborn", "--steps", 9)
    output.read_until("started")
    os.killpg(output.process.pid, signal.SIGINT)
    output.read_until("stopping after the batches under way; Ctrl-C again stops at once")
    os.killpg(output.process.pid, signal.SIGINT)
    code, errors = output.end()
    assert code == 130
    assert errors == "headway: stopped at once; the same command resumes from the last checkpoints\n"
    wait_until_free(store, spec_of("stubborn", 0, 9).run_id)
    check_aftermath(store, [spec_of("stubborn", 0, 9)], output)


def test_the_campaign_is_killed(address: str, store: RunStore) -> None:
    output = begin(store, address, "--method", "good", "wait", "--seeds", "0:2", "--steps", 9)
    output.read_until("wait seed 1: started")
    os.killpg(output.process.pid, signal.SIGKILL)
    assert output.end()[0] == -signal.SIGKILL
    specs = [spec_of(method, seed, 9) for method in ("good", "wait") for seed in range(2)]
    for spec in specs:
        wait_until_free(store, spec.run_id)  # Ray ends the workers of a campaign that is gone
    check_aftermath(store, specs, output)


def wait_until_free(store: RunStore, run_id: str) -> None:
    """Wait until the worker of a run is gone."""
    deadline = time.monotonic() + 90
    while store.record(run_id).state is State.RUNNING:
        assert time.monotonic() < deadline, "expected Ray to end the worker, got one that lives on"
        time.sleep(0.05)
