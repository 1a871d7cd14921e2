"""The processes of torch.distributed: which one this is, and sums over all of them."""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from headway.errors import SelectionError


def rank_and_replicas(rank: int | None, num_replicas: int | None) -> tuple[int, int]:
    """Which replica this is and how many there are: as given, of torch.distributed where it is in use, or 0 of 1.

    Raises:
        SelectionError: one was given without the other.
    """
    if (rank is None) != (num_replicas is None):
        raise SelectionError(f"expected rank and num_replicas together, got {rank} and {num_replicas}")
    if rank is not None and num_replicas is not None:
        return rank, num_replicas
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def summed(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes, where torch.distributed is in use; on the host."""
    if distributed.is_available() and distributed.is_initialized():
        values = values.to(collective_device())
        distributed.all_reduce(values)
    return values.cpu()


def collective_device() -> torch.device:
    """Where a tensor has to lie to be added up: NCCL takes none of the host, whatever device the scores are on."""
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")


def gathered(values: Tensor) -> Tensor:
    """The rows of all processes' tensors [n, ...], of any n each, in the order of ranks; on the host."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return values.cpu()
    values = values.to(collective_device())
    sizes = [torch.zeros(1, dtype=torch.int64, device=values.device) for _ in range(distributed.get_world_size())]
    distributed.all_gather(sizes, torch.tensor([len(values)], device=values.device))
    most = max(int(size) for size in sizes)
    padded = values.new_zeros(most, *values.shape[1:])
    padded[: len(values)] = values
    parts = [torch.zeros_like(padded) for _ in sizes]
    distributed.all_gather(parts, padded)
    return torch.cat([part[: int(size)] for part, size in zip(parts, sizes, strict=True)]).cpu()
