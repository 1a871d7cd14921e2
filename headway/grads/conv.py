"""Rules for convolutions, as outer products of patches with output gradients."""

from __future__ import annotations

from functools import partial
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from headway.grads.persample import Dense, Outer, PerSample, promote
from headway.grads.registry import Inputs, register_rule

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


def patches(
    padded: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> Tensor:
    """Cut padded images into the patches that a kernel sees.

    The channels stand last, so that a row of the kernel is one run of memory; that makes the cut much
    faster than an im2col with the channels first.

    Args:
        padded: images [c, *size, channels].
        kernel: lengths of the kernel.
        stride: steps between patches.
        dilation: steps within a patch.
        groups: groups of channels.

    Returns:
        Patches [c, groups, *positions, d] with d = prod(kernel) * channels / groups, kernel first.
    """
    dims = len(kernel)
    windows = padded.unflatten(-1, (groups, -1)).movedim(-2, 1)  # [c, groups, *size, channels]
    for axis in range(dims):
        span = (kernel[axis] - 1) * dilation[axis] + 1
        windows = windows.unfold(2 + axis, span, stride[axis])[..., :: dilation[axis]]
    return windows.movedim(2 + dims, -1).flatten(2 + dims)  # channels behind the kernel


def _channels_last(x: Tensor) -> Tensor:
    return x.movedim(1, -1)


def _patches_of_input(module: nn.Conv2d, x: Tensor) -> Tensor:
    """Patches of a convolution's input as [c * groups, T, d]."""
    padding = module._reversed_padding_repeated_twice
    if module.padding_mode == "zeros":
        padded = F.pad(_channels_last(x), [0, 0, *padding]) if any(padding) else _channels_last(x).contiguous()
    else:
        padded = _channels_last(F.pad(x, padding, mode=module.padding_mode)).contiguous()
    cut = patches(padded, module.kernel_size, module.stride, module.dilation, module.groups)
    return cut.flatten(2, -2).flatten(0, 1)


def _patches_of_output(module: nn.ConvTranspose2d, grad_output: Tensor, size: tuple[int, ...]) -> Tensor:
    """Patches of a transposed convolution's output gradient, one per input position: [c * groups, T, d]."""
    padding = [pad for pad in reversed(cast(tuple[int, ...], module.padding)) for _ in range(2)]
    padded = F.pad(_channels_last(grad_output), [0, 0, *padding])
    cut = patches(padded, module.kernel_size, module.stride, module.dilation, module.groups)
    for axis, length in enumerate(size):  # output_padding may leave room for a patch that no input made
        cut = cut.narrow(2 + axis, 0, length)
    return cut.flatten(2, -2).flatten(0, 1)


def _kernel_first(weight: Tensor) -> tuple[int, ...]:
    """The order of a weight's dimensions that patches have: [out, *kernel, in]."""
    return (0, *range(2, weight.dim()), 1)


def _by_group(x: Tensor, groups: int) -> Tensor:
    """Channels-first maps [c, channels, *positions] as [c * groups, T, channels / groups]."""
    return x.reshape(len(x) * groups, x.shape[1] // groups, -1).transpose(1, 2)


def conv_footprint(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> int:
    """A gradient of the weight, and the patches."""
    conv = cast(nn.Conv2d, module)
    weight = conv.weight.numel()
    if conv.transposed:
        return weight + weight // conv.in_channels * conv.groups * inputs[0][0, 0].numel()
    return weight + weight // conv.out_channels * conv.groups * grad_output[0, 0].numel()


def always(inputs: Inputs) -> bool:
    """A convolution has several positions."""
    return True


@register_rule(nn.Conv1d, nn.Conv2d, nn.Conv3d, footprint=conv_footprint, samples_first=True, simultaneous=always)
def convolution(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """The weight's gradient is sum_t D_t patch_t^T for each group of channels."""
    conv = cast(nn.Conv2d, module)
    x, b = promote(inputs[0], grad_output)
    cut = partial(_patches_of_input, conv, x)
    order = _kernel_first(conv.weight)
    return {
        "weight": Outer(cut, _by_group(b, conv.groups), conv.groups, order, tuple(conv.weight.shape)),
        "bias": Dense(b.flatten(2).sum(2)),
    }


@register_rule(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, footprint=conv_footprint, samples_first=True)
def transposed_convolution(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """The adjoint of a convolution: inputs and patches of the output gradient change places."""
    conv = cast(nn.ConvTranspose2d, module)
    x, b = promote(inputs[0], grad_output)
    cut = partial(_patches_of_output, conv, b, tuple(x.shape[2:]))
    order = _kernel_first(conv.weight)
    return {
        "weight": Outer(cut, _by_group(x, conv.groups), conv.groups, order, tuple(conv.weight.shape)),
        "bias": Dense(b.flatten(2).sum(2)),
    }
