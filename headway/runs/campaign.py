"""Campaigns: many runs on one store; what is left to do, how long it takes, and carrying it out."""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.errors import StoreError
from headway.runs import RunRecord, RunSpec, RunStore, State
from headway.runs.attempt import found_ended
from headway.runs.display import Display, make_display
from headway.runs.experiments import Context, find_experiment
from headway.runs.launchers import Job, Launcher, StopRequest, cores, stop_on_signals
from headway.runs.processes import LocalProcesses
from headway.runs.progress import CampaignProgress, Ended, Event, Notify
from headway.runs.text import count

PATIENCE = 20.0
"""Seconds that the estimate of a campaign may take: an arena has hundreds of kinds of runs."""


@dataclass(frozen=True)
class Campaign:
    """Runs that belong together, in the order in which they are started; equal ones count once."""

    specs: Sequence[RunSpec]
    store: RunStore
    """Where they are kept. Any number of campaigns, on any number of machines, may share it."""
    context: Context = field(default_factory=Context)
    retry_failed: bool = False
    """Run again what has failed in the store; otherwise it counts as failed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(dict.fromkeys(self.specs)))

    def look_up(self) -> tuple[RunRecord, ...]:
        """Where its runs stand. Nothing is written, and there may be no store yet."""
        known = {record.run_id: record for record in self.store.status()} if self.store.exists() else {}
        return tuple(known.get(spec.run_id, RunRecord(spec.run_id, State.PENDING, spec)) for spec in self.specs)

    def end_of(self, record: RunRecord) -> Ended | None:
        """How a run ended that needs no attempt; None for one that does."""
        has_lost_metrics = record.state is State.DONE and not self.store.has_metrics(record)
        return None if has_lost_metrics else found_ended(record, self.retry_failed)


@dataclass(frozen=True)
class Plan:
    """What a campaign would do.

    Attributes:
        records: each of its runs and where it stands in the store.
        seconds: how long each run that is left would take on one core, by its id; empty when unknown.
        workers: how many runs go on at once.
        is_unknown: whether nobody knows how long they would take.
        kinds: how many kinds of runs are left, seeds aside, and how many of them were tried for the estimate.
    """

    records: tuple[RunRecord, ...]
    seconds: Mapping[str, float]
    workers: int
    is_unknown: bool = False
    kinds: tuple[int, int] = (0, 0)

    def total_seconds(self) -> float:
        """How long the whole would take: runs go to whichever worker is free, in their order."""
        free = [0.0] * max(1, self.workers)
        for seconds in self.seconds.values():
            heapq.heappush(free, heapq.heappop(free) + seconds)
        return max(free)


def make_plan(campaign: Campaign, workers: int, with_estimate: bool = True) -> Plan:
    """Guess how long the runs that are left take; the experiments are asked once for all seeds, as that takes time."""
    records = campaign.look_up()
    if not with_estimate:
        return Plan(records, {}, workers, is_unknown=True)
    over = {State.DONE} if campaign.retry_failed else {State.DONE, State.FAILED}
    each = zip(campaign.specs, records, strict=True)  # a record may have no spec that can be read
    left = [(record, replace(spec, seed=0)) for spec, record in each if record.state not in over]
    models = list(dict.fromkeys(model for _, model in left))
    tried: dict[str, float] = {}
    end = time.monotonic() + PATIENCE
    for model in random.Random(0).sample(models, len(models)):
        if not tried or time.monotonic() < end:  # the others count like their mean
            tried[model.run_id] = find_experiment(model.experiment).estimate(model, campaign.context)
    mean = sum(tried.values()) / max(1, len(tried))
    seconds = {}
    for record, model in left:
        status = record.status
        done = min(1.0, status.step / status.total) if status and status.total else 0.0
        seconds[record.run_id] = tried.get(model.run_id, mean) * (1.0 - done)
    return Plan(records, seconds, workers, kinds=(len(models), len(tried)))


def busy_text() -> str:
    """A sentence that the machine is busy, with its load; empty if less than half of it is in use."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load <= cores() / 2:
        return ""
    return (
        f"the machine is busy (load {load:.1f} on {count(cores(), 'core')}): an idle one takes less time than estimated"
    )


def run_campaign(
    campaign: Campaign,
    launcher: Launcher | None = None,
    display: Callable[[CampaignProgress], Display] | None = None,
    stop: StopRequest | None = None,
    listen: Notify | None = None,
) -> CampaignProgress:
    """Carry out all runs of a campaign that are not done, and return where it then stands.

    Ctrl-C, SIGTERM or `stop` ask the runs under way to stop after the current batch and to leave a checkpoint; a
    second Ctrl-C ends everything at once. Either way, the same campaign resumes.

    Args:
        campaign: the runs.
        launcher: who carries them out; local processes, one per core, by default.
        display: makes a display out of a progress; by default what suits the standard output.
        stop: asks to stop.
        listen: called with everything that happens, after it was shown.

    Raises:
        StoreError: the store cannot be written to, or is of a newer version. No finished run is lost.
        LauncherError: worker processes do not start.
        KeyboardInterrupt: a second Ctrl-C.
    """
    stop = stop or StopRequest()
    with stop_on_signals(stop):
        campaign.store.add_all(campaign.specs)
        records = campaign.store.records(spec.run_id for spec in campaign.specs)
        progress = CampaignProgress(campaign.specs)
        for record in records:
            if end := campaign.end_of(record):
                progress.apply(end)
            if record.state is State.DONE:
                with contextlib.suppress(StoreError):  # it is done all the same
                    campaign.store.tidy(record.run_id)
        failed = frozenset(record.run_id for record in records if record.state is State.FAILED)
        left = tuple(spec for spec in campaign.specs if spec.run_id not in progress.ends)
        if left:
            launcher = launcher or LocalProcesses(cores())
            job = Job(campaign.store, left, campaign.context, failed)
            with (display or make_display)(progress) as shown:

                def notify(event: Event) -> None:
                    shown.show(event)
                    if listen:
                        listen(event)

                launcher.launch(job, notify, stop)
    return progress
