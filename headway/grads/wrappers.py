"""Wrappers that a model may come in."""

from __future__ import annotations

from torch import nn

from headway.errors import ModelError


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside DistributedDataParallel and torch.compile.

    Raises:
        ModelError: the wrapper shards the parameters.
    """
    while True:
        kind = type(model).__name__
        if kind.startswith("FSDP") or kind == "FullyShardedDataParallel":
            raise ModelError(f"expected whole parameters, got {kind}, which shards them; use DistributedDataParallel")
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model
