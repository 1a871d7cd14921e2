"""Writing a report: the page, the tables as CSV and LaTeX, and the figures for print."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from headway.analysis.figures.catalogue import Drawing, Plan, plan_figures, slug
from headway.analysis.figures.saving import FORMATS, save
from headway.analysis.figures.style import house_style
from headway.analysis.report.rendering import Links, render_page
from headway.analysis.report.view import View, make_view
from headway.analysis.results import Results, load_results
from headway.errors import FigureError, StoreError
from headway.runs.files import write_bytes
from headway.runs.status import METRICS_FILE

INDEX, TABLES, FIGURES = "index.html", "tables", "figures"

Tell = Callable[[str, int, int], None]
"""Told what is being done, and how many steps of how many are."""


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        index: the page.
        size: its size in bytes.
        files: all files, the page included.
        view: what it shows.
        omissions: figures that could not be drawn, and why.
    """

    index: Path
    size: int
    files: Sequence[Path]
    view: View
    omissions: Sequence[tuple[str, str]] = field(default_factory=tuple)


def write_report(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    formats: Sequence[str] = FORMATS,
    now: datetime | None = None,
    tell: Tell = lambda what, done, total: None,
) -> Written:
    """Read runs and write a report about them.

    Args:
        source: a run store, or a folder of exported lots.
        out: the folder to write to; it is made if need be, and files of an earlier report there are replaced.
        formats: of the figures for print; none writes no such figures.
        now: the time that the page gives; the current one by default.
        tell: told how far it is.

    Raises:
        StoreError: there are no runs at ``source``, or ``out`` cannot be written to.
        MissingExtraError: a package of the extra "report" is not installed.
    """
    source, out = Path(source), Path(out)
    tell("reading the runs", 0, 1)
    results = load_results(source)
    _make_folder(out)
    tell("working out the numbers", 0, 1)
    view = make_view(source, results, now or datetime.now().astimezone())
    tables, table_files = _write_tables(view, out)
    figures, omissions, figure_files = _write_figures(results, out, formats, tell)
    links = Links(run_addresses(source, out, results), tables, figures, omissions)
    tell("writing the page", 0, 1)
    page = render_page(view, links).encode()
    write_bytes(out / INDEX, page)
    return Written(out / INDEX, len(page), [out / INDEX, *table_files, *figure_files], view, omissions)


def run_addresses(source: Path, out: Path, results: Results) -> dict[str, str]:
    """Where each run's files are, as seen from the report: its metrics, or its folder if it has none yet."""
    found = {}
    for run in results:
        folder = source / run.id
        if folder.is_dir():
            metrics = folder / METRICS_FILE
            found[run.id] = address(metrics if metrics.is_file() else folder, out)
    return found


def address(target: Path, start: Path) -> str:
    """A link from one place to another on the same disk, relative if possible."""
    try:
        path = os.path.relpath(target.absolute(), start.absolute())
    except ValueError:  # on another drive
        return target.absolute().as_uri()
    return quote(Path(path).as_posix())


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"expected a folder for the report, got {folder}, which cannot be made ({error.strerror}); choose another"
        ) from error


def _write_tables(view: View, out: Path) -> tuple[list[tuple[str, list[tuple[str, str]]]], list[Path]]:
    _make_folder(out / TABLES)
    linked, files = [], []
    for table in view.tables:
        addresses = []
        for ending, kind, text in (("csv", "CSV", table.csv()), ("tex", "LaTeX", table.latex())):
            path = out / TABLES / f"{table.name}.{ending}"
            write_bytes(path, text.encode())
            files.append(path)
            addresses.append((kind, address(path, out)))
        linked.append((table.title, addresses))
    return linked, files


def _write_figures(
    results: Results, out: Path, formats: Sequence[str], tell: Tell
) -> tuple[list[tuple[str, str, list[tuple[str, str]]]], list[tuple[str, str]], list[Path]]:
    """Draw every figure that the runs allow; one that fails is left out with its reason."""
    linked, omissions, files = [], [], []
    plans = plan_figures(results) if formats else []
    omissions = [(item.name, item.reason) for plan in plans for item in plan.omissions]
    drawings = list(_drawings(plans))
    for number, (folder, drawing) in enumerate(drawings):
        tell(f"drawing {drawing.name}", number, len(drawings))
        _make_folder(out / FIGURES / folder)
        try:
            with house_style():
                paths = save(drawing.draw(), out / FIGURES / folder / drawing.name, formats)
        except (FigureError, ValueError, ArithmeticError) as error:
            omissions.append((drawing.name, str(error)))
            continue
        files += paths
        addresses = [(path.suffix[1:].upper(), address(path, out)) for path in paths]
        linked.append((f"{folder}/{drawing.name}" if folder else drawing.name, drawing.caption, addresses))
    return linked, omissions, files


def _drawings(plans: Sequence[Plan]) -> Iterator[tuple[str, Drawing]]:
    """All drawings with the folder that they go to; one protocol needs no folder of its own."""
    labels = [plan.protocol for plan in plans if plan.protocol and plan.drawings]
    for plan in plans:
        folder = slug(plan.protocol) if len(labels) > 1 and plan.protocol else ""
        for drawing in plan.drawings:
            yield folder, drawing
