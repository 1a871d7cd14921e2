"""The figures for print, drawn in this process or, for large reports, in several at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from headway.analysis.charts.catalogue import Plan, plan_figures, protocol_folders
from headway.analysis.charts.model import Chart
from headway.analysis.results import Results, load_results
from headway.errors import FigureError

WORTH_A_PROCESS = 6
"""A further process reads all runs again, which pays from this many figures on."""
MOST_PROCESSES = 2
"""Each takes a few hundred MB, so more are not used however many cores there are."""

Tell = Callable[[str, int, int], None]
"""Told what is being done, and how many steps of how many are."""


@dataclass(frozen=True)
class Printed:
    """A figure on disk: its name, what it shows, and its files."""

    name: str
    caption: str
    files: Sequence[Path]


@dataclass
class Prints:
    """What came of all figures.

    Attributes:
        printed: those that were drawn.
        omissions: names of those that were not, and why.
    """

    printed: list[Printed] = field(default_factory=list)
    omissions: list[tuple[str, str]] = field(default_factory=list)


def print_figures(
    source: Path, results: Results, folder: Path, formats: Sequence[str], tell: Tell, processes: int = 1
) -> Prints:
    """Draw every figure that the runs allow; one that fails is left out with its reason.

    Args:
        source: where the runs are, for further processes to read.
        results: the runs.
        folder: where the figures go; with several protocols each gets a folder of its own.
        formats: "pdf", "svg", "png"; none draws nothing.
        tell: told how far it is.
        processes: how many to use at most.
    """
    plans = plan_figures(results) if formats else []
    found = Prints(omissions=[(item.id, item.reason) for plan in plans for item in plan.omissions])
    charts = list(named_charts(plans))
    for name, _ in charts:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    processes = min(processes, MOST_PROCESSES, len(charts) // WORTH_A_PROCESS)
    failed: set[str] = set()
    if processes > 1:
        failed = _print_in_processes(source, folder, [name for name, _ in charts], formats, tell, processes)
    for number, (name, chart) in enumerate(charts):
        if processes <= 1 or name in failed:
            tell(f"drawing {name}", number, len(charts))
            try:
                _print(chart, folder / name, formats)
            except (FigureError, ValueError, ArithmeticError) as error:
                found.omissions.append((name, str(error)))
                continue
        files = [folder / f"{name}.{kind}" for kind in formats]
        found.printed.append(Printed(name, chart.caption, files))
    return found


def named_charts(plans: Sequence[Plan]) -> Iterator[tuple[str, Chart]]:
    """All charts, each with the path of its files; one protocol needs no folder of its own."""
    folders = protocol_folders(plan.protocol for plan in plans if plan.protocol and plan.charts)
    for plan in plans:
        folder = folders.get(plan.protocol)
        for chart in plan.charts:
            yield (f"{folder}/{chart.id}" if folder else chart.id), chart


def _print(chart: Chart, stem: Path, formats: Sequence[str]) -> None:
    from headway.analysis.charts.drawing import draw
    from headway.analysis.charts.figure import house_style, save

    with house_style():
        save(draw(chart), stem, formats)


def _print_in_processes(
    source: Path, folder: Path, names: Sequence[str], formats: Sequence[str], tell: Tell, processes: int
) -> set[str]:
    """Draw figures in several processes; returns the names of those that could not be drawn there."""
    left = set(names)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(processes, context, initializer=_prepare, initargs=(source,)) as pool:
            waiting = {pool.submit(_print_by_name, name, folder / name, formats): name for name in names}
            for number, future in enumerate(as_completed(waiting)):
                tell(f"drawing {waiting[future]}", number, len(names))
                if future.exception() is None:
                    left.discard(waiting[future])
    except BrokenProcessPool:
        pass  # out of memory, say: what is left is drawn here, one by one
    return left


_prepared: dict[str, Chart] = {}
"""In a further process: what it can draw."""


def _prepare(source: Path) -> None:
    _prepared.update(named_charts(plan_figures(load_results(source))))


def _print_by_name(name: str, stem: Path, formats: Sequence[str]) -> None:
    _print(_prepared[name], stem, formats)
