"""The command `headway verify`: run some of the results again, from their specs, and compare every number."""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from headway.analysis.results import Results, load_results
from headway.analysis.rundata import TIMES, Array, RunData, is_rounded, same_numbers
from headway.commands.options import add_plugin_option, add_runs_argument, parse_new_folder, whole
from headway.commands.run import FAILED, INTERRUPTED
from headway.errors import UsageError, did_you_mean
from headway.runs import RunStore
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.experiments import Context, load_datasets, load_plugins
from headway.runs.launchers import LaunchOptions
from headway.runs.processes import make_local
from headway.runs.provenance import code_fingerprint
from headway.runs.text import complain, emit

DIFFERENT = 1
DRAWN = 2
"""Runs that are drawn unless a number is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Runs some of the results again from their specs, in a store of their own, and compares every number. On the "
        "same machine with the same versions they are the same to the last bit."
    )
    add = parser.add_argument
    add_runs_argument(parser, "exported runs, or a run store")
    add("--runs", type=whole(1), metavar="N", help=f"how many runs, chosen at random ({DRAWN})")
    add("--seed", type=int, metavar="N", help="where the choice starts (default: another one each time)")
    add("--only", action="append", metavar="RUN", help="the run with this id instead; repeatable")
    add(
        "--out", type=parse_new_folder, metavar="DIR", help="where they are run again (default: a new folder in verify)"
    )
    add("--workers", type=whole(0), metavar="N", help="processes; 0 runs in this one (default: one per core)")
    add("--data-dir", type=Path, metavar="DIR", help="where datasets are looked for first")
    add("--device", default="cpu", metavar="NAME", help="where tensors live, such as cpu or cuda:0 (cpu)")
    add_plugin_option(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the chosen ones again, compare those that came to their end, and return the exit code."""
    load_plugins(options.plugin)
    runs = prepare(options)
    specs = [run.spec for run in runs]
    datasets = load_datasets(specs, options.data_dir)
    for run in runs:  # with another copy of its data no run can come out the same
        was, dataset = str(run.environment.get("fingerprint", "")), datasets.get(run.dataset or "")
        if was and dataset and was != dataset.fingerprint:
            raise UsageError(
                f"expected the {run.dataset} that {run.id} was made with (fingerprint {was[:12]}), got another "
                f"copy ({dataset.fingerprint[:12]}); --data-dir names where to look"
            )
    code = code_fingerprint()  # now, because the files may change while the runs go on
    context = Context(options.data_dir, options.device, plugins=tuple(options.plugin))
    progress = run_campaign(Campaign(specs, RunStore(options.out), context), make_local(LaunchOptions(options.workers)))
    for end in progress.failures():
        complain(f"headway: {end.run_id} failed: {end.message}")
    if not progress.is_complete():
        return INTERRUPTED
    return max(FAILED if progress.failures() else 0, compare(runs, options.out, code))


def choose(results: Results, number: int | None, seed: int | None, only: Sequence[str] | None) -> list[RunData]:
    """The runs to repeat: those that are named, or some at random."""
    finished = {run.id: run for run in results.finished()}
    if not finished:
        raise UsageError("expected finished runs to repeat, got none")
    if number is not None and only:
        raise UsageError(f"expected --runs or --only, got --runs {number} with {len(only)} named")
    for name in only or ():
        if name not in finished:
            raise UsageError(f"expected the id of a finished run, got {name!r}{did_you_mean(name, finished)}")
    if only:
        return [finished[name] for name in dict.fromkeys(only)]
    return random.Random(seed).sample(list(finished.values()), min(number or DRAWN, len(finished)))


def prepare(options: argparse.Namespace) -> list[RunData]:
    """Choose the runs, say which they are and how to go on with them, and fill in the options that were left open."""
    options.seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    options.out = options.out or Path("verify") / f"{datetime.now():%Y%m%d-%H%M%S}"
    path, out = options.path.resolve(), options.out.resolve()
    if out == path or out in path.parents or path in out.parents:
        raise UsageError(f"expected --out apart from the results, got {options.out} and {options.path}")
    runs = choose(load_results(options.path), options.runs, options.seed, options.only)
    for run in runs:
        emit(f"{run.id} {run.label} ({run.protocol})")
    chosen = "" if options.only else f"--seed {options.seed} "
    emit(f"run again in {options.out}; with {chosen}--out {options.out} the same command resumes")
    return runs


def compare(before: Sequence[RunData], store: Path, code: str) -> int:
    """Tell for each run whether it came out the same again in a store, and return the exit code.

    The code is known by its fingerprint: a run that the store had from before may be of another one.
    """
    again = {run.id: run for run in load_results(store).finished()}
    worst = 0
    for run in before:
        name = f"{run.id} {run.label}"
        if run.id not in again:
            worst = DIFFERENT
            complain(f"not run again: {name}")
            continue
        made_with = again[run.id].environment.get("code", code)
        if made_with != code:
            emit(f"note: {name} was run again before, by other code ({made_with}); another --out runs it by this one")
        found = differences(run.columns, again[run.id].columns)
        if found:
            worst = DIFFERENT
            complain(f"different: {name}: {'; '.join(found)}")
            was, here = run.environment, again[run.id].environment  # another version may be the reason
            for key in sorted(was.keys() | here.keys()):
                if was.get(key) != here.get(key):
                    complain(f"  {key}: {was.get(key)} before, {here.get(key)} now")
        else:
            now = again[run.id].columns
            names = run.columns.keys() - TIMES
            is_single = any(is_rounded(run.columns[each], now[each]) for each in names)
            single = ", in single precision as they were exported" if is_single else ""
            left = sorted(now.keys() - TIMES - names)
            rest = f"; not among the results: {', '.join(left)}" if left else ""
            emit(f"identical: {name}, {run.rows} rows of {len(names)} metrics{single}{rest}")
    return worst


def differences(before: Mapping[str, Array], after: Mapping[str, Array]) -> list[str]:
    """What differs between the metrics of two runs, in words; empty if nothing does.

    Metrics that were not exported are left alone, and those exported in single precision are compared in it.
    """
    found = []
    for name in sorted(before.keys() - TIMES):
        first, second = before[name], after.get(name)
        if second is None:
            found.append(f"{name} is not there any more")
        elif first.shape != second.shape:
            found.append(f"{name} has the shape {first.shape} before and {second.shape} now")
        elif not same_numbers(first, second) and not is_rounded(first, second):
            both_missing = np.isnan(first) & np.isnan(second) if first.dtype.kind == "f" else np.False_
            row = int(np.argwhere((first != second) & ~both_missing)[0][0])
            found.append(f"{name} differs from row {row + 1}: {first[row].tolist()} before, {second[row].tolist()} now")
    return found
