"""Opening stores: a folder, or a place behind a URL such as s3://bucket/runs."""

from __future__ import annotations

from headway.runs import RunStore
from headway.runs.address import Place, Url


def open_store(place: Place) -> RunStore:
    """The store at a place; nothing is made yet.

    Raises:
        HeadwayError: the URL is not one that can be opened.
    """
    if not isinstance(place, Url):
        return RunStore(place)
    from headway.runs.remote import open_url

    return open_url(place)
