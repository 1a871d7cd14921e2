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
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.analysis.rundata import (
    TIMES,
    Arrays,
    Failure,
    Group,
    Problem,
    Progress,
    RunData,
    agree,
    freeze_lists,
    grouped,
    parse_environment,
    read_parquet,
    what_is_missing,
    what_is_odd,
)
from headway.errors import DamagedError, HeadwayError, MissingExtraError, StoreError
from headway.runs import RunRecord, RunStore, State
from headway.runs.checkpoints import SLOTS
from headway.runs.jsonable import MAX_BYTES
from headway.runs.metrics import MAX_PAGE_BYTES, check_owner
from headway.runs.status import METRICS_FILE, STORE_FILE

if TYPE_CHECKING:
    from headway.analysis.exports import ExportReader
    from headway.analysis.studies import Study

__all__ = ["Failure", "Group", "Problem", "Progress", "Results", "ResultsReader", "RunData", "load_results"]

SUFFIX = ".parquet"  #: What the names of exported files end in
LEFT_OUT = "left out"  #: What a message about a run begins with where nothing is wrong but that another says the same
STUDIES = ("arena", "mixture")  #: Experiments that have tables of their own, see `studies_of`


@dataclass(frozen=True)
class Results:
    """Runs and what was wrong with others."""

    runs: tuple[RunData, ...] = ()  #: all runs whose spec could be read, in the order of group, method and seed
    #: what could not be used, and why. A run that failed by itself is no problem of the store: it is among the runs,
    #: with its error.
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
        fields: dict[str, Any] = {"experiment": experiment, "dataset": dataset, "condition": condition}
        fields |= {"method": method, "protocol": protocol, "seed": seed, "state": state}
        for name, wanted in fields.items():
            if wanted is not None:
                values = (wanted,) if isinstance(wanted, (str, int)) else tuple(wanted)
                runs = tuple(run for run in runs if getattr(run, name) in values)
        return replace(self, runs=runs)

    def finished(self) -> Results:
        """The finished runs only."""
        return self.select(state=State.DONE)

    def groups(self) -> dict[Group, Results]:
        """The runs by what they must share to be compared or pooled."""
        found = grouped(self.runs, lambda run: run.group)
        return {group: Results(tuple(runs)) for group, runs in found.items()}

    def methods(self) -> dict[str, tuple[RunData, ...]]:
        """The runs by method, each ordered by seed.

        Raises:
            ValueError: they are of several groups, which must not be pooled.
        """
        if len(groups := self.groups()) > 1:
            known = "; ".join(f"{group.title} ({group.protocol})" for group in groups)
            raise ValueError(f"expected runs of one group, got {known}; go through groups() first")
        found = grouped(self.runs, lambda run: run.method)
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
            what = f"a run store (a folder with {STORE_FILE}), exported runs (*{SUFFIX}) or a folder of them"
            raise nothing_at(self.path, what)

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
            for run in found:  # one that says it is finished and lacks epochs, or has odd metrics, is corrupt
                if message := what_is_odd(run) or what_is_missing(run):
                    problems.append(Problem(run.id, run.label, message))
                    run = replace(run, state=State.CORRUPT, columns={})
                known = runs.setdefault(run.id, run)
                problems += _disagreement(known, run, source)
                if run.finished and (not known.finished or len(run.columns) > len(known.columns)):
                    runs[run.id] = run
        kept, doubles = _without_doubles(_with_stand_ins(runs.values()))
        return Results(tuple(sorted(kept, key=lambda run: run.order)), tuple(problems + doubles))

    def _sources(self) -> dict[Path, StoreReader | ExportReader]:
        """The stores and exports that are there now; each keeps its reader, which remembers what it has read."""
        folders = stores_at(self.path)
        for folder in folders:
            self._readers.setdefault(folder, StoreReader(folder, self._wanted))
        files = find_exports(self.path)
        if files:
            from headway.analysis.exports import ExportReader

            for file in files:
                self._readers.setdefault(file, ExportReader(file, self._wanted))
        return {source: self._readers[source] for source in (*folders, *files)}


def stores_at(path: Path) -> list[Path]:
    """The run stores at a path: the path itself, or those directly inside it."""
    if (path / STORE_FILE).is_file():
        return [path]
    return sorted(file.parent for file in path.glob(f"*/{STORE_FILE}") if file.is_file())


def find_exports(path: Path) -> list[Path]:
    """The exports at a path: the file itself, or the Parquet files of a folder."""
    if path.is_file():
        return [path] if path.suffix == SUFFIX else []
    return sorted(file for file in path.glob(f"*{SUFFIX}") if not file.name.startswith("."))


