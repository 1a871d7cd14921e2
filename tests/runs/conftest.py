"""Stores, specs, a display that records, a dummy experiment, and a Ray cluster of two cores for a whole session."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headway.runs import RunSpec, RunStore
from headway.runs import experiments as registry
from headway.runs.display import Display
from headway.runs.progress import CampaignProgress, Event
from tests.runs import dummy

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


class Recorder:
    """A display that keeps the events, and passes each on to a function."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.react: Callable[[Event], object] = lambda event: None

    def __call__(self, progress: CampaignProgress) -> Display:
        self.progress = progress
        return self

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, event: Event) -> None:
        self.progress.apply(event)
        self.events.append(event)
        self.react(event)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def dummies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers the dummy experiment."""
    monkeypatch.setattr(registry, "_MODULES", registry.registered_experiments())
    registry.register_experiment(dummy.NAME, dummy.MODULE)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def spec() -> RunSpec:
    return RunSpec(experiment="controlled", condition="noise", method="gmc", seed=0, params={"epochs": 3})
