"""Figures for print: the house style, new figures with a legend, and files. Equal figures give equal files."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.analysis.charts.model import FORMATS, INK
from headway.errors import FigureError, MissingExtraError
from headway.runs.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN_WIDTH, TEXT_WIDTH = 3.3, 6.8  # Width in inches of a figure in one of two columns, and across the page
SMALLEST_FONT = 7.0  # No text in a figure is smaller than this, in points
PALE, GRID = "#666666", "#E4E4E4"  # Colours of remarks and of grid lines
PNG_DPI = 300

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
    "figure.dpi": 100.0,
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
    "mathtext.fontset": "dejavusans",
    "patch.linewidth": 0.6,
    "pdf.fonttype": 42,  # TrueType: text can be searched and edited, and publishers accept it
    "ps.fonttype": 42,
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


def require() -> None:
    """Make sure that figures can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report") from error


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house style, whatever the user's own settings are. Saving belongs inside too."""
    require()
    from matplotlib import style

    with style.context(["default", dict(RC)]):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that lays itself out and belongs to no global state; sizes are in inches."""
    require()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str], title: str = "") -> None:
    """A legend under all panels, in as few rows as the width allows, to be read row by row; with a title above it."""
    inches = sum(0.055 * len(label) + 0.6 for label in labels)  # letters of 7.5 points, and the handle
    rows = max(1, math.ceil(inches / figure.get_figwidth()))
    across = math.ceil(len(labels) / rows)
    order = [place for column in range(across) for place in range(column, len(labels), across)]
    figure.legend(
        [handles[place] for place in order],
        [labels[place] for place in order],
        loc="outside lower center",
        ncols=across,
        title=title or None,
        title_fontsize=8,
    )


def plain(name: str) -> str:
    """A name that a user has chosen, so that matplotlib shows it as it is: no formula, and not left out of legends."""
    name = name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


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
