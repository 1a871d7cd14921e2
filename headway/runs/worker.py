"""The worker's side of `processes.LocalProcesses`: a process that carries out the runs that it is sent."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TypeAlias

from headway.errors import HeadwayError
from headway.runs.attempt import attempt
from headway.runs.context import Context
from headway.runs.experiments import register_experiments
from headway.runs.progress import Ended, Event, Notify
from headway.runs.queue import Task
from headway.runs.store import RunStore


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
    """Receives tasks in a thread, so that a request to stop, or the parent's death, is noticed during a run.

    Args:
        connection: to the parent; it sends `Task`, or None to ask to stop.
    """

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
    register_experiments(setup.experiments)
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
