"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from headway.runs.experiments import use_common_instructions

use_common_instructions()  # as in runs: in this process too, so that it can be compared with workers
torch.set_num_threads(1)  # as in runs: sums come out the same on every machine, and small models are quicker
# A busy machine is no error, and what a change is tested with does not change by chance; `make fuzz` searches.
settings.register_profile("headway", deadline=None, derandomize=True, database=None)
settings.load_profile("headway")


MEMORY = Path("/dev/shm")


def pytest_configure() -> None:
    """Keep the tests' files in memory where there is room: many tests spend more time on the disk than computing."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4e9:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_finish() -> None:
    """Let the garbage collector, which trainers call again and again, pass over what was imported."""
    gc.freeze()


SLOW_FOLDERS = {"browser", "faults", "integrations"}
"""Their tests count as slow, whether marked or not: they start browsers, clusters and trainers."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark slow folders, and all that share the Ray cluster. In parallel, quick files come last: they fill the gaps."""
    here = Path(__file__).parent
    for item in items:
        if "ray_cluster" in item.fixturenames or item.path.relative_to(here).parts[0] in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        slow = {_together(item.nodeid) for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: _together(item.nodeid) not in slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread tests over processes by what they share, not one by one: pytest 9.2 hides xdist's own groups from it."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _together(nodeid)

    config.option.loadscopereorder = False  # it would begin with the files of the most tests
    return Scheduler(config, log)


def _together(nodeid: str) -> str:
    """What a test stays together with: its file, the browser, or the Ray cluster."""
    file = nodeid.partition("::")[0]
    if file.rpartition("/")[2].startswith("test_ray"):
        return "ray"
    return "browser" if "/browser/" in file else file


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Let no test depend on what the ones before it have drawn from torch's generator; helpers use small seeds."""
    torch.manual_seed(20_260_117)
