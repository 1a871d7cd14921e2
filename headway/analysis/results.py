"""Loading runs for analysis: `load_results` reads a run store or a folder of exported lots.

::

    results = load_results("runs")
    for group, members in results.finished().groups().items():  # never mixes protocols, lengths or datasets
        for method, runs in members.methods().items():  # a tuple of RunData, ordered by seed
            losses = [run.columns["test_loss"] for run in runs]

`ResultsReader` does the same again and again, and reads only what has changed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headway.analysis.lots import LotReader, find_lots
from headway.analysis.rundata import Failure, Group, Problem, Progress, RunData
from headway.analysis.stores import StoreReader
from headway.errors import StoreError
from headway.runs import State
from headway.runs.store import STORE_FILE

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
        path: a run store, a folder of exported lots (or both in one), or one lot.
        columns: the metrics to read; None for all.

    Raises:
        StoreError: there is nothing of the kind at ``path``.
    """

    def __init__(self, path: str | os.PathLike[str], columns: Collection[str] | None = None) -> None:
        """Find out what there is; read nothing yet."""
        self.path = Path(path)
        self._wanted = None if columns is None else frozenset(columns)
        self._store = StoreReader(self.path, self._wanted) if (self.path / STORE_FILE).exists() else None
        self._lots: dict[Path, LotReader] = {}
        if self._store is None and not find_lots(self.path):
            raise StoreError(_nothing_at(self.path))

    def read(self) -> Results:
        """Read everything as it is now.

        Raises:
            StoreError: the store cannot be read at all.
        """
        runs: dict[str, RunData] = {}
        problems: list[Problem] = []
        if self._store is not None:
            found, problems = self._store.read()
            runs = {run.id: run for run in found}
        for path in find_lots(self.path):
            reader = self._lots.setdefault(path, LotReader(path, self._wanted))
            found, wrong = reader.read()
            problems += wrong
            for run in found:
                if run.id not in runs or (run.finished and not runs[run.id].finished):
                    runs[run.id] = run
        return Results(tuple(sorted(runs.values(), key=lambda run: run.order)), tuple(problems))


def load_results(path: str | os.PathLike[str], columns: Collection[str] | None = None) -> Results:
    """Read the runs of a store, or of exported lots.

    Args:
        path: a run store, a folder of exported lots (or both in one), or one lot.
        columns: the metrics to read; None for all.

    Raises:
        StoreError: there is nothing of the kind at ``path``, or it cannot be read at all. What is wrong with
            single runs is in ``problems`` instead.
    """
    return ResultsReader(path, columns).read()


def _nothing_at(path: Path) -> str:
    """Say that there are no runs at a path, and where there are some."""
    what = f"expected a run store (a folder with {STORE_FILE}) or exported lots (*.parquet) at {path}, got "
    if not path.exists():
        return f"{what}nothing; check the path"
    if not path.is_dir():
        return f"{what}another file"
    inside = sorted(child for child in path.iterdir() if child.is_dir() and (child / STORE_FILE).exists())
    hint = f"; there is a store in {', '.join(map(str, inside[:5]))}" if inside else ""
    return f"{what}neither{hint}"
