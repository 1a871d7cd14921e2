"""Launchers: who carries out the runs of a campaign. In-process here, local processes in `processes`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from headway.runs import RunSpec, RunStore
from headway.runs.attempt import attempt, give_up
from headway.runs.context import Context
from headway.runs.events import Ended, Lost, Outcome, Tell
from headway.runs.queue import Agenda, Task
from headway.runs.stopping import StopRequest

UNASKED = "the run stopped although nobody asked it to"


@dataclass(frozen=True)
class Job:
    """What a launcher is to carry out.

    Attributes:
        store: where the runs are kept; claims are made through it, so that any number of launchers share the work.
        specs: the runs.
        context: what they may use.
        retry: the ids of failed runs that are to be run again.
    """

    store: RunStore
    specs: tuple[RunSpec, ...]
    context: Context
    retry: frozenset[str] = frozenset()


class Launcher(Protocol):
    """Carries out the runs of a job, in whatever place."""

    def launch(self, job: Job, tell: Tell, stop: StopRequest) -> None:
        """Attempt all runs; return when each is over, or when those under way have stopped on request.

        A run that fails is told, and the others go on. KeyboardInterrupt ends everything at once.

        Args:
            job: the runs.
            tell: told everything that happens, in the calling thread.
            stop: asks to stop.

        Raises:
            HeadwayError: something is wrong that concerns every run. The runs under way have stopped and can
                be resumed.
        """
        ...


class InProcess:
    """Carries out one run after another in this process."""

    def launch(self, job: Job, tell: Tell, stop: StopRequest) -> None:
        """Attempt all runs; see `Launcher`."""
        agenda = Agenda(job.specs, job.retry)
        context = replace(job.context, should_stop=lambda: stop.asked)
        while agenda and not stop.asked:
            task = take(job.store, agenda, tell)
            if task is None:
                stop.wait(agenda.delay() or 0.0)
                continue
            ended = attempt(job.store, task.spec, context, tell, task.retry_failed)
            if ended.outcome is Outcome.INTERRUPTED and not stop.asked:
                start_again(job.store, agenda, task, UNASKED, tell)
            else:
                conclude(agenda, task, ended, tell)


def take(store: RunStore, agenda: Agenda, tell: Tell) -> Task | None:
    """The next run to attempt, as `Agenda.take` gives it; those before it that are to be given up are."""
    while (task := agenda.take()) and task.doom:
        conclude(agenda, task, give_up(store, task.spec, task.doom), tell)
    return task


def conclude(agenda: Agenda, task: Task, ended: Ended, tell: Tell) -> None:
    """Tell how a run ended; one that another process holds goes back on the agenda, and is told once."""
    if ended.outcome is not Outcome.HELD or agenda.postpone(task):
        tell(ended)


def start_again(store: RunStore, agenda: Agenda, task: Task, why: str, tell: Tell, reached: int = 0) -> None:
    """Put a run that lost its worker back on the agenda; or, if that has happened too often, record it as failed.

    A worker of another machine holds its run beyond its death, until its lease is over. The agenda remembers until
    then that the run is to be given up.

    Args:
        store: where the run is kept.
        agenda: what is to be done.
        task: the run.
        why: what became of the worker.
        tell: told what happens.
        reached: how far the run had come, if that is known.
    """
    if agenda.put_back(task, reached):
        tell(Lost(task.spec.run_id, why))
        return
    times = "for the second time" if agenda.most_losses == 1 else f"{agenda.most_losses + 1} times without getting on"
    doomed = replace(task, doom=f"{why}, {times}")
    conclude(agenda, doomed, give_up(store, task.spec, doomed.doom), tell)
