"""What holds for all tests."""

from __future__ import annotations

import torch

from headway.experiments.instructions import use_common_instructions

use_common_instructions()  # as in runs: in this process too, so that it can be compared with workers
torch.set_num_threads(1)  # as in runs: sums come out the same on every machine, and small models are quicker
