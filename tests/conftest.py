"""What holds for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import settings

from headway.runs.experiments import use_common_instructions

use_common_instructions()  # as in runs: in this process too, so that it can be compared with workers
torch.set_num_threads(1)  # as in runs: sums come out the same on every machine, and small models are quicker
# A busy machine is no error, and what a change is tested with does not change by chance; `make fuzz` searches.
settings.register_profile("headway", deadline=None, derandomize=True, database=None)
settings.load_profile("headway")


SLOW_FOLDERS = {"browser", "faults", "integrations"}
"""Their tests count as slow, whether marked or not: they start browsers, clusters and trainers."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark slow folders. In parallel, tests of a file stay together, and so do all that share the Ray cluster."""
    for item in items:
        path = item.path.relative_to(Path(__file__).parent)
        on_ray = "ray_cluster" in item.fixturenames
        if on_ray or path.parts[0] in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
        if config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group("ray" if on_ray else str(path)))


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Let no test depend on what the ones before it have drawn from torch's generator; helpers use small seeds."""
    torch.manual_seed(20_260_117)
