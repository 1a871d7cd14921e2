"""Opening stores: a folder, or a place behind a URL such as s3://bucket/runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headway.errors import UsageError
from headway.runs import RunStore
from headway.runs.address import Place, Url

Opener: TypeAlias = Callable[[Url], RunStore]
_openers: list[Opener] = []


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
