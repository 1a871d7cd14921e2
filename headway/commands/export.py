"""The command `headway export`: the runs of a store as one small file."""

from __future__ import annotations

import argparse
from pathlib import Path

from headway.analysis.exports import SUFFIX, write_export
from headway.analysis.results import Results, load_results
from headway.runs import State
from headway.runs.address import parse_folder
from headway.runs.text import complain, emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Writes the metrics of runs to one Parquet file, without checkpoints and weights. "
        "The commands that say what runs say (report, watch, claims, figures, verify) read such files too."
    )
    add = parser.add_argument
    add("path", type=parse_folder, metavar="STORE", help="a run store, or exported runs to put together")
    add("--out", type=Path, required=True, metavar="FILE", help=f"the file, ending in {SUFFIX}")
    add("--finished", action="store_true", help="leave out runs that are not finished")
    add("--columns", action="extend", nargs="+", metavar="NAME", help="keep only these metrics")
    add("--float32", action="store_true", help="keep half of the digits, for half of the size")


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if options.out.suffix != SUFFIX:
        complain(f"headway export: expected a file name that ends in {SUFFIX}, got {options.out}")
        return 2
    results = load_results(options.path)
    kept = results.finished() if options.finished else results
    unknown = set(options.columns or ()) - {name for run in kept for name in run.columns}
    if unknown:
        known = ", ".join(sorted({name for run in kept for name in run.columns}))
        complain(f"headway export: expected metrics out of {known}, got {', '.join(sorted(unknown))}")
        return 2
    number = write_export(kept, options.out, options.columns, single=options.float32)
    _say_what_is_left_out(results, kept)
    emit(f"{number} {'run' if number == 1 else 'runs'} in {options.out}, {_size(options.out)}")
    return 0


def _say_what_is_left_out(results: Results, kept: Results) -> None:
    for problem in results.problems:
        complain(f"headway export: left out {problem.name}: {problem.message}")
    pending = kept.counts().get(State.PENDING, 0)
    if pending:
        complain(f"headway export: {pending} runs were never started; they are in it without metrics")


def _size(path: Path) -> str:
    number = path.stat().st_size
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{number / 1e3:.0f} kB"