def _disagreement(known: RunData, run: RunData, source: Path) -> list[Problem]:
    """Say so if a finished run has other numbers than the same one from elsewhere, in the metrics that both have."""
    if known is run or not (known.finished and run.finished):
        return []
    common = (known.columns.keys() & run.columns.keys()) - TIMES
    other = sorted(name for name in common if not agree(known.columns[name], run.columns[name]))
    names = f"{source.name} ({', '.join(other[:3])})"
    message = f"expected the same numbers wherever it is found, got others in {names}; keep one of the two"
    return [Problem(run.id, run.label, message)] if other else []


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
            problems.append(Problem(run.id, run.label, f"{LEFT_OUT}: the longer run {kept[key].id} says the same"))
        else:
            kept[key] = run
    return [*kept.values(), *others], problems


def load_results(path: str | os.PathLike[str], columns: Collection[str] | None = None) -> Results:
    """Read the runs of a store, or exported ones: what a `ResultsReader` reads, once.

    Raises:
        StoreError: there are no runs at ``path``, or a store cannot be read at all. What is wrong with single runs is
            in ``problems`` instead.
    """
    return ResultsReader(path, columns).read()


def nothing_at(path: Path, expected: str) -> StoreError:
    """The error that there is nothing of what is expected at a path, and what there is."""
    got = "a folder without any" if path.is_dir() else "another file" if path.exists() else "nothing; check the path"
    return StoreError(f"expected {expected} at {path}, got {got}")


PROVENANCE_FILE = "provenance.json"


class StoreReader:
    """Reads the runs of a store, again and again: only what has changed on disk is read anew."""

    def __init__(self, root: Path, wanted: Collection[str] | None = None) -> None:
        self._store = RunStore(root)
        self._wanted = wanted
        self._cache: dict[str, tuple[object, Arrays, Mapping[str, Any]]] = {}

    def read(self) -> tuple[list[RunData], list[Problem]]:
        """Read all runs as they are now."""
        runs: list[RunData] = []
        problems: list[Problem] = []
        records = self._store.status()
        for record in records:
            run, problem = self._read_run(record)
            runs += [run] if run else []
            problems += [problem] if problem else []
        present = {record.run_id for record in records}
        self._cache = {run_id: cached for run_id, cached in self._cache.items() if run_id in present}
        return runs, problems

    def _read_run(self, record: RunRecord) -> tuple[RunData | None, Problem | None]:
        """Read one run; whatever is wrong with it is a problem of its own and stops nothing else."""
        if record.spec is None:
            return None, Problem(record.run_id, "", record.reason)
        try:
            if record.state is State.CORRUPT:
                raise DamagedError(record.reason)
            columns, environment = self._metrics(record)
        except MissingExtraError:
            raise
        except (HeadwayError, MemoryError, RecursionError) as error:
            run = _run_data(record, State.CORRUPT, {}, {})
            return run, Problem(record.run_id, run.label, str(error) or type(error).__name__)
        return _run_data(record, record.state, columns, environment), None

    def _metrics(self, record: RunRecord) -> tuple[Arrays, Mapping[str, Any]]:
        """The metrics and the environment of a run, from memory if its files are as they were."""
        names = (METRICS_FILE, PROVENANCE_FILE) if record.state is State.DONE else SLOTS
        files = (f"{self._store.root}/{record.run_id}/{name}" for name in names)
        stamp = (record.state is State.DONE, *map(_file_stamp, files))
        stored = self._cache.get(record.run_id)
        if stored and stored[0] == stamp:
            return stored[1], stored[2]
        columns: Arrays = {}
        environment: Mapping[str, Any] = {}
        if record.state is State.DONE:  # checked as `RunStore.metrics` does, but without a list on the way
            run_id, what = record.run_id, f"run {record.run_id}: {METRICS_FILE}"
            data = self._store.read_file(run_id, METRICS_FILE, MAX_PAGE_BYTES)
            columns, metadata = read_parquet(data, what, self._wanted)
            check_owner(metadata, run_id, what)
            if record.status is not None and PROVENANCE_FILE in record.status.files:
                text = self._store.read_file(run_id, PROVENANCE_FILE, MAX_BYTES)
                environment = parse_environment(text, f"run {run_id}: {PROVENANCE_FILE}")
        elif record.status is not None:
            columns = freeze_lists(self._store.metrics(record.run_id), self._wanted)
        self._cache[record.run_id] = (stamp, columns, environment)
        return columns, environment


def studies_of(results: Results) -> list[Study]:
    """What the runs say about the arena and the mixture study, where there are any to compare."""
    if not any(run.experiment in STUDIES for run in results):
        return []
    from headway.analysis.studies import make_studies

    return make_studies(results)


def _file_stamp(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.stat(path)  # noqa: PTH116 - twice per run: making paths would take most of the time
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def _run_data(record: RunRecord, state: State, columns: Arrays, environment: Mapping[str, Any]) -> RunData:
    status = record.status
    assert record.spec is not None
    if status is None:
        return RunData(record.run_id, record.spec, state, columns)
    progress = Progress(status.step, status.total, status.seconds, status.speed, status.updated_at)
    error = Failure.of(status.error) if state is State.FAILED else None
    told = progress, error, status.note, status.host, environment
    return RunData(record.run_id, record.spec, state, columns, *told)
