"""What holds for all tests."""

from __future__ import annotations

import torch

torch.set_num_threads(1)  # as in runs: sums come out the same on every machine, and small models are quicker
