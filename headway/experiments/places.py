"""Where runs are kept: a folder, or a place behind a URL such as s3://bucket/runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from headway.errors import UsageError
from headway.runs import RunStore

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)


class Url(str):
    """The URL of a store; like a path, it can be divided to get to what is below it."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Url:
        """What is below."""
        return Url(f"{self.rstrip('/')}/{name}")


Place: TypeAlias = Path | Url
Opener: TypeAlias = Callable[[Url], RunStore]
_openers: list[Opener] = []


def parse_place(text: str) -> Place:
    """Read a path or a URL; a type for argparse. A file's URL becomes its path."""
    if not _URL.match(text):
        return Path(text)
    parts = urlsplit(text)
    if parts.scheme in ("file", "local"):
        return Path(unquote(parts.netloc + parts.path))
    return Url(text)


def register_opener(opener: Opener) -> None:
    """Say how stores behind URLs are opened; the last word counts."""
    _openers.append(opener)


def open_store(place: Place) -> RunStore:
    """The store at a place; nothing is made yet.

    Raises:
        UsageError: it is a URL, and nobody has said how to open those.
        HeadwayError: the URL is not one that can be opened.
    """
    if not isinstance(place, Url):
        return RunStore(place)
    if not _openers:
        raise UsageError(f"expected a folder, got {place}; only `headway run` and `headway status` open URLs")
    return _openers[-1](place)
