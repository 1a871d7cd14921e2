"""Recordings of exploration runs: one small GIF for each method, if there is one with a run."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.analysis.report.groups import EXPLORATION, Setting
from headway.analysis.results import find_stores
from headway.errors import StoreError
from headway.runs.files import read_bytes
from headway.runs.storage import STORE_FILE
from headway.study.protocols.names import title

FILM_FILE = "play.gif"
MOST_BYTES = 2 << 20
"""A recording larger than this is not put into the page ..."""
MOST_BYTES_IN_ALL = 7 << 20
"""... nor one that would make all of them together larger than this."""
_GIF = (b"GIF87a", b"GIF89a")


@dataclass(frozen=True)
class Film:
    """A recording.

    Attributes:
        title: what it shows.
        source: a data: URL.
    """

    title: str
    source: str


def films(source: Path, settings: Sequence[Setting]) -> list[Film]:
    """The recordings of a store: for each setting and method that of its first seed that has one."""
    stores, found, room = stores_at(source), [], MOST_BYTES_IN_ALL
    for setting in settings:
        for name, runs in setting.all.items() if setting.kind == EXPLORATION else ():
            for run in runs:
                content = next(filter(None, (_read(store / run.id) for store in stores)), b"")
                if content and len(content) <= room:
                    room -= len(content)
                    data = base64.b64encode(content).decode()
                    found.append(
                        Film(f"{title(name)}, {setting.title}, seed {run.seed}", f"data:image/gif;base64,{data}")
                    )
                    break
    return found


def stores_at(source: Path) -> list[Path]:
    """The run stores that runs were read from: the source itself, or those inside it."""
    return [source] if (source / STORE_FILE).is_file() else find_stores(source)


def _read(folder: Path) -> bytes:
    """The recording in the folder of a run; nothing if there is none, or something else under its name."""
    try:
        content = read_bytes(folder / FILM_FILE, MOST_BYTES) or b""
    except StoreError:
        return b""
    return content if content.startswith(_GIF) else b""
