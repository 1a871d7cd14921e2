"""Run stores behind URLs, such as s3://bucket/runs: `headway run ... --out URL`.

What is written where, and why nothing is lost, is said in `storage`.
"""

from headway.runs.locks import DEFAULT_LEASE
from headway.runs.remote.fetching import fetch
from headway.runs.remote.storage import UrlStorage
from headway.runs.store import RunStore

__all__ = ["RemoteStore", "UrlStorage", "fetch"]


def RemoteStore(url: str, lease: float = DEFAULT_LEASE) -> RunStore:  # noqa: N802 - it was a class
    """The former name of a `RunStore` behind a URL."""
    return RunStore(UrlStorage(url), lease)
