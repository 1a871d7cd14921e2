"""Figures for print: which of them runs allow, the house style, and their files. Equal figures give equal files."""

from __future__ import annotations

import io
import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.analysis.charts import controlled
from headway.analysis.charts.drawing import GRID, draw, require
from headway.analysis.charts.model import FORMATS, INK, Chart, Item, Omission, can_compare, of_part
from headway.analysis.comparison import Setting, settings_of, slug
from headway.analysis.results import Results, load_results, studies_of
from headway.analysis.rundata import Group
from headway.errors import FigureError
from headway.runs.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORTH_A_PROCESS = 6  # A further process reads all runs again, which pays from this many figures on
MOST_PROCESSES = 2  # Each takes a few hundred MB, so more are not used however many cores there are
PNG_DPI = 300

Tell = Callable[[str, int, int], None]  # Told what is being done, and how many steps of how many are


@dataclass(frozen=True)
class FigurePlan:
    """All figures of a set of runs of one protocol."""

    protocol: str  # the label of the protocol
    charts: tuple[Chart, ...]  # the figures that can be drawn
    omissions: tuple[Omission, ...]  # those that cannot


def plan_figures(results: Results, protocol: str | None = None) -> list[FigurePlan]:
    """Plan all figures that runs allow, for each protocol on its own: runs of two protocols share no figure."""
    settings = [setting for setting in settings_of(results) if setting.finished]
    on_grid: set[Group] = set()
    maps: list[Item] = []
    if can_compare(settings):
        from headway.analysis.charts import sensitivity

        on_grid, maps = sensitivity.grid_points(settings), list(sensitivity.figures(settings))
    if not maps and settings:
        maps = [Omission("sensitivity", "no runs that differ in decay rate, floor or weight of the entropy alone")]
    labels = dict.fromkeys(setting.group.protocol for setting in settings if setting.group not in on_grid)
    chosen = [label for label in labels if protocol in (None, label)]
    plans = [_plan(label, _figures([each for each in settings if each.group.protocol == label])) for label in chosen]
    if protocol is None:
        plans.append(_plan("", of_part("sensitivity", maps)))
        found = [chart for study in studies_of(results) for chart in study.charts]
        plans += [_plan("", found)] if found else []
    return plans


def _plan(label: str, items: Iterable[Item]) -> FigurePlan:
    items = list(items)
    charts = tuple(replace(item, caption=item.caption + item.remark) for item in items if isinstance(item, Chart))
    return FigurePlan(label, charts, tuple(item for item in items if isinstance(item, Omission)))


def _figures(settings: Sequence[Setting]) -> Iterator[Item]:
    """The figures of one protocol."""
    known = ("curriculum", "noise")
    yield from controlled.figures([each for each in settings if each.group.dataset and each.group.condition in known])
    if exploring := [setting for setting in settings if setting.group.experiment == "doorkey"]:
        from headway.analysis.charts import exploration

        yield from of_part("exploration", exploration.figures(exploring))


def protocol_folders(labels: Iterable[str]) -> dict[str, str]:
    """A folder for the figures of each protocol, by its label; none if there is a single one."""
    labels = list(dict.fromkeys(labels))
    found: dict[str, str] = {}
    for label in labels if len(labels) > 1 else ():
        name = slug(label)
        others = (f"{name}-{number}" for number in itertools.count(2))  # labels may differ in signs alone
        found[label] = next(each for each in itertools.chain([name], others) if each not in found.values())
    return found


_METADATA: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}
"""What a file must not hold, because it changes from day to day or from machine to machine."""

RC: Mapping[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelpad": 3.0,
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlepad": 4.0,
    "axes.titlesize": 8.5,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.titlesize": 9.0,
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so the same on every machine
    "font.size": 8.0,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "legend.borderaxespad": 0.2,
    "legend.columnspacing": 1.4,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "legend.handletextpad": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.6,
    "patch.linewidth": 0.6,
    "pdf.fonttype": 42,  # TrueType: text can be searched and edited, and publishers accept it
    "svg.fonttype": "path",  # looks the same where the font is missing
    "svg.hashsalt": "headway",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 7.0,
    "xtick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.color": INK,
    "ytick.labelsize": 7.0,
    "ytick.major.size": 2.5,
    "ytick.major.width": 0.6,
}
"""Matplotlib's settings in the house style."""


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house style, whatever the user's own settings are. Saving belongs inside too."""
    require()
    from matplotlib import style

    with style.context(["default", dict(RC)]):
        yield


def render(figure: Figure, kind: str) -> bytes:
    """The content of a file that shows the figure. Call it under `house_style()`."""
    if kind not in FORMATS:
        raise FigureError(f"expected a format out of {', '.join(FORMATS)}, got {kind!r}")
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=PNG_DPI, metadata=_METADATA[kind])
    return content.getvalue()


def save(figure: Figure, stem: Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write a figure, once for each format; a file is whole or not there."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # it is laid out now, once for all formats ...
    figure.set_layout_engine(None)  # ... and with no engine in its place no format is drawn twice
    paths = []
    for kind in formats:
        path = stem.with_name(f"{stem.name}.{kind}")
        write_bytes(path, render(figure, kind))
        paths.append(path)
    return paths


@dataclass(frozen=True)
class Printed:
    """A figure on disk: its name, what it shows, its files, and the part of the results that it belongs to."""

    name: str
    caption: str
    files: Sequence[Path]
    part: str = ""


Omitted = list[tuple[str, str]]  # Names of figures that could not be drawn, and why


def print_figures(
    source: Path, results: Results, folder: Path, formats: Sequence[str], tell: Tell, processes: int = 1
) -> tuple[list[Printed], Omitted]:
    """Draw every figure that the runs allow in a folder; one that fails is left out with its reason.

    With several protocols each gets a folder of its own. Further processes read the runs from the source again.
    """
    plans = plan_figures(results) if formats else []
    printed: list[Printed] = []
    omitted = [(item.id, item.reason) for plan in plans for item in plan.omissions]
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
                print_chart(chart, folder / name, formats)
            except (FigureError, ValueError, ArithmeticError) as error:
                omitted.append((name, str(error)))
                continue
        files = [folder / f"{name}.{kind}" for kind in formats]
        printed.append(Printed(name, chart.caption, files, chart.part))
    return printed, omitted


def named_charts(plans: Sequence[FigurePlan]) -> Iterator[tuple[str, Chart]]:
    """All charts, each with the path of its files; one protocol needs no folder of its own."""
    folders = protocol_folders(plan.protocol for plan in plans if plan.protocol and plan.charts)
    for plan in plans:
        folder = folders.get(plan.protocol)
        for chart in plan.charts:
            yield (f"{folder}/{chart.id}" if folder else chart.id), chart


def print_chart(chart: Chart, stem: Path, formats: Sequence[str]) -> None:
    """Draw a chart, and write it once for each format."""
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


_prepared: dict[str, Chart] = {}  # In a further process: what it can draw


def _prepare(source: Path) -> None:
    _prepared.update(named_charts(plan_figures(load_results(source))))


def _print_by_name(name: str, stem: Path, formats: Sequence[str]) -> None:
    print_chart(_prepared[name], stem, formats)
