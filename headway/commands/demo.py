"""`headway demo`: the study in small, on digits, with six signals, a few seeds, and a table of what came out."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path

from headway.analysis import Results, load_results
from headway.analysis.comparison import MethodRow, method_rows
from headway.analysis.report.findings import conclusion
from headway.analysis.table import Cell, Table, interval, number, percent
from headway.commands.options import add_format_option, parse_new_folder, whole
from headway.commands.report import report_if_possible
from headway.runs import RunSpec, RunStore
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.launchers import LaunchOptions
from headway.runs.processes import make_local
from headway.runs.progress import Outcome
from headway.runs.text import emit
from headway.study.controlled import specs
from headway.study.image_environment import CONDITIONS
from headway.study.protocols.classification import Protocol
from headway.study.protocols.names import GROUP_NAMES
from headway.study.signals import SIX


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the demo."""
    add = parser.add_argument
    add("--out", type=parse_new_folder, default=Path("runs/demo"), help="where the runs are kept (%(default)s)")
    add("--workers", type=whole(0), help="processes; 0 runs in this one (default: one per core)")
    add("--report", type=Path, default=Path("report/demo"), metavar="DIR", help="where the report goes (%(default)s)")
    add("--seeds", type=int, default=3, choices=range(2, 21), metavar="N", help="2 to 20 (%(default)s)")
    add_format_option(parser)


def demo_specs(seeds: int = 3) -> list[RunSpec]:
    """The runs of the demo."""
    return specs(["digits"], CONDITIONS, SIX, range(seeds), Protocol.demo())


def execute(options: argparse.Namespace) -> int:
    """Run what is not done, print the table, and write a report if its packages are installed."""
    runs = demo_specs(options.seeds)
    emit(f"Digits, two conditions, six signals, {options.seeds} seeds: {len(runs)} runs in {options.out}")
    progress = run_campaign(Campaign(runs, RunStore(options.out)), make_local(LaunchOptions(options.workers)))
    if progress.failures():
        emit(f"{len(progress.failures())} runs failed; see: headway status {options.out} --failed")
        return 1
    done = progress.count(Outcome.DONE)
    if done < len(runs):
        emit(f"{done} of {len(runs)} runs are done; the same command goes on with the rest")
        return 130
    rows = rows_of(options.out, {spec.run_id for spec in runs})
    emit("\n\n".join(table.formatted(options.format) for table in tables(rows)))
    emit(f"\n{conclusion([row for row in rows if row.group.condition == 'noise'])}")
    emit(f"\nThe runs: headway status {options.out}")
    report_if_possible(options.out, options.report)
    return 0


def rows_of(folder: Path, run_ids: Collection[str]) -> list[MethodRow]:
    """One row per condition and signal, as the report has them, for the named runs of a store."""
    runs = Results(tuple(run for run in load_results(folder) if run.id in run_ids))
    return [row for members in runs.groups().values() for row in method_rows(members)]


def tables(rows: Sequence[MethodRow]) -> list[Table]:
    """A table for each condition: areas relative to uniform sampling, and the groups' shares of the last draws."""
    found = []
    for condition in dict.fromkeys(row.group.condition for row in rows):
        heads = ["signal", "loss area / uniform", "95% interval", *GROUP_NAMES[condition]]
        cells: list[list[Cell]] = []
        for row in (row for row in rows if row.group.condition == condition):
            ratio = None if row.method == "uniform" else row.relative
            shares = [percent(share.value) for share in row.shares]
            cells.append([row.method, number(ratio.value if ratio else 1.0, ".3f"), interval(ratio, ".3f"), *shares])
        found.append(Table(heads, cells, f"{condition}, and the share of the last draws that each group gets"))
    return found
