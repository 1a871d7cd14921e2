"""The launcher for a Ray cluster: every attempt at a run is a task of Ray.

Ray chooses the node, keeps worker processes for the next task, and brings datasets to every node once. Whatever else
a campaign needs is where it is for all launchers: locks and checkpoints in the store, events for the display. A run
whose worker or node is lost is started again from its last checkpoint, as often as it gets on between two losses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import LauncherError, UsageError
from headway.runs import ray_cluster
from headway.runs.attempt import Trouble
from headway.runs.experiments import load_datasets, registered_experiments
from headway.runs.launchers import (
    STALL_SECONDS,
    STOP_SECONDS,
    Attempt,
    Job,
    Launcher,
    LaunchOptions,
    Queue,
    StallTimer,
    StopRequest,
    Work,
)
from headway.runs.progress import Advanced, Notify, Started, Stopping
from headway.runs.ray_cluster import Cluster, HeadMonitor, Resources, connected, import_ray
from headway.runs.ray_worker import EventQueue, RaySetup, carry_out, versions
from headway.runs.text import last_line

__all__ = ["RayLauncher", "Resources", "make_ray"]

MOST_LOSSES = 9
"""How many times in a row a run that lost its worker, without having come any further, is started again.

A new worker is at work for seconds (torch imports more when it is first used) before its run has come any further. A
cluster that loses workers every few seconds may take several from one run in that time.
"""
MOST_FAILED_STARTS = 10
"""How many workers in a row may be lost before they say a word."""
LEAST_WAITING = 32
"""Runs that wait in the cluster beyond those that have room, so that a cluster that can grow sees a reason to."""
WAIT = 0.2
"""Seconds between two looks at what has happened."""


class RayLauncher:
    """Carries out runs as tasks of a Ray cluster.

    Args:
        resources: what a run takes up.
        address: of the cluster, as in `ray.init`; None for the one at hand, or one that is started on this machine.
        workers: how many runs go on at once, at most; None for as many as have room.
        patience: seconds after which a head that does not answer counts as lost; None for what Ray allows.
        stall_seconds: after so many without progress, a run is said to stand still.
    """

    def __init__(
        self,
        resources: Resources | None = None,
        address: str | None = None,
        workers: int | None = None,
        patience: float | None = None,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"expected at least 1 worker, got {workers}; leave --workers out for as many as have room")
        self.resources = resources or Resources()
        self.address = address
        self.workers = workers
        self.patience = ray_cluster.PATIENCE if patience is None else patience
        self.stall_seconds = stall_seconds

    def launch(self, job: Job, notify: Notify, stop: StopRequest) -> None:
        """Attempt all runs; see `Launcher`."""
        with connected(self.address, self.workers) as found:
            found.check_room(self.resources)
            _Tasks(job, notify, stop, found, self).carry_out()


def make_ray(options: LaunchOptions) -> Launcher:
    """The launcher that a command asks for."""
    import_ray()
    return RayLauncher(Resources.of(options), options.address, options.workers, stall_seconds=options.stall_seconds)


class _Tasks(Work):
    """The tasks of one launch, and what is still to be done."""

    def __init__(self, job: Job, notify: Notify, stop: StopRequest, cluster: Cluster, launcher: RayLauncher) -> None:
        super().__init__(job, notify, stop, Queue(job.specs, job.retry, most_losses=MOST_LOSSES))
        self._ray = cluster.ray
        self._cluster = cluster
        self._launcher = launcher
        self._attempts: dict[int, Attempt] = {}
        self._references: dict[Any, int] = {}
        self._count = 0
        self._failed_starts = 0
        self._monitor = HeadMonitor(cluster, launcher.patience)
        self._event_queue = self._make_event_queue()
        self._setup = self._ray.put(self._make_setup())
        resources = launcher.resources
        options = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "max_retries": 0}
        self._remote = self._ray.remote(**options)(carry_out)

    def attempts(self) -> list[Attempt]:
        """The tasks that Ray knows of."""
        return list(self._attempts.values())

    def listen(self) -> None:
        """Wait a moment, and take in what has happened."""
        ready: list[Any] = []
        if references := list(self._references):
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=WAIT)
        else:
            self.stop.wait(min(WAIT, self.queue.delay() or 0.0))
        self._hear()
        for reference in ready:
            self._conclude(self._attempts.pop(self._references.pop(reference)), reference)
        if problem := self._monitor.problem():
            raise LauncherError(
                f"{problem}; runs that were done are kept, and the same command resumes the others once the "
                f"cluster is back, or with --launcher local"
            )

    def close(self) -> None:
        """Leave nothing behind in the cluster; runs under way end at once."""
        super().close()
        self._monitor.stop()
        for reference in self._references:
            self._ray.cancel(reference, force=True)
        self._ray.kill(self._event_queue)

    def _make_event_queue(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        near = NodeAffinitySchedulingStrategy(node_id=self._cluster.here(), soft=True)
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 3, "scheduling_strategy": near}
        return self._ray.remote(EventQueue).options(**options).remote()

    def _make_setup(self) -> RaySetup:
        context = self.job.context
        loaded = load_datasets(self.job.specs, context.data_dir)
        datasets = {name: self._ray.put(dataset) for name, dataset in loaded.items()}
        return RaySetup(self.job.store, context, registered_experiments(), datasets, versions())

    def _window(self) -> int:
        """How many tasks Ray should know of."""
        if self._launcher.workers is not None:
            return self._launcher.workers
        room = self._monitor.room(self._launcher.resources)
        return room + max(room, LEAST_WAITING)

    def start_runs(self) -> None:
        """Make tasks of runs."""
        while len(self._references) < self._window() and (task := self.take()):
            run_id = task.spec.run_id
            if self.queue.waits_for(run_id) and not self.job.store.free(run_id):
                self.queue.postpone(task)
                continue
            self._count += 1
            reference = self._remote.remote(task, self._count, self._setup, self._event_queue)
            self._references[reference] = self._count
            self._attempts[self._count] = Attempt(task, StallTimer(math.inf))

    def begin_to_stop(self) -> None:
        """Cancel what has not started, and only then let the others know: a core that they leave would start it."""
        self.queue.clear()
        self.notify(Stopping())
        self._hear()
        for reference, number in self._references.items():
            if not self._attempts[number].has_started:
                self._ray.cancel(reference)
        self.is_stopping = True
        self.deadline = time.monotonic() + STOP_SECONDS

    def _hear(self) -> None:
        """Pass on what the workers have put into the event queue."""
        try:
            patience = min(self._launcher.patience, max(0.0, self.deadline - time.monotonic()))
            notes = self._ray.get(self._event_queue.take.remote(self.is_stopping), timeout=patience)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
            return  # it comes back, or the monitor notices what is wrong
        for note in notes:
            attempt = self._attempts.get(note.attempt)
            if attempt is None:
                continue  # it counts as lost; its run has another attempt by now
            event = note.event
            attempt.stall_timer.restart()
            if isinstance(event, Started):
                attempt.host, attempt.has_started, self._failed_starts = note.host, True, 0
                attempt.stall_timer = StallTimer(self._launcher.stall_seconds)
                event = replace(event, host=note.host)
            elif isinstance(event, Advanced):
                attempt.reached = event.step
            self.notify(event)

    def _conclude(self, attempt: Attempt, reference: Any) -> None:
        """Take in how an attempt ended."""
        errors = self._ray.exceptions
        try:
            message = self._ray.get(reference)
        except errors.TaskCancelledError:
            self.report_interrupted(attempt)
        except errors.RayTaskError as error:
            why = last_line(str(error)) or type(error).__name__  # of the traceback that the task has left
            self.give_up_all(f"expected a node that can carry out runs, got {why}")
            self.report_interrupted(attempt)
        except (errors.RuntimeEnvSetupError, errors.TaskUnschedulableError) as error:
            self.give_up_all(str(error))
        except errors.RayError as error:
            if not attempt.has_started and not isinstance(error, (errors.NodeDiedError, errors.LocalRayletDiedError)):
                self._failed_starts += 1  # a lost node says nothing about whether workers start elsewhere
            self._restart(attempt, self._cause_of_end(error, attempt))
        else:
            if isinstance(message, Trouble):
                self.give_up_all(message.message)
                self.report_interrupted(attempt)
            else:
                self.conclude(attempt.task, message, attempt.reached)

    def _restart(self, attempt: Attempt, why: str) -> None:
        """Start a run again, or give it up, whose worker or node is gone."""
        if self.is_stopping:
            self.report_interrupted(attempt)
            return
        if self._failed_starts >= MOST_FAILED_STARTS:
            self.give_up_all(f"expected Ray workers to start, got {self._failed_starts} that did not: {why}")
            return
        self.start_again(attempt.task, why, attempt.reached)

    def _cause_of_end(self, error: Exception, attempt: Attempt) -> str:
        errors = self._ray.exceptions
        where = f" on {attempt.host}" if attempt.host else ""
        words: Mapping[type, str] = {
            errors.OutOfMemoryError: f"Ray has ended its worker{where} because the memory was used up",
            errors.NodeDiedError: f"its node{where or ' of the cluster'} was lost",
            errors.LocalRayletDiedError: f"its node{where or ' of the cluster'} was lost",
            errors.WorkerCrashedError: f"its worker process{where} was killed or has crashed",
        }
        known = next((text for kind, text in words.items() if isinstance(error, kind)), None)
        return known or f"its worker{where} was lost ({type(error).__name__})"
