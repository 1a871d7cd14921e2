"""How a campaign is getting on: what is done, what is under way, and how long the rest may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headway.analysis.results import Results
from headway.analysis.rundata import Problem, RunData
from headway.runs import State

_OVER = (State.DONE, State.FAILED, State.CORRUPT)


@dataclass(frozen=True)
class Campaign:
    """Where the runs of a store stand.

    Attributes:
        total: all runs.
        over: runs that are done, failed or corrupt.
        share: the part of the work that is done, from 0 to 1.
        seconds_left: an estimate for the rest at the pace of the runs under way; None if none is, or it is unknown.
        active: the runs under way.
    """

    total: int
    over: int
    share: float
    seconds_left: float | None
    active: Sequence[RunData]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.over == self.total


def campaign_of(results: Results) -> Campaign:
    """Look at where the runs stand."""
    runs = results.runs
    active = [run for run in runs if run.state is State.RUNNING]
    open_ = [run for run in runs if run.state not in _OVER]
    total = len(runs) + unreadable(results)
    left = math.fsum(1.0 - _share(run) for run in open_)
    share = min(1.0 - left / total, 0.99 if open_ else 1.0) if total else 1.0  # all is done when all is over
    return Campaign(total, total - len(open_), share, _seconds_left(runs, open_, active), active)


def unreadable(results: Results) -> int:
    """How many runs are not among the runs because even their spec is damaged."""
    known = {run.id for run in results}
    return sum(problem.id not in known and not is_double(problem) for problem in results.problems)


def is_double(problem: Problem) -> bool:
    """Whether nothing is wrong with a run but that another one says the same."""
    return problem.message.startswith("left out: ")


def _seconds_left(runs: Sequence[RunData], rest: Sequence[RunData], active: Sequence[RunData]) -> float | None:
    """The work that is left, shared by as many processes as there are runs under way."""
    if not active or not rest:
        return None
    whole = _durations(runs)
    works = [whole.get((run.group, run.method), whole.get(None, math.nan)) * (1 - _share(run)) for run in rest]
    own = [left for run in active if (left := run.progress.seconds_left) is not None]
    known = [work for work in works if math.isfinite(work)]
    if not known:
        return max(own) if own and len(rest) == len(active) else None
    work = math.fsum(known) * len(works) / len(known)  # those that nothing is known of count as the others do
    return max([work / len(active), *own])


def _durations(runs: Sequence[RunData]) -> dict[object, float]:
    """How long a whole run takes, by group and method, and under None over all."""
    found: dict[object, list[float]] = {}
    for run in runs:
        if (share := _share(run)) > 0 and run.progress.seconds > 0:
            for key in ((run.group, run.method), None):
                found.setdefault(key, []).append(run.progress.seconds / share)
    return {key: math.fsum(values) / len(values) for key, values in found.items()}


def _share(run: RunData) -> float:
    """How much of a run is done, from 0 to 1."""
    if run.finished:
        return 1.0
    return min(1.0, run.progress.done / run.progress.total) if run.progress.total else 0.0
