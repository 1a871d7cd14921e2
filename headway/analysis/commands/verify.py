"""The command `headway verify`: run some of the results again, from their specs, and compare every number.

Experiments and analysis do not know each other: this module chooses the runs and compares them, and who registers the
command joins it with what carries runs out.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from headway.analysis.columns import Array
from headway.analysis.results import Results, load_results
from headway.analysis.rundata import RunData
from headway.errors import UsageError, did_you_mean
from headway.runs.places import parse_folder

DIFFERENT = 1
TIMES = frozenset({"steps_per_second"})
"""Metrics that measure the machine and not the run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which runs are chosen."""
    parser.description = (
        "Runs some of the results again from their specs, in a store of their own, and compares every number. On the "
        "same machine with the same versions they are the same to the last bit."
    )
    add = parser.add_argument
    add("path", type=parse_folder, metavar="RESULTS", help="exported lots, or a run store")
    add("--runs", type=int, default=2, metavar="N", help="how many runs, chosen at random (2)")
    add("--seed", type=int, metavar="N", help="where the choice starts (default: another one each time)")


def choose(results: Results, number: int, seed: int | None, only: Sequence[str] | None) -> list[RunData]:
    """The runs to repeat: those that are named, or some at random.

    Raises:
        UsageError: there are no finished runs, or none of that name, or the number makes no sense.
    """
    finished = {run.id: run for run in results.finished()}
    if not finished:
        raise UsageError("expected finished runs to repeat, got none")
    if number < 1:
        raise UsageError(f"expected --runs of at least 1, got {number}")
    for name in only or ():
        if name not in finished:
            raise UsageError(f"expected the id of a finished run, got {name!r}{did_you_mean(name, finished)}")
    if only:
        return [finished[name] for name in dict.fromkeys(only)]
    return random.Random(seed).sample(list(finished.values()), min(number, len(finished)))


def chosen(options: argparse.Namespace) -> list[RunData]:
    """The runs that a command line asks for.

    Raises:
        UsageError: there are none.
        StoreError: there are no results at the path.
    """
    return choose(load_results(options.path), options.runs, options.seed, options.only)


def compare(before: Sequence[RunData], store: Path) -> int:
    """Tell for each run whether it came out the same again, and return the exit code.

    Args:
        before: the runs as they were.
        store: where they were run again.
    """
    again = {run.id: run for run in load_results(store)}
    worst = 0
    for run in before:
        found = differences(run.columns, again[run.id].columns)
        name = f"{run.id} {run.label} ({run.protocol})"
        if not found:
            print(f"identical: {name}, {run.rows} rows of {len(_compared(run.columns))} metrics")
            continue
        worst = DIFFERENT
        print(f"different: {name}: {'; '.join(found)}", file=sys.stderr)
        for word in _versions(run, again[run.id]):
            print(f"  {word}", file=sys.stderr)
    return worst


def differences(before: Mapping[str, Array], after: Mapping[str, Array]) -> list[str]:
    """What differs between the metrics of two runs, in words; empty if nothing does."""
    found = []
    for name in sorted(_compared(before) | _compared(after)):
        first, second = before.get(name), after.get(name)
        if first is None or second is None:
            found.append(f"{name} is only in the {'second' if first is None else 'first'}")
        elif first.shape != second.shape:
            found.append(f"{name} has the shape {first.shape} before and {second.shape} now")
        elif not np.array_equal(first, second, equal_nan=first.dtype.kind == "f"):
            row = int(np.argwhere(_unequal(first, second))[0][0])
            found.append(f"{name} differs from row {row + 1}: {first[row].tolist()} before, {second[row].tolist()} now")
    return found


def _unequal(first: Array, second: Array) -> Array:
    both_missing = np.isnan(first) & np.isnan(second) if first.dtype.kind == "f" else False
    return np.asarray((first != second) & ~np.asarray(both_missing))


def _compared(columns: Mapping[str, Array]) -> set[str]:
    return set(columns) - TIMES


def _versions(before: RunData, after: RunData) -> list[str]:
    """What else has changed, which may be the reason."""
    names = sorted(before.environment.keys() | after.environment.keys())
    changed = [name for name in names if before.environment.get(name) != after.environment.get(name)]
    return [f"{name}: {before.environment.get(name)} before, {after.environment.get(name)} now" for name in changed]
