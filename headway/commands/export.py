"""The command `headway export`: the runs of a store as one small file."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from pathlib import Path

from headway.analysis.exports import write_export
from headway.analysis.results import SUFFIX, load_results
from headway.analysis.rundata import RunData
from headway.analysis.table import Cell, Table
from headway.commands.options import add_format_option, add_runs_argument
from headway.errors import UsageError
from headway.runs import State
from headway.runs.files import write_bytes
from headway.runs.text import complain, count, emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Writes the metrics of runs to one Parquet file, without checkpoints and weights. "
        "The commands that read results (report, watch, claims, figures, verify) read such files too."
    )
    add = parser.add_argument
    add_runs_argument(parser, "a run store, or exported runs to put together")
    add("--out", type=Path, metavar="FILE", help=f"the file, ending in {SUFFIX}; other formats are printed without one")
    add_format_option(parser, ("parquet",))
    add("--finished", action="store_true", help="leave out runs that are not finished")
    add("--columns", action="extend", nargs="+", metavar="NAME", help="keep only these metrics")
    add("--float32", action="store_true", help="keep half of the digits, for half of the size")


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    is_export = options.format == "parquet"
    if is_export and (options.out is None or options.out.suffix != SUFFIX):
        got = options.out or "none"
        raise UsageError(f"expected a file name that ends in {SUFFIX}, got {got}; --out names it")
    results = load_results(options.path)
    kept = results.finished() if options.finished else results
    known = {name for run in kept for name in run.columns}
    if unknown := set(options.columns or ()) - known:
        raise UsageError(f"expected metrics out of {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")
    if not is_export:
        text = metrics_table(kept, options.columns).formatted(options.format)
        if options.out is None:
            return 0 if emit(text) else 1
        write_bytes(options.out, f"{text}\n".encode())
    number = write_export(kept, options.out, options.columns, single=options.float32) if is_export else len(kept)
    for problem in results.problems:
        complain(f"headway export: left out {problem.name}: {problem.message}")
    if pending := kept.counts().get(State.PENDING, 0):
        complain(f"headway export: {pending} runs were never started; they are in it without metrics")
    size = options.out.stat().st_size
    size_text = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    emit(f"{count(number, 'run')} in {options.out}, {size_text}")
    return 0


def metrics_table(runs: Iterable[RunData], columns: Collection[str] | None) -> Table:
    """The metrics as one table, a row for each epoch or rollout of a run, a column for each value."""
    rows: list[dict[str, Cell]] = []
    for run in runs:
        parts = ("experiment", "dataset", "condition", "method", "seed", "protocol")
        names: dict[str, Cell] = {"run": run.id, **{part: getattr(run, part) for part in parts}}
        metrics = {name: values for name, values in run.columns.items() if columns is None or name in columns}
        for row in range(run.rows):
            cells: dict[str, Cell] = {**names, "row": row + 1}
            for name, values in metrics.items():
                value = values[row].tolist()
                if isinstance(value, list):
                    cells |= {f"{name}.{place}": each for place, each in enumerate(value)}
                else:
                    cells[name] = value
            rows.append(cells)
    heads = list(dict.fromkeys(name for cells in rows for name in cells))
    return Table(heads, [[cells.get(name) for name in heads] for cells in rows])
