"""Wrappers that a model may come in, and whether it is still the same model."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from headway.errors import ModelError


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside DistributedDataParallel and torch.compile.

    Raises:
        ModelError: the wrapper shards the parameters.
    """
    _refuse_shards(model)
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


class Wrapper:
    """The DistributedDataParallel around a model, if there is one.

    Args:
        model: the model, wrapped or not.
    """

    def __init__(self, model: nn.Module) -> None:
        """Look for it."""
        while isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        self._parallel = model if isinstance(model, nn.parallel.DistributedDataParallel) else None

    @property
    def is_parallel(self) -> bool:
        """Whether gradients may be averaged over ranks as they arrive; the wrapper may have come after the meter."""
        if self._parallel is not None:
            return True
        return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    @property
    def synchronises(self) -> bool:
        """Whether gradients are those of all ranks after the backward pass: not under `no_sync()`."""
        return self._parallel is None or bool(self._parallel.require_backward_grad_sync)

    def mean_over_ranks(self, number: Tensor) -> Tensor:
        """The mean of a number over the ranks, on the number's device and without a wait of the host."""
        if self._parallel is None:
            return number
        ranks = self._parallel.process_group
        total = number.clone()
        dist.all_reduce(total, group=ranks)
        return total / dist.get_world_size(ranks)


def _refuse_shards(model: nn.Module) -> None:
    """Refuse a model, or one with a part, of which this process has only a piece of each parameter."""
    for path, module in model.named_modules():
        kind = type(module).__name__
        where = f" in {path}" if path else ""
        if kind.startswith("FSDP") or kind == "FullyShardedDataParallel":
            raise ModelError(
                f"expected whole parameters, got {kind}{where}, which shards them; use DistributedDataParallel"
            )
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "placements"):  # a DTensor
            raise ModelError(f"{name}: expected a whole parameter, got a DTensor; use DistributedDataParallel")


class Structure:
    """The modules and parameters of a model, to notice quickly when they change."""

    def __init__(self, model: nn.Module) -> None:
        """Note what there is."""
        self._modules = [
            (module._modules, list(module._modules.values()), module._parameters, list(module._parameters.values()))
            for module in model.modules()
        ]
        self._trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]

    def is_unchanged(self) -> bool:
        """Whether no module or parameter was added, removed, replaced, frozen or unfrozen."""
        return all(
            _same(modules, own_modules) and _same(parameters, own_parameters)
            for modules, own_modules, parameters, own_parameters in self._modules
        ) and all(parameter.requires_grad is trained for parameter, trained in self._trained)


def _same(now: dict[str, Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(x is y for x, y in zip(now.values(), before, strict=True))
