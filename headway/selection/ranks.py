"""Sums over the processes of torch.distributed."""

from __future__ import annotations

import torch
from torch import Tensor, distributed


def summed(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes, where torch.distributed is in use; on the host."""
    if distributed.is_available() and distributed.is_initialized():
        values = values.to(collective_device())
        distributed.all_reduce(values)
    return values.cpu()


def collective_device() -> torch.device:
    """Where a tensor has to lie to be added up: NCCL takes none of the host, whatever device the scores are on."""
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
