"""The launcher for local processes: workers that are reused from run to run and replaced when they die.

A run that loses its worker (killed, out of memory) is started once more from its checkpoint, because the next
attempt may find more memory. If it loses that worker too, it is recorded as failed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from headway.errors import UsageError
from headway.runs.attempt import Message, Ready, Setup, Task, Trouble, main
from headway.runs.experiments import registered_experiments
from headway.runs.launchers import (
    STALL_SECONDS,
    Attempt,
    InProcess,
    Job,
    Launcher,
    LaunchOptions,
    Queue,
    StallTimer,
    StopRequest,
    Work,
    cores,
)
from headway.runs.progress import Ended, Notify, Outcome

END_SECONDS = 1.0
"""Seconds that workers have to end by themselves when there is nothing more to do, before they are killed ..."""
DYING_SECONDS = 5.0
"""... and that one has that has closed its connection."""
MOST_FAILED_STARTS = 2
"""How many workers in a row may die before they say a word."""


class LocalProcesses:
    """Carries out runs in processes of this machine, one torch thread each.

    Args:
        workers: how many; fewer are started if there are fewer runs.
        devices: the devices that the workers share evenly; none leaves them the one of the job.
        stall_seconds: after so many without progress, a run is said to stand still.
    """

    def __init__(self, workers: int, devices: Sequence[str] = (), stall_seconds: float = STALL_SECONDS) -> None:
        if workers < 1:
            raise UsageError(f"expected at least 1 worker, got {workers}")
        self.workers = workers
        self.devices = tuple(devices)
        self.stall_seconds = stall_seconds

    def launch(self, job: Job, notify: Notify, stop: StopRequest) -> None:
        """Attempt all runs; see `Launcher`."""
        _Pool(job, notify, stop, self).carry_out()


def make_local(options: LaunchOptions) -> Launcher:
    """The launcher for processes of this machine, one per core unless the options say otherwise; 0 is this one."""
    for option in ("address", "cpus_per_run", "gpus_per_run"):
        if getattr(options, option) is not None:
            words = option.replace("_", "-")
            raise UsageError(f"expected --{words} with a cluster's launcher, got the local one; add --launcher ray")
    devices = gpus_for(options.device, options.count_gpus) if options.runs_per_gpu is not None else ()
    room = len(devices) * (options.runs_per_gpu or 0)
    if options.workers == 0:
        return InProcess()
    if devices:
        return LocalProcesses(min(options.workers or room, room), devices, options.stall_seconds)
    return LocalProcesses(options.workers or cores(), stall_seconds=options.stall_seconds)


def gpus_for(device: str, count: Callable[[], int]) -> tuple[str, ...]:
    """The GPUs that a device's name stands for: "cuda" for all of this machine, "cuda:1" for one."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        raise UsageError("expected --runs-per-gpu with a GPU, got --device cpu; --device cuda uses all of them")
    if number:
        return (device,)
    found = count()
    if not found:
        raise UsageError(f"expected a GPU for --device {device}, got none on this machine")
    return tuple(f"{kind}:{index}" for index in range(found))


class _Worker:
    """A worker process as its parent sees it."""

    def __init__(self, setup: Setup, stall_seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=main, args=(theirs, setup), name="headway-worker")
        self.device = setup.context.device
        self.attempt: Attempt | None = None
        self.is_ready = False
        self.is_leaving = False
        self._stall_seconds = stall_seconds
        with _signals_wait():
            self.process.start()
        theirs.close()  # so that the worker's death closes the last copy

    @property
    def is_free(self) -> bool:
        return self.attempt is None and not self.is_leaving

    def send(self, task: Task | None) -> None:
        """Send a task, or None for a request to stop; a dead worker is noticed elsewhere."""
        if task:
            self.attempt = Attempt(task, StallTimer(self._stall_seconds), self.process.pid or 0)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(task)

    def receive(self) -> Message | None:
        """The next message; None when the worker is gone."""
        try:
            message: Message = self.connection.recv()
        except (EOFError, OSError):
            return None
        if self.attempt:
            self.attempt.stall_timer.restart()
        return message

    def cause_of_end(self) -> str:
        """Wait until the process has ended, and say how it did."""
        end([self.process], DYING_SECONDS)
        code = self.process.exitcode or 0
        if code >= 0:
            return f"the worker process {self.process.pid} ended with exit code {code} in the middle of the run"
        hint = "; was the memory used up?" if -code == signal.SIGKILL else ""
        return f"the worker process {self.process.pid} was killed by {signal.Signals(-code).name}{hint}"


