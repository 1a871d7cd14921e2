"""What the modules of experiments offer beside `run` and `estimate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.runs.experiments import load_datasets, needed_datasets
from tests.runs import dummy
from tests.runs.dummy import spec_of

pytestmark = pytest.mark.usefixtures("dummies")


def test_an_experiment_without_datasets_needs_none() -> None:
    assert needed_datasets([spec_of()]) == []
    assert load_datasets([spec_of()], None) == {}


def test_the_experiment_loads_each_of_its_datasets_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def load_dataset(name: str, data_dir: Path | None) -> str:
        loaded.append((name, data_dir))
        return name.upper()

    monkeypatch.setattr(dummy, "datasets", lambda spec: ("a", "b")[: spec.seed], raising=False)
    monkeypatch.setattr(dummy, "load_dataset", load_dataset, raising=False)
    specs = [spec_of(seed=seed) for seed in (0, 1, 2, 1)]
    assert load_datasets(specs, Path("data")) == {"a": "A", "b": "B"}
    assert loaded == [("a", Path("data")), ("b", Path("data"))]
