"""What holds for all tests."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

from headway.experiments.instructions import use_common_instructions

use_common_instructions()  # as in runs: in this process too, so that it can be compared with workers
torch.set_num_threads(1)  # as in runs: sums come out the same on every machine, and small models are quicker
settings.register_profile("headway", deadline=None)  # a busy machine is no error
settings.load_profile("headway")


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Let no test depend on what the ones before it have drawn."""
    torch.manual_seed(0)
