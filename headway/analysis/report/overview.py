"""What was run and what became of it: counts, the seeds of every method, and everything that went wrong, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.analysis.report.progress import is_double, unreadable
from headway.analysis.report.words import listed, ranges
from headway.analysis.results import Results
from headway.analysis.rundata import Problem, RunData
from headway.analysis.settings import Setting
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
    return [f"{setting.title} ({setting.group.protocol}): {listed(parts)}."]


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {ranges(seeds)}"


def _unfinished_seeds(setting: Setting, method: str) -> list[int]:
    finished = {run.seed for runs in setting.all.values() for run in runs if run.finished}
    return sorted(finished - {run.seed for run in setting.all[method] if run.finished})
