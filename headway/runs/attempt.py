"""One attempt at one run: lock it, carry it out, and say how it ended; and the process that makes attempts.

Every launcher ends up here. `main` is what a worker process of `processes.LocalProcesses` does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TypeAlias

from headway.errors import DamagedError, ExperimentError, HeadwayError, LockLostError, StoreError, WorkerLostError
from headway.runs import Run, RunRecord, RunSpec, RunStore, State
from headway.runs.experiments import (
    Context,
    Stopped,
    find_experiment,
    load_plugins,
    register_experiment,
    use_common_instructions,
)
from headway.runs.progress import Advanced, Ended, Event, Notify, Outcome, Started
from headway.runs.text import last_line, shorten

REPORT_INTERVAL = 0.1
"""The least time between two reports of a run, in seconds."""


@dataclass(frozen=True)
class Task:
    """A run to attempt."""

    spec: RunSpec
    retry_failed: bool = False
    """Whether it is to be run also when it has failed before."""
    failure: str = ""
    """Why it is to be recorded as failed instead, once no process holds it."""


def attempt(store: RunStore, spec: RunSpec, context: Context, notify: Notify, retry_failed: bool = False) -> Ended:
    """Carry a run out, unless it is done or another process holds it.

    An exception in the run is recorded in the store, with its traceback, and reported as a failure.
    """
    use_common_instructions()
    load_plugins(context.plugins)
    experiment = find_experiment(spec.experiment)
    if context.should_stop():  # the imports above may have taken a while
        return Ended(spec.run_id, Outcome.INTERRUPTED)
    context = replace(context, report=Reporter(spec.run_id, notify))
    run = store.lock(spec, retry_failed=retry_failed)
    if run is None:
        held = Ended(spec.run_id, Outcome.HELD, here=False)
        return found_ended(store.record(spec.run_id), retry_failed) or held
    _notify_start(run, notify)
    try:
        with run:
            try:
                experiment.run(run, context)
            except Stopped:
                run.interrupt("stopped on request")
                return Ended(run.run_id, Outcome.INTERRUPTED)
            except StoreError as error:
                if concerns_every_run(error):
                    with contextlib.suppress(StoreError):  # without a status it counts as interrupted too
                        run.interrupt(str(error))
                raise
            state = store.record(run.run_id).state
            if state is State.RUNNING:
                raise ExperimentError(f"expected the experiment {spec.experiment} to finish() its run, got a return")
            return Ended(run.run_id, Outcome.DONE if state is State.DONE else Outcome.INTERRUPTED)
    except LockLostError:
        return Ended(spec.run_id, Outcome.HELD)
    except Exception as error:
        if concerns_every_run(error):
            raise
        return Ended(spec.run_id, Outcome.FAILED, _message(error))


def give_up(store: RunStore, spec: RunSpec, why: str) -> Ended:
    """Record a run as failed because the processes that worked on it are gone."""
    run = store.lock(spec)
    if run is None:
        return found_ended(store.record(spec.run_id), False) or Ended(spec.run_id, Outcome.HELD, here=False)
    error = WorkerLostError(why)
    run.fail(error)
    return Ended(spec.run_id, Outcome.FAILED, _message(error))


def concerns_every_run(error: BaseException) -> bool:
    """Tell whether the store itself is in trouble: a full disk, say, as against one damaged run."""
    is_local = isinstance(error, (DamagedError, LockLostError))
    return isinstance(error, StoreError) and isinstance(error.__cause__, OSError) and not is_local


class Reporter:
    """Reports how a run advances, but not more often than anybody can read; the first and the last step always."""

    def __init__(self, run_id: str, notify: Notify, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_id = run_id
        self._notify = notify
        self._clock = clock
        self._due = float("-inf")

    def __call__(self, step: int, total: int, losses: Mapping[str, float]) -> None:
        """Report if it is time to."""
        now = self._clock()
        if now >= self._due or step >= total:
            self._due = now + REPORT_INTERVAL
            self._notify(Advanced(self._run_id, step, total, dict(losses)))


def _notify_start(run: Run, notify: Notify) -> None:
    """Tell that a run starts; what goes wrong there, or interrupts it, gives the run back and is no failure of it."""
    try:
        notify(Started(run.run_id, os.getpid()))
    except BaseException as error:
        with contextlib.suppress(StoreError):
            run.interrupt(f"stopped by {type(error).__name__}")
        raise


def found_ended(record: RunRecord, retry_failed: bool) -> Ended | None:
    """How a run ended that needs no attempt; None for one that does."""
    if record.state is State.DONE:
        return Ended(record.run_id, Outcome.DONE, here=False)
    if record.state is State.FAILED and not retry_failed:
        error = record.status.error if record.status else ""
        return Ended(record.run_id, Outcome.FAILED, last_line(error), here=False)
    return None


def _message(error: BaseException) -> str:
    return shorten(f"{type(error).__name__}: {error}".splitlines()[0])


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know before its first run."""

    store: RunStore
    context: Context
    experiments: Mapping[str, str]


