"""Run stores behind URLs, such as s3://bucket/runs: `headway run ... --out URL`.

What is written where, and why nothing is lost, is said in `store`.
"""

from headway.runs.remote.fetching import fetch
from headway.runs.remote.store import RemoteStore, open_url

__all__ = ["RemoteStore", "fetch", "open_url"]
