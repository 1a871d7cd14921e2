"""Stores and runs as people write them: a folder or a URL such as s3://bucket/runs, a run's id or its beginning."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from headway.errors import UsageError
from headway.runs.status import RunRecord
from headway.runs.store import RunStore, is_url

_SHOWN = 5


class Url(str):
    """The URL of a store; like a path, it can be divided to get to what is below it."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Url:
        """What is below."""
        return Url(f"{self.rstrip('/')}/{name}")


Place: TypeAlias = Path | Url


def parse_place(text: str) -> Place:
    """Read a path or a URL; a type for argparse. A file's URL becomes its path, and ~ a home."""
    if not is_url(text):
        return _parse_path(text)
    parts = urlsplit(text)
    if parts.scheme in ("file", "local"):
        return _parse_path(unquote(parts.netloc + parts.path))
    return Url(text)


def _parse_path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected a folder or a URL, got nothing; . is the folder at hand")
    try:
        return Path(text).expanduser() if text.startswith("~") else Path(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(
            f"expected a folder, got {text!r} of an unknown user; ./{text} is a folder of this name"
        ) from error


def parse_folder(text: str) -> Path:
    """Read a path where only a path will do; a type for argparse."""
    return _local(text, f"; fetch it first: headway fetch {text} FOLDER")


def parse_new_folder(text: str) -> Path:
    """Read a path of a folder to be written, where only a path will do; a type for argparse."""
    return _local(text, f" ({text}), which only the --out of headway run takes")


def _local(text: str, hint: str) -> Path:
    place = parse_place(text)
    if isinstance(place, Url):
        raise argparse.ArgumentTypeError(f"expected a folder, got a URL{hint}")
    return place


def open_store(place: Place) -> RunStore:
    """The store at a place; nothing is made yet."""
    return RunStore(place)


def find_run(text: str, store: Path) -> tuple[RunStore, RunRecord]:
    """The run that is meant, and the store that it is in."""
    folder = Path(text)
    if (folder / "spec.json").is_file():
        home = RunStore(folder.resolve().parent)
        return home, home.record(folder.resolve().name)
    home = RunStore(store)
    records = home.status()
    found = [record for record in records if record.run_id.startswith(text)] if text else []
    if len(found) == 1:
        return home, found[0]
    if not found:
        raise UsageError(
            f"expected the folder of a run, or an id in {store} or its beginning, got {text!r}; "
            f"the runs: headway status {store}"
        )
    names = ", ".join(f"{record.run_id} ({record.spec})" for record in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise UsageError(f"expected an id of one run in {store}, got {text!r}, which begins {len(found)}: {names}{more}")
