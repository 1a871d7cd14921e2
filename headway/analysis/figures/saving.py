"""Writing figures to files: equal figures give equal files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import FigureError
from headway.runs.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 300

_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {"Software": None},
}
"""What a file must not hold, because it changes from day to day or from machine to machine."""

FORMATS = tuple(_METADATA)
"""The formats that figures can be written in."""


def render(figure: Figure, kind: str) -> bytes:
    """The content of a file that shows the figure. Call it under `style.house_style()`.

    Args:
        figure: what to show.
        kind: "pdf", "svg" or "png".

    Raises:
        FigureError: no such format.
    """
    if kind not in FORMATS:
        raise FigureError(f"expected a format out of {', '.join(FORMATS)}, got {kind!r}")
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=PNG_DPI, metadata=_METADATA[kind])
    return content.getvalue()


def save(figure: Figure, stem: Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write a figure, once for each format; a file is whole or not there.

    Args:
        figure: what to write.
        stem: the path without the ending.
        formats: "pdf", "svg", "png".

    Returns:
        The paths of the files.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # it is laid out now, once for all formats ...
    figure.set_layout_engine(None)  # ... and with no engine in its place no format is drawn twice
    paths = []
    for kind in formats:
        path = stem.with_name(f"{stem.name}.{kind}")
        write_bytes(path, render(figure, kind))
        paths.append(path)
    return paths