@dataclass(frozen=True)
class Ready:
    """The first thing that a worker says."""


@dataclass(frozen=True)
class Trouble:
    """Something is wrong that concerns every run."""

    message: str


Message: TypeAlias = Ready | Trouble | Event


class Inbox:
    """Receives tasks in a thread, so that a request to stop, or the parent's death, is noticed during a run."""

    def __init__(self, connection: Connection) -> None:
        self._is_stopping = False
        self._connection = connection
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        threading.Thread(target=self._receive, name="headway-inbox", daemon=True).start()

    def take(self) -> Task | None:
        """Wait for the next task; None when there will be none."""
        task = self._tasks.get()
        return None if self._is_stopping else task

    def is_stopping(self) -> bool:
        """Whether somebody has asked to stop."""
        return self._is_stopping

    def stop(self) -> None:
        """Let the run under way stop, and take no further task; a signal may interrupt it and call it again."""
        self._is_stopping = True
        self._tasks.put(None)

    def _receive(self) -> None:
        task: Task | None
        while True:
            try:
                task = self._connection.recv()
            except (EOFError, OSError):  # the parent is done, or dead
                task = None
            if task is None:
                self.stop()
                return
            self._tasks.put(task)


def main(connection: Connection, setup: Setup) -> None:
    """Carry out runs until the parent says stop or is gone. Runs in a process of its own."""
    use_threads(1)
    for name, module in setup.experiments.items():
        register_experiment(name, module)
    inbox = Inbox(connection)
    _listen_to_signals(inbox)
    context = replace(setup.context, should_stop=inbox.is_stopping)

    def notify(message: Message) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the inbox notices that nobody listens
            connection.send(message)

    notify(Ready())
    while task := inbox.take():
        notify(work(task, setup.store, context, notify))


def work(task: Task, store: RunStore, context: Context, notify: Notify) -> Ended | Trouble:
    """Attempt a run, and say how it ended or what is wrong that concerns every run; nothing is raised."""
    try:
        return attempt(store, task.spec, context, notify, task.retry_failed)
    except HeadwayError as error:
        return Trouble(str(error))
    except Exception as error:  # not from the run, which would have recorded it
        return Trouble("".join(traceback.format_exception(error)).rstrip())


def use_threads(number: int) -> None:
    """Leave the other cores to other workers: by the variables that torch reads, or, if it has, by asking it."""
    os.environ.update(OMP_NUM_THREADS=str(number), MKL_NUM_THREADS=str(number))
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(number)


def _listen_to_signals(inbox: Inbox) -> None:
    """Ctrl-C is the parent's to handle; SIGTERM, which a whole group may get, stops in good order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: inbox.stop())
    if hasattr(signal, "pthread_sigmask"):  # the parent had them wait until now
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
