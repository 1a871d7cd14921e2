"""Which dimension of a tensor holds the samples: found by shape, found again when shapes change, or asked for."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headway import Meter, NormAll


def total(out: Tensor) -> Tensor:
    """One loss per sample of outputs [B, ...]."""
    return out.flatten(1).square().sum(1)


def assert_right(model: nn.Module, batches: Sequence[tuple[Any, ...]], loss: Any = total, **options: Any) -> None:
    """Scores of every batch in turn, under one meter, equal those of autograd on an unmetered copy."""
    model, plain = model.double(), copy.deepcopy(model).double()
    parameters = list(plain.parameters())
    with Meter(model, NormAll(), **options) as meter:
        for inputs in batches:
            rows = [
                torch.autograd.grad(one, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
                for one in loss(plain(*inputs))
            ]
            want = torch.stack([torch.stack([g.abs().sum() for g in row]).sum() for row in rows])
            torch.testing.assert_close(meter.backward(loss(model(*inputs))), want, rtol=1e-9, atol=1e-12)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


# Shared in one batch, per sample in another


class Attention(nn.Module):
    """A module without a rule and without children."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(x @ self.w @ x.mT + mask, -1) @ x


class MaskToken(nn.Module):
    """A parameter that is used directly."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.token = nn.Linear(6, 6), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask > 0, self.token, self.inner(x))


@pytest.mark.parametrize("order", ["shared, own", "own, shared", "shared, own, single, own, square, shared"])
@pytest.mark.parametrize("kind", [Attention, MaskToken])
def test_a_mask_may_be_shared_in_one_batch_and_per_sample_in_another(kind: type[nn.Module], order: str) -> None:
    width = 3 if kind is Attention else 1
    masks = {
        "shared": lambda: (randn(5, 3, 6), randn(3, width)),
        "single": lambda: (randn(5, 3, 6), randn(1, 3, width)),
        "own": lambda: (randn(5, 3, 6), randn(5, 3, width)),
        "square": lambda: (randn(3, 3, 6), randn(3, width)),  # as many positions as samples
    }
    assert_right(kind(), [masks[name]() for name in order.split(", ")])


def test_a_replayed_call_with_other_shapes_is_checked_again() -> None:
    """As many positions as samples: the mask could be anybody's, and only the outputs tell."""
    assert_right(Attention(), [(randn(5, 3, 6), randn(3, 3)), (randn(5, 5, 6), randn(5, 5))])
