"""What was run, what became of it, and how long the rest may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headway.analysis.results import Results
from headway.analysis.rundata import Problem, RunData
from headway.analysis.settings import Setting
from headway.analysis.table import ranges
from headway.runs import State
from headway.runs.text import count
from headway.study.protocols.names import METHODS, rank, title

WORDS = {
    State.DONE: "done",
    State.RUNNING: "running",
    State.PENDING: "not started",
    State.INTERRUPTED: "interrupted",
    State.FAILED: "failed",
    State.CORRUPT: "corrupt",
}
"""The states of runs in words, in the order in which they are listed."""

BAD = (State.FAILED, State.CORRUPT)
_OVER = (State.DONE, *BAD)


@dataclass(frozen=True)
class Tile:
    """A number at the top of the page."""

    number: str
    label: str
    is_bad: bool = False


@dataclass(frozen=True)
class Cover:
    """How much there is of one method.

    Attributes:
        method: its title.
        done: runs that are finished.
        total: all runs of it, and those that other methods have and it lacks.
        rest: what became of the others, in words; empty if there are none.
        is_bad: whether a run failed or is corrupt.
    """

    method: str
    done: int
    total: int
    rest: str
    is_bad: bool


@dataclass(frozen=True)
class Matrix:
    """The runs of an experiment.

    Attributes:
        experiment: its title.
        methods: titles of all methods, the columns.
        rows: the settings, each with its seeds in words and what there is of every method (None: no runs).
    """

    experiment: str
    methods: Sequence[str]
    rows: Sequence[tuple[Setting, str, Sequence[Cover | None]]]


@dataclass(frozen=True)
class Overview:
    """What was run.

    Attributes:
        tiles: counts by state.
        matrices: how much there is of each method in every setting, a table for each experiment.
        failures: failed runs.
        unfinished: runs that were stopped.
        problems: what could not be read, and why.
        doubles: runs that are left out because others say the same.
        gaps: what is missing, in sentences.
        done: how many runs are finished.
    """

    tiles: Sequence[Tile]
    matrices: Sequence[Matrix]
    failures: Sequence[RunData]
    unfinished: Sequence[RunData]
    problems: Sequence[Problem]
    doubles: Sequence[Problem]
    gaps: Sequence[str]
    done: int

    @property
    def total(self) -> int:
        """All runs, also those that cannot be read."""
        return int(self.tiles[0].number)

    @property
    def is_whole(self) -> bool:
        """Whether everything is there and finished."""
        return self.done == self.total and not (self.problems or self.gaps)


def overview_of(results: Results, settings: Sequence[Setting]) -> Overview:
    """Look at what there is."""
    counts = results.counts()
    lost = unreadable(results)
    if lost:
        counts[State.CORRUPT] = counts.get(State.CORRUPT, 0) + lost
    total = len(results) + lost
    tiles = [Tile(str(total), "run" if total == 1 else "runs")]
    tiles += [Tile(str(counts[state]), word, state in BAD) for state, word in WORDS.items() if counts.get(state)]
    return Overview(
        tiles,
        _matrices(settings),
        [run for run in results if run.state is State.FAILED],
        [run for run in results if run.state is State.INTERRUPTED],
        [problem for problem in results.problems if not is_double(problem)],
        [problem for problem in results.problems if is_double(problem)],
        [sentence for setting in settings for sentence in _gaps(setting)],
        counts.get(State.DONE, 0),
    )


def _matrices(settings: Sequence[Setting]) -> list[Matrix]:
    found = []
    for experiment in dict.fromkeys(setting.group.experiment for setting in settings):
        own = [setting for setting in settings if setting.group.experiment == experiment]
        names = sorted({name for setting in own for name in setting.all}, key=lambda name: rank(METHODS, name))
        rows = [
            (
                setting,
                ranges(run.seed for runs in setting.all.values() for run in runs),
                [_cover(setting, name) if name in setting.all else None for name in names],
            )
            for setting in own
        ]
        found.append(Matrix(title(experiment), [title(name) for name in names], rows))
    return found


def _cover(setting: Setting, method: str) -> Cover:
    runs = setting.all[method]
    done = [run.seed for run in runs if run.finished]
    rest = []
    for state, word in WORDS.items():
        seeds = [run.seed for run in runs if run.state is state]
        if seeds and state is not State.DONE:
            rest.append(f"{word}: {_seeds(seeds)}")
    if missing := _missing(setting, method):
        rest.append(f"not in the store: {_seeds(missing)}")
    is_bad = any(run.state in BAD for run in runs)
    return Cover(title(method), len(done), len(runs) + len(missing), "; ".join(rest), is_bad)


def _missing(setting: Setting, method: str) -> list[int]:
    """Seeds that another method of the setting has, and this one has not."""
    every = {run.seed for runs in setting.all.values() for run in runs}
    return sorted(every - {run.seed for run in setting.all[method]})


def _gaps(setting: Setting) -> list[str]:
    """What comparisons will miss: seeds that not all methods have finished."""
    short = {name: _unfinished_seeds(setting, name) for name in setting.all}
    short = {name: seeds for name, seeds in short.items() if seeds}
    if not short:
        return []
    parts = [f"{title(name)} lacks {_seeds(seeds)}" for name, seeds in short.items()]
    if len(parts) > 4:
        parts = [*parts[:3], f"{count(len(parts) - 3, 'more method')}"]
    return [f"{setting.title} ({setting.group.protocol}): {_listed(parts)}."]


def _listed(words: Sequence[str]) -> str:
    """Words with commas and an "and", such as "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {ranges(seeds)}"


def _unfinished_seeds(setting: Setting, method: str) -> list[int]:
    finished = {run.seed for runs in setting.all.values() for run in runs if run.finished}
    return sorted(finished - {run.seed for run in setting.all[method] if run.finished})


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
