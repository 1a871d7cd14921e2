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
    """Read a path or a URL; a type for argparse. A file's URL becomes its path, and ~ a home."""
    if not _URL.match(text):
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
