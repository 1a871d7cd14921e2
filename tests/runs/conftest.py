from __future__ import annotations

from pathlib import Path

import pytest

from headway.runs import RunSpec, RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def spec() -> RunSpec:
    return RunSpec(experiment="controlled", condition="noise", method="gmc", seed=0, params={"epochs": 3})
