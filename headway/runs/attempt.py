"""One attempt at one run: lock it, carry it out, and say how it ended. Every launcher ends up here."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from headway.errors import DamagedError, ExperimentError, LockLostError, StoreError, WorkerLostError
from headway.runs import Run, RunSpec, RunStore, State
from headway.runs.context import Context, Stopped
from headway.runs.experiments import find_experiment, use_common_instructions
from headway.runs.plugins import load_plugins
from headway.runs.progress import Advanced, Ended, Notify, Outcome, Started
from headway.runs.text import last_line, shorten

REPORT_INTERVAL = 0.1
"""The least time between two reports of a run, in seconds."""


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
        return _found(store, spec, retry_failed)
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
            return _outcome(run, store)
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
        return _found(store, spec, retry_failed=False)
    error = WorkerLostError(why)
    run.fail(error)
    return Ended(spec.run_id, Outcome.FAILED, _message(error))


def concerns_every_run(error: BaseException) -> bool:
    """Tell whether the store itself is in trouble: a full disk, say, as against one damaged run."""
    is_local = isinstance(error, (DamagedError, LockLostError))
    return isinstance(error, StoreError) and isinstance(error.__cause__, OSError) and not is_local


class Reporter:
    """Reports how a run advances, but not more often than anybody can read; the first and the last always.

    Args:
        run_id: the run.
        notify: called with `Advanced` events.
        clock: gives seconds.
    """

    def __init__(self, run_id: str, notify: Notify, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_id = run_id
        self._notify = notify
        self._clock = clock
        self._due = float("-inf")

    def __call__(self, step: int, total: int, losses: Mapping[str, float]) -> None:
        """Tell it if it is time to, or the last step."""
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


def _outcome(run: Run, store: RunStore) -> Ended:
    """How a run ended whose experiment has returned."""
    state = store.record(run.run_id).state
    if state is State.RUNNING:
        raise ExperimentError(f"expected the experiment {run.spec.experiment} to finish() its run, got a return")
    return Ended(run.run_id, Outcome.DONE if state is State.DONE else Outcome.INTERRUPTED)


def _found(store: RunStore, spec: RunSpec, retry_failed: bool) -> Ended:
    """Say why a run could not be locked."""
    record = store.record(spec.run_id)
    if record.state is State.DONE:
        return Ended(spec.run_id, Outcome.DONE, here=False)
    if record.state is State.FAILED and not retry_failed:
        return Ended(spec.run_id, Outcome.FAILED, last_line(record.status.error if record.status else ""), here=False)
    return Ended(spec.run_id, Outcome.HELD, here=False)


def _message(error: BaseException) -> str:
    return shorten(f"{type(error).__name__}: {error}".splitlines()[0])
