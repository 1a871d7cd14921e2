"""Campaigns: many runs on one store; what is left to do, how long it takes, and carrying it out."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.errors import StoreError, UsageError
from headway.runs import RunRecord, RunSpec, RunStore, State
from headway.runs.display import Display, make_display
from headway.runs.experiments import Context, find_experiment
from headway.runs.launchers import InProcess, Job, Launcher, cores
from headway.runs.processes import LocalProcesses
from headway.runs.progress import CampaignProgress, Ended, Outcome
from headway.runs.stopping import StopRequest, stop_on_signals
from headway.runs.text import last_line


@dataclass(frozen=True)
class Plan:
    """What a campaign would do.

    Attributes:
        records: each of its runs and where it stands in the store.
        seconds: how long each run that is left would take on one core, by its id; empty when unknown.
        workers: how many runs go on at once.
        is_unknown: whether nobody knows how long they would take.
    """

    records: tuple[RunRecord, ...]
    seconds: Mapping[str, float]
    workers: int
    is_unknown: bool = False

    def total_seconds(self) -> float:
        """How long the whole would take: runs go to whichever worker is free, in their order."""
        free = [0.0] * max(1, self.workers)
        for seconds in self.seconds.values():
            heapq.heappush(free, heapq.heappop(free) + seconds)
        return max(free)


def look_up(store: RunStore, specs: Sequence[RunSpec]) -> tuple[RunRecord, ...]:
    """Where runs stand in a store. Nothing is written, and there may be no store yet."""
    if not store.exists():
        return tuple(RunRecord(spec.run_id, State.PENDING, spec) for spec in specs)
    known = {record.run_id: record for record in store.status()}
    return tuple(known.get(spec.run_id, RunRecord(spec.run_id, State.PENDING, spec)) for spec in specs)


def make_plan(
    records: tuple[RunRecord, ...],
    specs: Sequence[RunSpec],
    workers: int,
    retry_failed: bool,
    estimate: Callable[[RunSpec], float] | None,
) -> Plan:
    """Guess how long the runs that are left take."""
    over = {State.DONE} if retry_failed else {State.DONE, State.FAILED}
    left = [(record, spec) for record, spec in zip(records, specs, strict=True) if record.state not in over]
    seconds = {record.run_id: estimate(spec) * _share_left(record) for record, spec in left} if estimate else {}
    return Plan(records, seconds, workers, estimate is None)


class Estimator:
    """Asks experiments how long runs take, once for all seeds: a guess takes a moment of training."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[str, float] = {}

    def __call__(self, spec: RunSpec) -> float:
        """Seconds on one core."""
        model = replace(spec, seed=0)
        if model.run_id not in self._known:
            self._known[model.run_id] = find_experiment(spec.experiment).estimate(model, self._context)
        return self._known[model.run_id]


def _share_left(record: RunRecord) -> float:
    status = record.status
    return 1.0 - min(1.0, status.step / status.total) if status and status.total else 1.0


@dataclass(frozen=True)
class Campaign:
    """Runs that belong together.

    Attributes:
        specs: the runs, in the order in which they are started; equal ones count once.
        store: where they are kept. Any number of campaigns, on any number of machines, may share it.
        context: what the runs may use.
        retry_failed: run again what has failed in the store; otherwise it counts as failed.
    """

    specs: Sequence[RunSpec]
    store: RunStore
    context: Context = field(default_factory=Context)
    retry_failed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(dict.fromkeys(self.specs)))


def default_workers(runs: int) -> int:
    """One worker per core, but not more than there are runs."""
    return max(1, min(cores(), runs))


def make_launcher(workers: int) -> Launcher:
    """The launcher for a number of local processes; 0 is this process itself.

    Raises:
        UsageError: the number is negative.
    """
    if workers < 0:
        raise UsageError(f"expected 0 or more workers, got {workers}")
    return LocalProcesses(workers) if workers else InProcess()


def run_campaign(
    campaign: Campaign,
    launcher: Launcher | None = None,
    display: Callable[[CampaignProgress], Display] | None = None,
    stop: StopRequest | None = None,
) -> CampaignProgress:
    """Carry out all runs of a campaign that are not done, and return where it then stands.

    Ctrl-C, SIGTERM or `stop` ask the runs under way to stop after the current batch and to leave a checkpoint; a
    second Ctrl-C ends everything at once. Either way, the same campaign resumes.

    Args:
        campaign: the runs.
        launcher: who carries them out; local processes, one per core, by default.
        display: makes a display out of a progress; by default what suits the standard output.
        stop: asks to stop.

    Raises:
        StoreError: the store cannot be written to, or is of a newer version. No finished run is lost.
        LauncherError: worker processes do not start.
        KeyboardInterrupt: a second Ctrl-C.
    """
    stop = stop or StopRequest()
    with stop_on_signals(stop):
        campaign.store.add_all(campaign.specs)
        records = {record.run_id: record for record in campaign.store.records(spec.run_id for spec in campaign.specs)}
        progress = CampaignProgress(campaign.specs)
        for record in records.values():
            if end := _end(campaign, record):
                progress.apply(end)
            if record.state is State.DONE:
                with contextlib.suppress(StoreError):  # it is done all the same
                    campaign.store.tidy(record.run_id)
        job = _job(campaign, records, progress)
        if job.specs:
            launcher = launcher or LocalProcesses(default_workers(len(job.specs)))
            with (display or make_display)(progress) as shown:
                launcher.launch(job, shown.show, stop)
    return progress


def left_over(campaign: Campaign) -> list[RunSpec]:
    """The runs of a campaign that it would attempt now. Nothing is written, and there may be no store yet.

    Raises:
        StoreError: the store cannot be read, or is of a newer version.
    """
    records = look_up(campaign.store, campaign.specs)
    return [spec for spec, record in zip(campaign.specs, records, strict=True) if _end(campaign, record) is None]


def _end(campaign: Campaign, record: RunRecord) -> Ended | None:
    """How a run ended that needs no attempt; None for one that does."""
    if record.state is State.DONE and campaign.store.has_metrics(record):
        return Ended(record.run_id, Outcome.DONE, here=False)
    if record.state is State.FAILED and not campaign.retry_failed:
        return Ended(record.run_id, Outcome.FAILED, last_line(record.status.error if record.status else ""), here=False)
    return None


def _job(campaign: Campaign, records: Mapping[str, RunRecord], progress: CampaignProgress) -> Job:
    failed = frozenset(run_id for run_id, record in records.items() if record.state is State.FAILED)
    left = tuple(spec for spec in campaign.specs if spec.run_id not in progress.ends)
    return Job(campaign.store, left, campaign.context, failed)
