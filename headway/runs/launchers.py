"""Launchers: who carries out the runs of a campaign, and how it is asked to stop: once in good order, twice at once.

The launcher for this process is here; `processes` and `ray` have the others.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from types import FrameType
from typing import Protocol

from headway.errors import LauncherError, UsageError, check_known
from headway.runs.attempt import Task, attempt, give_up
from headway.runs.experiments import Context
from headway.runs.progress import Ended, Lost, Notify, Outcome, Stalled, Stopping
from headway.runs.spec import RunSpec
from headway.runs.store import RunStore

ASK_AGAIN = 1.0
"""Seconds after which a run that another process held is asked for again."""
MOST_LOSSES = 1
"""How many times a run that lost its worker is started again before it counts as failed."""
STOP_SECONDS = 6.0
"""Seconds that runs under way have to stop in good order; then their workers are killed."""
STALL_SECONDS = 600.0
"""Seconds without progress after which a campaign reports a run as stalled, by default."""


class StopRequest:
    """A request that a campaign stop after the current batches.

    Its `reader` becomes readable when it is made, to be waited for together with other connections.
    """

    def __init__(self) -> None:
        self.asked = False
        self.reader, self._writer = Pipe(duplex=False)

    def ask(self) -> None:
        """Ask to stop; asking again changes nothing."""
        if not self.asked:
            self.asked = True
            self._writer.send_bytes(b"stop")

    def wait(self, seconds: float) -> bool:
        """Wait until somebody asks to stop, but not longer than so many seconds; say whether somebody did."""
        return self.asked or self.reader.poll(seconds)


class StallTimer:
    """Measures for how long a run has made no progress."""

    def __init__(self, patience: float = STALL_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Take note of progress."""
        self._since = self._clock()
        self._due = self._since + self._patience

    def left(self) -> float:
        """Seconds until it is to be reported."""
        return max(0.0, self._due - self._clock())

    def seconds_to_report(self) -> float | None:
        """The seconds without progress, if they are to be reported now."""
        now = self._clock()
        if now < self._due:
            return None
        self._due = now + self._patience
        return now - self._since


