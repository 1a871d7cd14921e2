"""Rules for normalisations and PReLU: one number per feature or channel."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from headway.errors import RuleError
from headway.grads.linear import three_outputs
from headway.grads.persample import Dense, PerSample, promote, widened
from headway.grads.registry import Inputs, register_rule


def _over_features(normalised: Tensor, b: Tensor, shape: tuple[int, ...]) -> dict[str, PerSample]:
    """Scale and shift over the trailing dimensions `shape`: sum over the positions before them. Overwrites an input."""
    scale = normalised.mul_(b).reshape(len(b), -1, *shape).sum(1)
    return {"weight": Dense(scale), "bias": Dense(b.reshape(len(b), -1, *shape).sum(1))}


def _over_channels(normalised: Tensor, b: Tensor) -> dict[str, PerSample]:
    """Scale and shift per channel (dimension 1): sum over the dimensions behind it."""
    if b.dim() == 2:
        return {"weight": Dense(b * normalised), "bias": Dense(b)}
    scale = torch.linalg.vecdot(b.flatten(2), normalised.flatten(2))
    return {"weight": Dense(scale), "bias": Dense(b.flatten(2).sum(2))}


@register_rule(nn.LayerNorm, footprint=three_outputs)
def layer_norm(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """y = w * normalised(x) + b over the trailing dimensions."""
    norm = cast(nn.LayerNorm, module)
    x, b = promote(inputs[0], grad_output)
    shape = tuple(norm.normalized_shape)
    return _over_features(F.layer_norm(x, shape, eps=norm.eps), b, shape)


@register_rule(nn.RMSNorm, footprint=three_outputs)
def rms_norm(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """y = w * x / rms(x) over the trailing dimensions."""
    norm = cast(nn.RMSNorm, module)
    wide = widened(inputs[0].dtype)
    eps = norm.eps if norm.eps is not None else torch.finfo(wide).eps
    x, b = promote(inputs[0], grad_output)
    shape = tuple(norm.normalized_shape)
    return _over_features(F.rms_norm(x, list(shape), eps=eps), b, shape)


@register_rule(nn.GroupNorm, footprint=three_outputs, samples_first=True)
def group_norm(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """Statistics over groups of channels of one sample."""
    norm = cast(nn.GroupNorm, module)
    x, b = promote(inputs[0], grad_output)
    return _over_channels(F.group_norm(x, norm.num_groups, eps=norm.eps), b)


@register_rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, footprint=three_outputs, samples_first=True)
def instance_norm(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """Statistics over one channel of one sample, or the running ones in eval mode."""
    norm = cast(nn.InstanceNorm2d, module)
    x, b = promote(inputs[0], grad_output)
    if norm.running_mean is not None and not norm.training:
        return _over_channels(_by_running_statistics(norm, x), b)
    return _over_channels(F.instance_norm(x, eps=norm.eps), b)


def _by_running_statistics(norm: _NormBase, x: Tensor) -> Tensor:
    mean, var = (cast(Tensor, statistic).to(x.dtype) for statistic in (norm.running_mean, norm.running_var))
    return F.batch_norm(x, mean, var, eps=norm.eps)


def refuse_batch_statistics(name: str, module: nn.Module) -> None:
    """Raise if a BatchNorm would take its statistics from the batch, which mixes the samples."""
    norm = cast(_BatchNorm, module)
    if norm.training or norm.running_mean is None:
        raise RuleError(
            f"{name} ({type(module).__name__}) takes its statistics from the whole batch, so a sample has no "
            f"gradient of its own: expected a layer that treats samples apart; use GroupNorm or LayerNorm, "
            f"or put this module in eval mode (with running statistics)"
        )


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@register_rule(*_BATCH_NORMS, footprint=three_outputs, samples_first=True)
def batch_norm(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """BatchNorm with running statistics (eval mode): a fixed affine map per channel."""
    x, b = promote(inputs[0], grad_output)
    return _over_channels(_by_running_statistics(cast(_BatchNorm, module), x), b)


@register_rule(nn.PReLU, footprint=three_outputs)
def prelu(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """y = x for x > 0, w x otherwise, with one w or one per channel."""
    x, b = promote(inputs[0], grad_output)
    slopes = b * x.clamp(max=0)
    if cast(nn.PReLU, module).num_parameters == 1:
        return {"weight": Dense(slopes.reshape(len(x), -1).sum(1, keepdim=True))}
    return {"weight": Dense(slopes.flatten(2).sum(2) if x.dim() > 2 else slopes)}
