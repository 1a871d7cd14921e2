"""The parts of the Ray launcher that need no cluster: options, connecting, the monitor, the event queue and remarks."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from headway.errors import LauncherError, MissingExtraError, UsageError
from headway.runs import ray_cluster as cluster
from headway.runs.launchers import LaunchOptions
from headway.runs.progress import Advanced, Event, Started
from headway.runs.ray import make_ray
from headway.runs.ray_cluster import Cluster, HeadMonitor, Remarks, Resources
from headway.runs.ray_worker import EventQueue, Link, Note


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LaunchOptions(), Resources(1, 0)),
        (LaunchOptions(cpus_per_run=0.5), Resources(0.5, 0)),
        (LaunchOptions(device="cuda"), Resources(1, 1)),
        (LaunchOptions(device="cuda", runs_per_gpu=4), Resources(1, 0.25)),
        (LaunchOptions(device="cuda", gpus_per_run=2, cpus_per_run=8), Resources(8, 2)),
    ],
)
def test_what_a_run_takes_up(options: LaunchOptions, expected: Resources) -> None:
    assert Resources.of(options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LaunchOptions(device="cuda:0"), "expected a device without a number, got cuda:0"),
        (LaunchOptions(runs_per_gpu=2), "expected --device cuda with GPUs for each run, got --device cpu"),
        (LaunchOptions(device="cuda", runs_per_gpu=2, gpus_per_run=1), "got both"),
        (
            LaunchOptions(device="cuda", gpus_per_run=1.5),
            r"expected a part of a GPU or whole GPUs for each run, got 1\.5",
        ),
    ],
)
def test_requests_that_contradict_themselves(options: LaunchOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Resources.of(options)


def test_room_on_a_node() -> None:
    node = {"CPU": 8.0, "GPU": 2.0}
    assert Resources(1).room_on(node) == 8
    assert Resources(3).room_on(node) == 2
    assert Resources(1, 0.25).room_on(node) == 8
    assert Resources(1, 0.1).room_on({"CPU": 64.0, "GPU": 3.0}) == 30  # not 29, by rounding
    assert Resources(1, 1).room_on({"CPU": 8.0}) == 0
    assert str(Resources(2, 0.5)) == "2 CPU and 0.5 GPU"


class FakeRay:
    """As much of Ray as connecting needs; `answers` are what `init` does, one after the other."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []
        self.shutdowns = 0

    def init(self, **options: Any) -> Any:
        self.calls.append(options)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def shutdown(self) -> None:
        self.shutdowns += 1

    def is_initialized(self) -> bool:
        return False


FOUND = SimpleNamespace(address_info={"gcs_address": "10.0.0.1:6379"})


def connect(monkeypatch: pytest.MonkeyPatch, ray: FakeRay, address: str | None = None) -> str:
    monkeypatch.setattr(cluster, "import_ray", lambda: ray)
    with cluster.connected(address, 3) as found:
        return found.address


def test_an_address_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(FOUND)
    assert connect(monkeypatch, ray, "head:6379") == "10.0.0.1:6379"
    assert ray.calls[0]["address"] == "head:6379"
    assert "num_cpus" not in ray.calls[0]
    assert ray.shutdowns == 1


def test_without_an_address_a_cluster_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(ValueError("When connecting to an existing cluster, num_cpus must not be provided."), FOUND)
    assert connect(monkeypatch, ray) == "10.0.0.1:6379"
    assert "num_cpus" not in ray.calls[1]


def test_without_any_cluster_one_is_started_with_a_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(Exception("The current node timed out during startup."), FOUND)
    assert connect(monkeypatch, ray) == "of this machine"
    assert [call["num_cpus"] for call in ray.calls] == [3, 3]
    broken = FakeRay(Exception("timed out\nmore"), Exception("timed out"))
    with pytest.raises(LauncherError, match="expected a Ray cluster on this machine, or to start one, got Exc"):
        connect(monkeypatch, broken)


def test_a_cluster_that_is_not_there_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(ConnectionError("no answer"))
    with pytest.raises(LauncherError, match="at head:1, got ConnectionError: no answer; `ray status` shows"):
        connect(monkeypatch, ray, "head:1")


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ray is not installed; run: pip install 'headway-torch\[ray\]'"):
        make_ray(LaunchOptions())


class FakeCluster(Cluster):
    def __init__(self) -> None:
        super().__init__("10.0.0.1:6379", None)
        self.alive = [{"NodeID": "here", "Alive": True, "Resources": {"CPU": 4.0}}]

    def nodes(self) -> Any:
        return self.alive

    def here(self) -> str:
        return "here"


def test_a_head_that_does_not_answer_is_noticed() -> None:
    now, fake = [0.0], FakeCluster()
    monitor = HeadMonitor(fake, 45.0, lambda: now[0])
    monitor.stop()
    assert monitor.problem() == ""
    assert monitor.room(Resources(2)) == 2
    now[0] = 45.0
    assert monitor.problem() == ""
    now[0] = 46.0
    assert monitor.problem() == "the head of the Ray cluster 10.0.0.1:6379 has not answered for 46 s"


def test_a_node_that_drops_out_is_noticed() -> None:
    fake = FakeCluster()
    fake.alive = [{"NodeID": "other", "Alive": True, "Resources": {}}]
    monitor = HeadMonitor(fake, 45.0, lambda: 0.0)
    monitor.stop()
    assert monitor.problem() == "the Ray node of this process has dropped out of the cluster 10.0.0.1:6379"


def test_what_ray_says_of_lost_workers_is_left_to_the_display() -> None:
    stream = io.StringIO()
    remarks = Remarks(stream)
    remarks.write("(raylet) Task EventQueue.take failed. There are 3 retries remaining. The actor is dead.\n")
    remarks.write("(raylet) A worker died or was killed while executing a task by an unexpected system error.")
    remarks.write("\n\n(autoscaler) no more")
    assert stream.getvalue() == ""
    remarks.write(" nodes\n")
    remarks.flush()
    assert stream.getvalue() == "(autoscaler) no more nodes\n"


def test_the_board_passes_notes_on_once() -> None:
    event_queue, note = EventQueue(), Note(1, Started("x", 7))
    assert event_queue.post([note]) is False
    assert event_queue.take(stopping=True) == [note]
    assert event_queue.take(stopping=True) == []
    assert event_queue.post([]) is True


class Handle:
    """The handle of an event queue in this process; `fails` as if it were away."""

    def __init__(self) -> None:
        self.event_queue, self.fails = EventQueue(), False
        self.post = SimpleNamespace(remote=lambda notes: lambda: self.event_queue.post(notes))


class RayError(Exception):
    pass


def test_a_link_tells_and_listens() -> None:
    handle = Handle()

    def get(call: Any, timeout: float) -> Any:
        if handle.fails:
            raise RayError("away")
        return call()

    ray = SimpleNamespace(get=get, exceptions=SimpleNamespace(RayError=RayError))
    handle.fails = True
    link = Link(handle, 3, "node7", ray)
    handle.fails = False
    events: list[Event] = [Started("x", 7), Advanced("x", 1, 9), Advanced("x", 2, 9)]
    for event in events:
        link.notify(event)
    handle.event_queue._stopping = True
    link.close()
    notes = handle.event_queue.take(stopping=True)
    assert [note.event for note in notes][-1] == events[-1]
    assert notes[0] == Note(3, events[0], "node7")
    assert link.stopping.is_set()
