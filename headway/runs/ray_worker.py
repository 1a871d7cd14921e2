"""The worker's side: one attempt at one run as a task of Ray, and the event queue through which it reports.

Workers put into the event queue what happens, and read there whether to stop.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headway.errors import HeadwayError
from headway.runs.attempt import Setup, Task, Trouble, use_threads, work
from headway.runs.experiments import register_experiment
from headway.runs.progress import Advanced, Ended, Event
from headway.runs.provenance import version_of
from headway.runs.ray_cluster import import_ray

POST_INTERVAL = 0.5
"""Seconds between two calls of a worker to the event queue."""
QUEUE_SECONDS = 10.0
"""Seconds that a worker waits for the event queue."""
SEARCH_SECONDS = 5.0
"""How long a worker looks for a run in the store before it says that the store is not there: networks take time."""


@dataclass(frozen=True)
class Note:
    """An event, and the attempt that it belongs to: a worker that counts as lost may still write."""

    attempt: int
    event: Event
    host: str = ""


class EventQueue:
    """Runs as an actor. If it is lost, Ray makes a new one; what was on it is lost, which harms no run."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._stopping = False

    def post(self, notes: list[Note]) -> bool:
        """Put notes into the queue; tell whether the campaign stops."""
        self._notes += notes
        return self._stopping

    def take(self, stopping: bool) -> list[Note]:
        """Take all notes from the queue, and say whether the campaign stops."""
        self._stopping = stopping
        notes, self._notes = self._notes, []
        return notes


class Link:
    """A worker's connection to the event queue, looked after in a thread.

    Only that thread asks Ray for anything: a task whose main thread waits for Ray gives its core to the next one.
    """

    def __init__(self, event_queue: Any, attempt: int, host: str, ray: Any) -> None:
        self.stopping = threading.Event()
        self._event_queue = event_queue
        self._attempt = attempt
        self._host = host
        self._ray = ray
        self._waiting: list[Note] = []
        self._receipts: list[threading.Event] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, name="headway-ray-link", daemon=True)
        self._thread.start()

    def notify(self, event: Event) -> None:
        """Put an event on the queue: progress before long, of which only the latest counts; anything else at once.

        At once means before this returns: a run that kills its worker in the next instant has started all the same.
        """
        can_wait, written = isinstance(event, Advanced), threading.Event()
        with self._lock:
            if can_wait and self._waiting and isinstance(self._waiting[-1].event, Advanced):
                self._waiting.pop()
            self._waiting.append(Note(self._attempt, event, self._host))
            if not can_wait:
                self._receipts.append(written)
        if not can_wait:
            self._wake.set()
            written.wait(QUEUE_SECONDS)

    def close(self) -> None:
        """Write what is left."""
        self._is_over = True
        self._wake.set()
        self._thread.join()

    def post(self) -> None:
        """Send what waits to the queue, and read whether to stop; a queue that is away for a moment is no trouble."""
        with self._lock:
            notes, self._waiting = self._waiting, []
            receipts, self._receipts = self._receipts, []
        with contextlib.suppress(self._ray.exceptions.RayError):
            if self._ray.get(self._event_queue.post.remote(notes), timeout=QUEUE_SECONDS):
                self.stopping.set()
        for written in receipts:
            written.set()

    def _keep_up(self) -> None:
        while not self._is_over:
            self.post()
            self._wake.wait(POST_INTERVAL)
            self._wake.clear()
        self.post()


@dataclass(frozen=True)
class RaySetup(Setup):
    """What a worker of Ray needs to know."""

    datasets: Mapping[str, Any]
    """References to the datasets that the runs need, by name; Ray brings each once to a node."""
    versions: Mapping[str, str]
    """Of the packages that decide the numbers, where the campaign was started."""


def carry_out(task: Task, attempt: int, setup: RaySetup, event_queue: Any) -> Ended | Trouble:
    """Attempt a run. Runs on a node of the cluster."""
    ray = import_ray()
    link = Link(event_queue, attempt, socket.gethostname(), ray)
    try:
        if trouble := _unfit(setup, task):
            return Trouble(trouble)
        use_threads(setup.context.threads)
        for name, module in setup.experiments.items():
            register_experiment(name, module)
        datasets = {name: ray.get(reference) for name, reference in setup.datasets.items()}
        context = replace(setup.context, should_stop=link.stopping.is_set, datasets=datasets)
        return work(task, setup.store, context, link.notify)
    finally:
        link.close()


def versions() -> dict[str, str]:
    """The versions of what decides the numbers of a run, without the build: torch has one for every kind of machine."""
    return {name: version_of(name).split("+")[0] for name in ("headway", "torch")}


def _unfit(setup: RaySetup, task: Task) -> str:
    """Why this node cannot carry out runs; empty when it can."""
    here = socket.gethostname()
    own = versions()
    for name, wanted in setup.versions.items():
        if own[name] != wanted:
            return (
                f"expected {name} {wanted} on every node, as where the campaign was started, got {own[name]} on "
                f"{here}; install the same version there"
            )
    # a worker without the shared file system would make a store of its own, and lose it
    deadline = time.monotonic() + SEARCH_SECONDS
    try:
        while not setup.store.has(task.spec.run_id):
            if time.monotonic() > deadline:
                return (
                    f"expected the run store {setup.store.place} on every node, got none on {here}; put it on a file "
                    f"system that all nodes share, or use a URL such as s3://bucket/runs"
                )
            time.sleep(0.2)
    except HeadwayError as error:
        return str(error)
    return ""
