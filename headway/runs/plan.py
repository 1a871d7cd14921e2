"""What a campaign would do, and how long it would take."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.runs import RunRecord, RunSpec, RunStore, State
from headway.runs.context import Context
from headway.runs.experiments import find_experiment


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
    """Where runs stand in a store. Nothing is written, and there may be no store yet.

    Raises:
        StoreError: the store cannot be read, or is of a newer version.
    """
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
    """Guess how long the runs that are left take.

    Args:
        records: where the runs stand.
        specs: the runs, in the same order.
        workers: how many go on at once.
        retry_failed: whether failed runs are run again.
        estimate: guesses the seconds that a run takes on one core; None when nobody knows.
    """
    over = {State.DONE} if retry_failed else {State.DONE, State.FAILED}
    left = [(record, spec) for record, spec in zip(records, specs, strict=True) if record.state not in over]
    seconds = {record.run_id: estimate(spec) * _share_left(record) for record, spec in left} if estimate else {}
    return Plan(records, seconds, workers, estimate is None)


class Estimator:
    """Asks experiments how long runs take, once for all seeds: a guess takes a moment of training.

    Args:
        context: what the runs may use.
    """

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
