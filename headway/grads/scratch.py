"""The buffer in which blocks of per-sample gradients are formed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headway.grads.triton_kernels import TritonKernels


_LINE = 64
"""Regions begin at multiples of so many numbers: the last bits of a sum may depend on where in memory it begins."""


def aligned(*sizes: int) -> int:
    """How far into the buffer a region begins that comes after others of these sizes."""
    return sum(-(-size // _LINE) * _LINE for size in sizes)


class Scratch:
    """One reused flat buffer per dtype and device, so that blocks of gradients stay in the cache.

    Attributes:
        kernels: what reduces without a buffer, or None.
    """

    def __init__(self, kernels: TritonKernels | None = None) -> None:
        self.kernels = kernels
        self._buffers: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._views: dict[tuple[int, tuple[int, ...], torch.dtype, torch.device], Tensor] = {}
        self._last: tuple[Tensor, Tensor] | None = None

    def take(self, shape: tuple[int, ...], like: Tensor, offset: int = 0) -> Tensor:
        """Return an uninitialised tensor of `shape` that begins `offset` numbers into the buffer; see `aligned`."""
        wanted = (offset, shape, like.dtype, like.device)
        view = self._views.get(wanted)
        if view is not None:
            return view
        end = offset + math.prod(shape)
        key = wanted[2:]
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < end:
            buffer = self._buffers[key] = like.new_empty(end)
            self._views = {known: view for known, view in self._views.items() if known[2:] != key}
        view = self._views[wanted] = buffer[offset:end].view(shape)
        return view

    def absolute(self, tensor: Tensor, offset: int = 0) -> Tensor:
        """|tensor|, kept for the case that the same tensor comes next: a bias after its weight."""
        if self._last is None or self._last[0] is not tensor:
            self._last = (tensor, torch.abs(tensor, out=self.take(tensor.shape, tensor, offset)))
        return self._last[1]

    def forget(self) -> None:
        """Let go of tensors that belong to somebody else."""
        self._last = None

    def release(self) -> None:
        """Give the memory back."""
        self.forget()
        self._buffers.clear()
        self._views.clear()
