from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.experiments import registry
from headway.experiments.display import Display
from headway.experiments.events import Event
from headway.experiments.tally import Tally
from headway.runs import RunStore
from tests.experiments import dummy


class Recorder:
    """A display that keeps the events, and passes each on to a function."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.react: Callable[[Event], object] = lambda event: None

    def __call__(self, tally: Tally) -> Display:
        self.tally = tally
        return self

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, event: Event) -> None:
        self.tally.apply(event)
        self.events.append(event)
        self.react(event)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def dummies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers the dummy experiment."""
    monkeypatch.setattr(registry, "_MODULES", registry.registered_experiments())
    registry.register_experiment(dummy.NAME, dummy.MODULE)
