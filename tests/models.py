"""Small models and batches that several tests share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Sequential:
    """A perceptron 6-8-8-4."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to(dtype)


def batch(samples: int = 10, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs [B, 6] and labels [B]."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(0, 4, (samples,), generator=generator)


def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy per sample [B]."""
    return F.cross_entropy(model(x), y, reduction="none")


def sample_gradients(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Gradients of every sample [B, *shape], one backward pass each, without headway."""
    parameters = dict(model.named_parameters())
    rows = [
        torch.autograd.grad(losses(model, x[i : i + 1], y[i : i + 1]).sum(), list(parameters.values()))
        for i in range(len(x))
    ]
    return {name: torch.stack(column) for name, column in zip(parameters, zip(*rows, strict=True), strict=True)}
