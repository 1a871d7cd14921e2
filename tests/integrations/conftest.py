"""A Ray cluster of two cores on this machine, shared by all tests of a session."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.experiments.conftest import dummies, recorder, store

__all__ = ["dummies", "recorder", "store"]

MEMORY = 100 * 2**20


def start(ray: Any, **options: Any) -> None:
    """Start a cluster; Ray gives up after half a minute, which a busy machine may take."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    settings = {"include_dashboard": False, "object_store_memory": MEMORY, "log_to_driver": False, **options}
    for tries_left in (2, 1, 0):
        try:
            ray.init(address="local", logging_level="ERROR", **settings)
            return
        except Exception:
            ray.shutdown()
            if not tries_left:
                raise


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Ray, connected to a cluster with two cores."""
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        start(ray, num_cpus=2)
        yield ray
        ray.shutdown()
