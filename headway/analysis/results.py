"""Loading runs for analysis: `load_results` reads a run store or a folder of exported runs.

::

    results = load_results("runs")
    for group, members in results.finished().groups().items():  # never mixes protocols, lengths or datasets
        for method, runs in members.methods().items():  # a tuple of RunData, ordered by seed
            losses = [run.columns["test_loss"] for run in runs]

`ResultsReader` does the same again and again, and reads only what has changed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headway.analysis.columns import TIMES, agree
from headway.analysis.exports import SUFFIX, ExportReader, find_exports
from headway.analysis.rundata import Failure, Group, Problem, Progress, RunData, what_is_missing, what_is_odd
from headway.analysis.stores import StoreReader
from headway.errors import StoreError
from headway.runs import State
from headway.runs.storage import STORE_FILE

__all__ = ["Failure", "Group", "Problem", "Progress", "Results", "ResultsReader", "RunData", "load_results"]


@dataclass(frozen=True)
class Results:
    """Runs and what was wrong with others.

    Attributes:
        runs: all runs whose spec could be read, in the order of group, method and seed.
        problems: what could not be used, and why. A run that failed by itself is no problem of the store: it is
            among the runs, with its error.
    """

    runs: tuple[RunData, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.runs)

    def __iter__(self) -> Iterator[RunData]:
        """Iterate over the runs."""
        return iter(self.runs)

    def select(
        self,
        *,
        experiment: str | Collection[str] | None = None,
        dataset: str | Collection[str | None] | None = None,
        condition: str | Collection[str] | None = None,
        method: str | Collection[str] | None = None,
        protocol: str | Collection[str] | None = None,
        seed: int | Collection[int] | None = None,
        state: State | Collection[State] | None = None,
    ) -> Results:
        """The runs that have one of the named values in each named field; a field that is not named fits all."""
        runs = self.runs
        for name, wanted in (
            ("experiment", experiment),
            ("dataset", dataset),
            ("condition", condition),
            ("method", method),
            ("protocol", protocol),
            ("seed", seed),
            ("state", state),
        ):
            if wanted is not None:
                values = (wanted,) if isinstance(wanted, (str, int)) else tuple(wanted)
                runs = tuple(run for run in runs if getattr(run, name) in values)
        return replace(self, runs=runs)

    def finished(self) -> Results:
        """The finished runs only."""
        return self.select(state=State.DONE)

    def groups(self) -> dict[Group, Results]:
        """The runs by what they must share to be compared or pooled."""
        found: dict[Group, list[RunData]] = {}
        for run in self.runs:
            found.setdefault(run.group, []).append(run)
        return {group: Results(tuple(runs)) for group, runs in found.items()}

    def methods(self) -> dict[str, tuple[RunData, ...]]:
        """The runs by method, each ordered by seed.

        Raises:
            ValueError: they are of several groups, which must not be pooled.
        """
        if len(groups := self.groups()) > 1:
            known = "; ".join(f"{group.title} ({group.protocol})" for group in groups)
            raise ValueError(f"expected runs of one group, got {known}; go through groups() first")
        found: dict[str, list[RunData]] = {}
        for run in self.runs:
            found.setdefault(run.method, []).append(run)
        return {method: tuple(runs) for method, runs in found.items()}

    def protocols(self) -> tuple[str, ...]:
        """The labels of the protocols of these runs."""
        return tuple(dict.fromkeys(run.protocol for run in self.runs))

    def counts(self) -> dict[State, int]:
        """How many runs are in each state; states without any are left out."""
        found = [run.state for run in self.runs]
        return {state: found.count(state) for state in State if state in found}


class ResultsReader:
    """Reads the same place again and again, quickly: what has not changed on disk is not read anew.

    Args:
        path: a run store; a file of exported runs; or a folder of stores and such files, as a campaign leaves them.
        columns: the metrics to read; None for all.

    Raises:
        StoreError: there is nothing of the kind at ``path``.
    """

    def __init__(self, path: str | os.PathLike[str], columns: Collection[str] | None = None) -> None:
        self.path = Path(path)
        self._wanted = None if columns is None else frozenset(columns)
        self._readers: dict[Path, StoreReader | ExportReader] = {}
        if not self._sources():
            raise StoreError(_nothing_at(self.path))

    def read(self) -> Results:
        """Read everything as it is now.

        Raises:
            StoreError: the store cannot be read at all. One of several that cannot is a problem among others.
        """
        runs: dict[str, RunData] = {}
        problems: list[Problem] = []
        sources = self._sources()
        for source, reader in sources.items():
            try:
                found, wrong = reader.read()
            except StoreError as error:
                if len(sources) == 1:
                    raise
                found, wrong = [], [Problem(source.name, "", str(error))]
            problems += wrong
            for run in found:
                whole, missing = _checked(run)
                problems += [missing] if missing else []
                known = runs.setdefault(run.id, whole)
                problems += _disagreement(known, whole, source)
                if _says_more(whole, known):
                    runs[run.id] = whole
        kept, doubles = _without_doubles(_with_stand_ins(runs.values()))
        return Results(tuple(sorted(kept, key=lambda run: run.order)), tuple(problems + doubles))

    def _sources(self) -> dict[Path, StoreReader | ExportReader]:
        """The stores and exports that are there now; each keeps its reader, which remembers what it has read."""
        folders = stores_at(self.path)
        for folder in folders:
            self._readers.setdefault(folder, StoreReader(folder, self._wanted))
        files = find_exports(self.path)
        for file in files:
            self._readers.setdefault(file, ExportReader(file, self._wanted))
        return {source: self._readers[source] for source in (*folders, *files)}


def stores_at(path: Path) -> list[Path]:
    """The run stores at a path: the path itself, or those inside it."""
    return [path] if _is_store(path) else find_stores(path)


def find_stores(path: Path) -> list[Path]:
    """The run stores directly inside a folder."""
    return sorted(child for child in path.iterdir() if _is_store(child)) if path.is_dir() else []


def _is_store(path: Path) -> bool:
    return (path / STORE_FILE).is_file()


def _checked(run: RunData) -> tuple[RunData, Problem | None]:
    """A run that says it is finished and lacks epochs is corrupt, whatever the reason; so is one with odd metrics."""
    if message := what_is_odd(run) or what_is_missing(run):
        return replace(run, state=State.CORRUPT, columns={}), Problem(run.id, run.label, message)
    return run, None


def _says_more(run: RunData, known: RunData) -> bool:
    """Whether a run is to take the place of the same one from elsewhere: finished, or with more of its metrics."""
    return run.finished and (not known.finished or len(run.columns) > len(known.columns))


def _disagreement(known: RunData, run: RunData, source: Path) -> list[Problem]:
    """Say so if a finished run has other numbers than the same one from elsewhere, in the metrics that both have."""
    if known is run or not (known.finished and run.finished):
        return []
    common = (known.columns.keys() & run.columns.keys()) - TIMES
    other = sorted(name for name in common if not agree(known.columns[name], run.columns[name]))
    if not other:
        return []
    message = (
        f"expected the same numbers wherever it is found, got others in {source.name} ({', '.join(other[:3])}); "
        f"keep one of the two"
    )
    return [Problem(run.id, run.label, message)]


def _with_stand_ins(runs: Iterable[RunData]) -> list[RunData]:
    """Let runs with former choices stand in for those that their preset now asks for, until there is one of these.

    Such a run has the label of the preset's own runs then; its `former` still says what it was made with.
    """
    runs = list(runs)
    there = {(run.group, run.method) for run in runs if run.finished and not run.former}
    found = []
    for run in runs:
        stand_in = replace(run, stands_in=True) if run.former else run
        found.append(run if (stand_in.group, run.method) in there else stand_in)
    return found


def _without_doubles(runs: Iterable[RunData]) -> tuple[list[RunData], list[Problem]]:
    """Leave out finished runs that only differ from another one in epochs that do not count.

    They would count a seed twice. The longer one stays.
    """
    kept: dict[tuple[object, ...], RunData] = {}
    others: list[RunData] = []
    problems: list[Problem] = []
    for run in sorted(runs, key=lambda run: (-run.rows, run.id)):
        key = (run.group, run.method, run.seed)
        if not run.finished:
            others.append(run)
        elif key in kept:
            problems.append(Problem(run.id, run.label, f"left out: the longer run {kept[key].id} says the same"))
        else:
            kept[key] = run
    return [*kept.values(), *others], problems


def load_results(path: str | os.PathLike[str], columns: Collection[str] | None = None) -> Results:
    """Read the runs of a store, or exported ones.

    Args:
        path: a run store; a file of exported runs; or a folder of stores and such files, as a campaign leaves them.
        columns: the metrics to read; None for all.

    Raises:
        StoreError: there is nothing of the kind at ``path``, or a store cannot be read at all. What is wrong with
            single runs is in ``problems`` instead.
    """
    return ResultsReader(path, columns).read()


def _nothing_at(path: Path) -> str:
    """Say that there are no runs at a path, and what there is."""
    what = f"expected a run store (a folder with {STORE_FILE}), exported runs (*{SUFFIX}) or a folder of them at {path}"
    if not path.exists():
        return f"{what}, got nothing; check the path"
    return f"{what}, got a folder without any" if path.is_dir() else f"{what}, got another file"
