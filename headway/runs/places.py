"""Where runs are kept, as people write it: a folder, or a URL such as s3://bucket/runs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)


class Url(str):
    """The URL of a store; like a path, it can be divided to get to what is below it."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Url:
        """What is below."""
        return Url(f"{self.rstrip('/')}/{name}")


Place: TypeAlias = Path | Url


def parse_place(text: str) -> Place:
    """Read a path or a URL; a type for argparse. A file's URL becomes its path."""
    if not _URL.match(text):
        return Path(text)
    parts = urlsplit(text)
    if parts.scheme in ("file", "local"):
        return Path(unquote(parts.netloc + parts.path))
    return Url(text)


def parse_folder(text: str) -> Path:
    """Read a path where only a path will do; a type for argparse."""
    place = parse_place(text)
    if isinstance(place, Url):
        raise argparse.ArgumentTypeError(f"expected a folder, got a URL; fetch it first: headway fetch {text} FOLDER")
    return place