@contextlib.contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask to stop, and a Ctrl-C after that raise KeyboardInterrupt.

    SIGTERM never stops at once: whoever sends it to a group of processes may well send it twice.
    Signals stay as they are outside of the main thread, which alone may handle them.
    """

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.ask()

    with restored_signal_handlers() as may_set:
        if may_set:
            signal.signal(signal.SIGINT, on_interrupt)
            signal.signal(signal.SIGTERM, lambda _number, _frame: stop.ask())
        yield


@contextlib.contextmanager
def restored_signal_handlers() -> Iterator[bool]:
    """Put the handlers of Ctrl-C and SIGTERM back at the end; False in a thread that may not set any."""
    if threading.current_thread() is not threading.main_thread():
        yield False
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield True
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


LAUNCHERS = {"local": "headway.runs.processes:make_local", "ray": "headway.runs.ray:make_ray"}
"""The functions that make launchers from LaunchOptions, by name; their modules are imported when they are used."""


class Queue:
    """The runs of a campaign that are not over and not under way, in the order in which they are to be started.

    A run that another process holds is asked for again from time to time: that process may die, and then the
    run is taken over from its checkpoint. By then its failure counts, so it is not retried again.

    A run that lost its worker `most_losses` times in a row, without having come any further, is not started again.
    """

    def __init__(self, specs: Iterable[RunSpec], retry: Collection[str] = (), most_losses: int = MOST_LOSSES) -> None:
        self.most_losses = most_losses
        self._ready = deque(Task(spec, spec.run_id in retry) for spec in specs)
        self._held: deque[tuple[float, Task]] = deque()
        self._waiting_for: set[str] = set()
        self._losses: dict[str, int] = {}
        self._reached: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._held)

    def take(self) -> Task | None:
        """The next run to attempt; None when there is none, or none yet."""
        if self._ready:
            return self._ready.popleft()
        if self._held and self._held[0][0] <= time.monotonic():
            return self._held.popleft()[1]
        return None

    def delay(self) -> float | None:
        """Seconds until `take` has a run; None when that is not a matter of time."""
        if self._ready or not self._held:
            return None
        return max(0.0, self._held[0][0] - time.monotonic())

    def postpone(self, task: Task) -> bool:
        """Ask again later for a run that another process holds; True the first time."""
        run_id = task.spec.run_id
        is_news = run_id not in self._waiting_for
        self._waiting_for.add(run_id)
        self._held.append((time.monotonic() + ASK_AGAIN, replace(task, retry_failed=False)))
        return is_news

    def waits_for(self, run_id: str) -> bool:
        """Whether another process held a run when it was last asked for."""
        return run_id in self._waiting_for

    def put_back(self, task: Task, reached: int = 0) -> bool:
        """Start a run that lost its worker again; False when it has lost too many.

        It is the next, unless it has lost several without getting on. Then the others come first: what kills workers
        all around, such as a node short of memory, would otherwise hit the same run until it is given up.
        """
        run_id = task.spec.run_id
        if reached > self._reached.get(run_id, 0):
            self._losses[run_id] = 0
            self._reached[run_id] = reached
        self._losses[run_id] = self._losses.get(run_id, 0) + 1
        if self._losses[run_id] > self.most_losses:
            return False
        if self._losses[run_id] > 1:
            self._ready.append(task)
        else:
            self.push(task)
        return True

    def push(self, task: Task) -> None:
        """Let a run be the next."""
        self._ready.appendleft(task)

    def clear(self) -> None:
        """Drop everything: the campaign stops."""
        self._ready.clear()
        self._held.clear()


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class LaunchOptions:
    """How runs are to be carried out; None leaves a choice to the launcher.

    Attributes:
        workers: how many runs go on at once, at most; 0 runs in the calling process.
        device: where the tensors live.
        address: of the cluster.
        cpus_per_run: cores that a run gets.
        gpus_per_run: GPUs that a run gets; a part of one, such as 0.25, lets several runs share it.
        runs_per_gpu: how many runs share a GPU.
        stall_seconds: after so many without progress, a campaign says that a run stands still.
        count_gpus: counts the GPUs of this machine.
    """

    workers: int | None = None
    device: str = "cpu"
    address: str | None = None
    cpus_per_run: float | None = None
    gpus_per_run: float | None = None
    runs_per_gpu: int | None = None
    stall_seconds: float = STALL_SECONDS
    count_gpus: Callable[[], int] = lambda: 0


@dataclass(frozen=True)
class Job:
    """What a launcher is to carry out."""

    store: RunStore
    """Where the runs are kept and locked, so that any number of launchers share the work."""
    specs: tuple[RunSpec, ...]
    context: Context
    retry: frozenset[str] = frozenset()
    """The ids of failed runs that are to be run again."""


class Launcher(Protocol):
    """Carries out the runs of a job, in whatever place."""

    def launch(self, job: Job, notify: Notify, stop: StopRequest) -> None:
        """Attempt all runs; return when each is over, or when those under way have stopped on request.

        A run that fails is reported, and the others go on. KeyboardInterrupt ends everything at once.
        """
        ...


def make_named_launcher(name: str, options: LaunchOptions) -> Launcher:
    """Make a launcher."""
    check_known("a launcher", [name], LAUNCHERS, UsageError)
    module, _, function = LAUNCHERS[name].partition(":")
    launcher: Launcher = getattr(importlib.import_module(module), function)(options)
    return launcher


@dataclass
class Attempt:
    """A run under way, as its launcher sees it."""

    task: Task
    stall_timer: StallTimer
    pid: int = 0
    host: str = ""
    has_started: bool = False
    reached: int = 0
    """How far it has come, if that is known."""


class Work:
    """The runs of a launch, and what every launcher does with them; a launcher with workers derives from it."""

    def __init__(self, job: Job, notify: Notify, stop: StopRequest, queue: Queue) -> None:
        self.job = job
        self.notify = notify
        self.stop = stop
        self.queue = queue
        self.trouble = ""  # what is wrong that concerns every run
        self.is_stopping = False  # whether the runs under way were asked to stop
        self.deadline = math.inf  # when those are ended that have not stopped

    def attempts(self) -> list[Attempt]:
        """The runs under way."""
        raise NotImplementedError

    def start_runs(self) -> None:
        """Start as many runs as have room."""
        raise NotImplementedError

    def listen(self) -> None:
        """Wait a while for what workers say, and take it in."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave nothing behind; runs under way end at once."""
        if self.is_stopping:
            for attempt in self.attempts():
                self.report_interrupted(attempt)

    def carry_out(self) -> None:
        """Start runs until none is left and none is under way, and raise what is wrong that concerns every run."""
        try:
            while True:
                if self.stop.asked and not self.is_stopping:
                    self.begin_to_stop()
                self.start_runs()
                if not (self.queue or self.attempts()) or time.monotonic() >= self.deadline:
                    break
                self.listen()
                for attempt in self.attempts():
                    if (seconds := attempt.stall_timer.seconds_to_report()) is not None:
                        self.notify(Stalled(attempt.task.spec.run_id, seconds, attempt.pid))
        finally:
            self.close()
        if self.trouble:
            raise LauncherError(self.trouble)

    def report_interrupted(self, attempt: Attempt) -> None:
        """Report that a run under way has stopped; one that has not started is not worth a word."""
        if attempt.has_started:
            self.notify(Ended(attempt.task.spec.run_id, Outcome.INTERRUPTED))

    def take(self) -> Task | None:
        """The next run to attempt, as `Queue.take` gives it; those before it that are to be given up are."""
        while (task := self.queue.take()) and task.failure:
            self.conclude(task, give_up(self.job.store, task.spec, task.failure))
        return task

    def conclude(self, task: Task, ended: Ended, reached: int = 0) -> None:
        """Take in how an attempt ended: report it, or let the run be attempted again.

        A run that another process holds goes back into the queue, and is reported once. One that stopped although
        nobody asked it to is started again; `reached` says how far it had come, if that is known.
        """
        if ended.outcome is Outcome.INTERRUPTED and not (self.is_stopping or self.stop.asked):
            self.start_again(task, "the run stopped without a request", reached)
        elif self.is_stopping or ended.outcome is not Outcome.HELD or self.queue.postpone(task):
            self.notify(ended)

    def start_again(self, task: Task, why: str, reached: int = 0) -> None:
        """Put a run that lost its worker back into the queue; or, if that has happened too often, record a failure.

        A worker of another machine holds its run beyond its death, until its lease is over. The queue remembers until
        then that the run is to be given up.
        """
        if self.queue.put_back(task, reached):
            self.notify(Lost(task.spec.run_id, why))
            return
        most = self.queue.most_losses
        times = "for the second time" if most == 1 else f"{most + 1} times without progress"
        failed = replace(task, failure=f"{why}, {times}")
        self.conclude(failed, give_up(self.job.store, task.spec, failed.failure))

    def begin_to_stop(self) -> None:
        """Start no more runs, and ask those under way to stop."""
        self.is_stopping = True
        self.deadline = time.monotonic() + STOP_SECONDS
        self.queue.clear()
        self.notify(Stopping())

    def give_up_all(self, why: str) -> None:
        """Stop in good order because of something that concerns every run."""
        self.trouble = self.trouble or why
        if not self.is_stopping:
            self.begin_to_stop()


class InProcess:
    """Carries out one run after another in this process."""

    def launch(self, job: Job, notify: Notify, stop: StopRequest) -> None:
        """Attempt all runs; see `Launcher`."""
        work = Work(job, notify, stop, Queue(job.specs, job.retry))
        context = replace(job.context, should_stop=lambda: stop.asked)
        while work.queue and not stop.asked:
            if task := work.take():
                work.conclude(task, attempt(job.store, task.spec, context, notify, task.retry_failed))
            else:
                stop.wait(work.queue.delay() or 0.0)
