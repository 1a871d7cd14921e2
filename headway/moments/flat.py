"""Tensors by name in one buffer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import torch
from torch import Tensor

from headway.errors import StateError


class Parts(Protocol):
    """How tensors beside parameters are sharded across ranks, see `headway.grads.sharded.Sharding`.

    A shard is this rank's part of a tensor, a plain tensor. Where nothing is sharded, that is the tensor itself.
    """

    def shard_of(self, tensor: Tensor) -> Tensor:
        """The shard of a DTensor; a plain tensor is one already."""
        return tensor

    def total(self, number: Tensor) -> Tensor:
        """The sum of what each rank has made of its shards."""
        return number

    def joined(self, name: str, shard: Tensor) -> Tensor:
        """The tensor beside a parameter that a shard belongs to: a DTensor, where there are several ranks."""
        return shard

    def cut(self, name: str, tensor: Tensor) -> Tensor:
        """The shard of a tensor beside a parameter, which is a DTensor or whole.

        Raises:
            StateError: it is a DTensor where nothing is sharded, or one that is sharded in another way.
        """
        if hasattr(tensor, "placements"):
            raise StateError(
                f"{name}: expected a whole tensor, got a DTensor with placements {tensor.placements}; save and load "
                f"the state of a sharded model with torch.distributed.checkpoint (no_dist=True for one process), or "
                f"replace each DTensor by its full_tensor() on all ranks first"
            )
        return tensor


class Whole(Parts):
    """Tensors that are not shared out: each rank has all of them."""


WHOLE = Whole()


class Flat(dict[str, Tensor]):
    """Tensors by name that lie side by side in one buffer, so that one operation can pass over all of them.

    Args:
        like: tensors that say what shapes there are, in which order and where; the new ones are zero, in the same
            precision but never below float32.

    Attributes:
        whole: the buffer, or None if the tensors do not share one: their types or devices differ, or one was replaced.
            Between two tensors it has zeros, as every tensor begins at a multiple of 64 bytes.
    """

    def __init__(self, like: Mapping[str, Tensor]) -> None:
        kinds = {(torch.promote_types(one.dtype, torch.float32), one.device) for one in like.values()}
        self.whole: Tensor | None = None
        if len(kinds) != 1:
            super().__init__({name: _zeros(one) for name, one in like.items()})
            return
        dtype, device = kinds.pop()
        ends = [0]
        for one in like.values():
            ends.append(-(-(ends[-1] + one.numel()) // 16) * 16)
        last = list(like.values())[-1].numel()
        self.whole = torch.zeros(ends[-2] + last, dtype=dtype, device=device)
        super().__init__(
            {
                name: self.whole[start : start + one.numel()].view(one.shape)
                for (name, one), start in zip(like.items(), ends[:-1], strict=True)
            }
        )

    def fits(self, other: Flat) -> bool:
        """Whether the tensors have the names, shapes, types and devices of others."""
        return self.keys() == other.keys() and all(
            (one.shape, one.dtype, one.device) == (own.shape, own.dtype, own.device)
            for one, own in zip(self.values(), other.values(), strict=True)
        )

    def replace(self, name: str, tensor: Tensor) -> None:
        """Put another tensor in the place of one; there is no common buffer any more."""
        self.whole = None
        self[name] = tensor


def side_by_side(names: Collection[str], *flats: Flat) -> list[tuple[Tensor, ...]]:
    """The tensors of some names, one of each: as few as possible, the buffers themselves where these hold no others."""
    wholes = [flat.whole for flat in flats if flat.whole is not None and len(flat) == len(names)]
    if len(wholes) == len(flats):
        return [tuple(wholes)]
    return [tuple(flat[name] for flat in flats) for name in names]


def _zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(
        parameter, dtype=torch.promote_types(parameter.dtype, torch.float32), requires_grad=False
    ).contiguous()
