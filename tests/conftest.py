"""What holds for all tests."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

from headway.runs.experiments import use_common_instructions

use_common_instructions()  # as in runs: in this process too, so that it can be compared with workers
torch.set_num_threads(1)  # as in runs: sums come out the same on every machine, and small models are quicker
# A busy machine is no error, and what a change is tested with does not change by chance; `make fuzz` searches.
settings.register_profile("headway", deadline=None, derandomize=True, database=None)
settings.load_profile("headway")


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Let no test depend on what the ones before it have drawn from torch's generator; helpers use small seeds."""
    torch.manual_seed(20_260_117)