class _Pool(Work):
    """The workers of one launch, and what they are to do."""

    def __init__(self, job: Job, notify: Notify, stop: StopRequest, launcher: LocalProcesses) -> None:
        super().__init__(job, notify, stop, Queue(job.specs, job.retry))
        self._size = launcher.workers
        self._stall_seconds = launcher.stall_seconds
        self._setup = Setup(job.store, job.context, registered_experiments())
        self._devices = launcher.devices or (job.context.device,)
        self._workers: dict[Connection, _Worker] = {}
        self._failed_starts = 0

    def attempts(self) -> list[Attempt]:
        """The runs under way."""
        return [worker.attempt for worker in self._workers.values() if worker.attempt]

    def listen(self) -> None:
        """Wait until a worker says something, somebody asks to stop or a run has been silent for long."""
        sources = [*self._workers] if self.is_stopping else [*self._workers, self.stop.reader]
        for source in wait(sources, self._patience()):
            worker = self._workers.get(source)  # type: ignore[call-overload]
            if worker:
                self._hear(worker)

    def close(self) -> None:
        """Let idle workers end, kill the busy ones, and wait for all that can be waited for."""
        for worker in self._workers.values():
            if worker.attempt:
                worker.process.kill()
        super().close()
        for worker in self._workers.values():
            worker.connection.close()
        end([worker.process for worker in self._workers.values()], END_SECONDS)

    def _patience(self) -> float | None:
        """Seconds until there is something to do although nobody says anything; None when there is not."""
        waits: list[float | None] = [attempt.stall_timer.left() for attempt in self.attempts()]
        waits.append(max(0.0, self.deadline - time.monotonic()) if self.is_stopping else None)
        waits.append(self.queue.delay() if self._can_start() else None)
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def _can_start(self) -> bool:
        return len(self._workers) < self._size or any(worker.is_free for worker in self._workers.values())

    def start_runs(self) -> None:
        """Give every free worker a run; start workers while there are runs for them."""
        while self._can_start() and (task := self.take()):
            free = next((worker for worker in self._workers.values() if worker.is_free), None)
            if free is None:
                used = [worker.device for worker in self._workers.values()]
                context = replace(self.job.context, device=min(self._devices, key=used.count))
                free = _Worker(replace(self._setup, context=context), self._stall_seconds)
                self._workers[free.connection] = free
            free.send(task)

    def begin_to_stop(self) -> None:
        """Ask the runs under way to stop, and kill workers whose run has not begun: nothing is lost with them."""
        super().begin_to_stop()
        for worker in self._workers.values():
            worker.is_leaving = True
            if worker.attempt and not worker.attempt.has_started:
                worker.process.kill()
            else:
                worker.send(None)

    def _hear(self, worker: _Worker) -> None:
        message, attempt = worker.receive(), worker.attempt
        if message is None:
            self._remove(worker)
        elif isinstance(message, Ready):
            worker.is_ready, self._failed_starts = True, 0
        elif isinstance(message, Trouble):
            self.give_up_all(message.message)
            worker.attempt = None
        else:
            assert attempt is not None
            if isinstance(message, Ended):
                worker.attempt = None
                worker.is_leaving |= message.outcome is Outcome.INTERRUPTED  # somebody may have sent it a signal
                self.conclude(attempt.task, message)
            else:
                attempt.has_started = True
                self.notify(message)

    def _remove(self, worker: _Worker) -> None:
        """Take a worker off the list that is gone; what it worked on is started again or given up."""
        del self._workers[worker.connection]
        worker.connection.close()
        why, attempt = worker.cause_of_end(), worker.attempt
        if attempt is None:
            return
        if self.is_stopping:
            self.report_interrupted(attempt)
        elif worker.is_ready:
            self.start_again(attempt.task, why)
        else:  # it was started for a task, and died before it said a word
            self._failed_starts += 1
            if self._failed_starts < MOST_FAILED_STARTS:
                self.queue.push(attempt.task)
            else:
                self.give_up_all(f"expected worker processes to start, got none: {why}; --workers 0 does without them")


def end(processes: Sequence[SpawnProcess], seconds: float) -> None:
    """Wait for processes to end by themselves, then kill them; what cannot be killed is left alone.

    A process that waits for a dead disk in the kernel cannot be killed. Nothing here waits for it, nor does the end of
    this process.
    """
    for prepare in (lambda process: None, SpawnProcess.kill):
        deadline = time.monotonic() + seconds
        for process in processes:
            prepare(process)
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        if process.is_alive():
            multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM, here and in a process that is started meanwhile, until it handles them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its own start would end the holding back too early
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
