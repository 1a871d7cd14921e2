"""A Ray cluster of two cores on this machine, shared by all tests of a session."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.experiments.conftest import dummies, recorder, store

__all__ = ["dummies", "recorder", "store"]

MEMORY = 100 * 2**20
T = TypeVar("T")


def patiently(begin: Callable[[], T], clear: Callable[[], object] = lambda: None) -> T:
    """Start something of Ray's, which gives up after half a minute; a busy machine may take that long.

    Args:
        begin: starts it.
        clear: clears away what an attempt has left.
    """
    for tries_left in (2, 1, 0):
        try:
            return begin()
        except Exception:
            clear()
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def start(ray: Any, **options: Any) -> None:
    """Start a cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    settings = {"include_dashboard": False, "object_store_memory": MEMORY, "log_to_driver": False, **options}
    patiently(lambda: ray.init(address="local", logging_level="ERROR", **settings), ray.shutdown)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Ray, connected to a cluster with two cores."""
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        start(ray, num_cpus=2)
        yield ray
        ray.shutdown()
