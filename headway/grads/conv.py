"""Rules for convolutions, as outer products of patches with output gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from headway.grads.persample import Dense, Outer, PerSample, promote
from headway.grads.registry import Inputs, register_rule


@dataclass(frozen=True)
class Geometry:
    """Which patches a convolution sees.

    Attributes:
        weight: the weight's shape, [out, in / groups, *kernel], or [in, out / groups, *kernel] of a transposed one.
        stride: steps between patches.
        padding: at the front and the back of each dimension, the last dimension first, as `F.pad` wants it.
        dilation: steps within a patch.
        groups: groups of channels.
        mode: how the padding is filled, as in `F.pad`.
        transposed: it is the adjoint of a convolution.
    """

    weight: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    mode: str = "constant"
    transposed: bool = False

    @classmethod
    def of(cls, module: nn.Conv2d | nn.ConvTranspose2d) -> Geometry:
        """That of a module."""
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        return cls(
            tuple(module.weight.shape),
            module.stride,
            tuple(module._reversed_padding_repeated_twice),
            module.dilation,
            module.groups,
            mode,
            module.transposed,
        )

    def pad(self, x: Tensor) -> Tensor:
        """Padded images, channels last: [c, channels, *size] -> [c, *padded, channels]."""
        if self.mode != "constant":
            return _channels_last(F.pad(x, self.padding, mode=self.mode)).contiguous()
        return F.pad(_channels_last(x), [0, 0, *self.padding]) if any(self.padding) else _channels_last(x).contiguous()

    def patches(self, x: Tensor, size: tuple[int, ...] = ()) -> Tensor:
        """Cut images [c, channels, *size] into the patches that a kernel sees, at the first `size` places or all.

        The channels stand last, so that a row of the kernel is one run of memory; that makes the cut much
        faster than an im2col with the channels first.

        Returns:
            Patches [c * groups, T, d] with d = prod(kernel) * channels / groups, kernel first.
        """
        kernel, dims = self.weight[2:], len(self.weight) - 2
        windows = self.pad(x).unflatten(-1, (self.groups, -1)).movedim(-2, 1)  # [c, groups, *size, channels]
        for axis in range(dims):
            span = (kernel[axis] - 1) * self.dilation[axis] + 1
            windows = windows.unfold(2 + axis, span, self.stride[axis])[..., :: self.dilation[axis]]
        cut = windows.movedim(2 + dims, -1).flatten(2 + dims)  # channels behind the kernel
        for axis, length in enumerate(size):  # output_padding may leave room for a patch that no input made
            cut = cut.narrow(2 + axis, 0, length)
        return cut.flatten(2, -2).flatten(0, 1)

    def outer(self, cut: Tensor | partial[Tensor], maps: Tensor) -> Outer:
        """Gradients of the weight from patches [c * groups, T, d] and channels-first maps at their places."""
        by_group = maps.reshape(len(maps) * self.groups, maps.shape[1] // self.groups, -1).transpose(1, 2)
        kernel_first = (0, *range(2, len(self.weight)), 1)  # the order of dimensions that patches have
        return Outer(cut, by_group, self.groups, kernel_first, self.weight)


def twice(padding: Sequence[int]) -> tuple[int, ...]:
    """The same padding in front and behind, the last dimension first."""
    return tuple(pad for pad in reversed(padding) for _ in range(2))


def _channels_last(x: Tensor) -> Tensor:
    """Channels last: [c, channels, *size] -> [c, *size, channels]."""
    return x.movedim(1, -1)


def convolve(geometry: Geometry, x: Tensor, b: Tensor) -> dict[str, PerSample]:
    """The weight's gradient is sum_t D_t patch_t^T for each group of channels.

    In a transposed convolution inputs and patches of the output gradient change places.
    """
    x, b = promote(x, b)
    if geometry.transposed:
        weight = geometry.outer(partial(geometry.patches, b, tuple(x.shape[2:])), x)
    else:
        weight = geometry.outer(partial(geometry.patches, x), b)
    return {"weight": weight, "bias": Dense(b.flatten(2).sum(2))}


def conv_footprint(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> int:
    """A gradient of the weight, and the patches."""
    conv = cast(nn.Conv2d, module)
    positions = inputs[0] if conv.transposed else grad_output
    return footprint(conv.weight.shape, conv.groups, positions)


def footprint(weight: Sequence[int], groups: int, positions: Tensor) -> int:
    """The same from the weight's shape, and a tensor with one place for each patch."""
    numbers = math.prod(weight)
    return numbers + numbers // weight[0] * groups * positions[0, 0].numel()


def always(inputs: Inputs) -> bool:
    """A convolution has several positions."""
    return True


@register_rule(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, footprint=conv_footprint, samples_first=True)
@register_rule(nn.Conv1d, nn.Conv2d, nn.Conv3d, footprint=conv_footprint, samples_first=True, simultaneous=always)
def convolution(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """See `convolve`."""
    return convolve(Geometry.of(cast(nn.Conv2d, module)), inputs[0], grad_output)
