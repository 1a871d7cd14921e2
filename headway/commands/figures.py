"""The command `headway figures`: draw every figure that the runs of a store allow."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headway.analysis.charts.drawing import require
from headway.analysis.charts.figure import FigurePlan, plan_figures, print_chart, protocol_folders
from headway.analysis.charts.model import FORMATS
from headway.analysis.results import Results, load_results
from headway.commands.options import add_runs_argument, make_folder
from headway.errors import FigureError
from headway.runs import State
from headway.runs.files import write_bytes
from headway.runs.text import complain, emit

CAPTIONS_FILE = "captions.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "Draws every figure that the finished runs of a store allow, and says which are left out."
    add = parser.add_argument
    add_runs_argument(parser, "a run store, or a folder of exported runs")
    add("--out", type=Path, default=Path("figures"), metavar="DIR", help="where the figures go (%(default)s)")
    add(
        "--format",
        nargs="+",
        default=list(FORMATS),
        choices=FORMATS,
        metavar="KIND",
        help=f"out of {', '.join(FORMATS)} (default: all)",
    )
    add(
        "--protocol",
        metavar="NAME",
        help="only runs of this protocol, such as released (default: all, a folder for each)",
    )
    add(
        "--only",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME",
        help="only figures whose names begin with one of these",
    )


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    require()  # better now than after loading
    results = load_results(options.path)
    plans = _choose(plan_figures(results, options.protocol), results, options)
    formats = list(dict.fromkeys(options.format))
    below = protocol_folders(plan.protocol for plan in plans if plan.protocol)
    folders = [options.out / below.get(plan.protocol, "") for plan in plans]  # the output itself if there is only one
    _announce(results)
    for plan, folder in zip(plans, folders, strict=True):
        prefix = "" if folder == options.out else f"{folder.name}/"
        if plan.charts:
            make_folder(folder)
        for chart in plan.charts:
            print_chart(chart, folder / chart.id, formats)
            emit(f"drew {folder / chart.id}")
        left_out: dict[str, list[str]] = {}
        for omission in plan.omissions:
            left_out.setdefault(omission.reason, []).append(f"{prefix}{omission.id}")
        for reason, names in left_out.items():
            emit(f"left out {', '.join(names)}: {reason}")
    write_bytes(options.out / CAPTIONS_FILE, "\n".join(_captions(plans)).encode())
    number = sum(len(plan.charts) for plan in plans)
    emit(f"{number} figures in {options.out}, each as {', '.join(formats)}; captions in {CAPTIONS_FILE}")
    return 0


def _choose(plans: Sequence[FigurePlan], results: Results, options: argparse.Namespace) -> list[FigurePlan]:
    """The plans with something in them, restricted to the names that were asked for."""
    begins = tuple(options.only) or ("",)
    found = [
        replace(
            plan,
            charts=tuple(chart for chart in plan.charts if chart.id.startswith(begins)),
            omissions=tuple(omission for omission in plan.omissions if omission.id.startswith(begins)),
        )
        for plan in plans
    ]
    found = [plan for plan in found if plan.charts or plan.omissions]
    if any(plan.charts for plan in found):
        return found
    finished = results.finished()
    if not finished.runs:
        states = ", ".join(f"{number} {state.value}" for state, number in results.counts().items()) or "no runs"
        raise FigureError(f"expected finished runs in {options.path}, got {states}")
    if options.protocol and options.protocol not in finished.protocols():
        known = "; ".join(finished.protocols())
        raise FigureError(f"expected a protocol of the finished runs, got {options.protocol!r}; there are: {known}")
    if options.only and any(plan.charts for plan in plans):
        known = ", ".join(chart.id for plan in plans for chart in plan.charts)
        raise FigureError(
            f"expected the beginning of a figure's name, got {' '.join(options.only)}; there are: {known}"
        )
    reasons = "; ".join(f"{item.id}: {item.reason}" for plan in found for item in plan.omissions)
    raise FigureError(f"expected runs that allow at least one figure, got none ({reasons or 'unknown experiments'})")


def _announce(results: Results) -> None:
    """Say what the figures rest on, and what is not in them."""
    finished = results.finished()
    others = {state: number for state, number in results.counts().items() if state is not State.DONE}
    rest = ", ".join(f"{number} {state.value}" for state, number in others.items())
    emit(f"{len(finished)} finished runs" + (f" (not shown: {rest})" if rest else ""))
    for problem in results.problems:
        complain(f"headway: left out {problem.name}: {problem.message}")


def _captions(plans: Sequence[FigurePlan]) -> Iterator[str]:
    """A paragraph for each figure."""
    for plan in plans:
        if plan.protocol and plan.charts:
            yield f"# Protocol: {plan.protocol}\n"
        for chart in plan.charts:
            yield f"**{chart.id}.** {chart.caption}\n"
