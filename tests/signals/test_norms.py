"""Gradient norms against materialised gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headway import Meter, NormAll, NormLast
from headway.errors import SignalError

from ..models import batch, losses, mlp, sample_gradients


def test_norms_follow_their_formulas() -> None:
    model = mlp(torch.float64)
    x, y = batch(dtype=torch.float64)
    grads = sample_gradients(model, x, y)
    signals = [
        NormAll(),
        NormAll(norm="l2-squared", unit="batch", scale=10_000, name="released all"),
        NormLast(),
        NormLast(norm="l2-squared", unit="batch", scale=100_000, part="bias", name="released last"),
    ]
    scores = Meter(model, signals).backward(losses(model, x, y))
    l1 = {name: g.abs().flatten(1).sum(1) for name, g in grads.items()}
    sq = {name: (g / 10).square().flatten(1).sum(1) for name, g in grads.items()}
    torch.testing.assert_close(scores["norm_all"], sum(l1.values()))
    torch.testing.assert_close(scores["released all"], sum(sq.values()) * 10_000)
    torch.testing.assert_close(scores["norm_last"], l1["4.weight"] + l1["4.bias"])
    torch.testing.assert_close(scores["released last"], sq["4.bias"] * 100_000)


def test_a_last_layer_without_bias_is_refused() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 4, bias=False))
    with pytest.raises(SignalError, match=r"bias in the last layer '1', got only 1\.weight"):
        Meter(model, NormLast(part="bias"))


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(SignalError, match="'l7'"):
        NormAll(norm="l7")


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(SignalError, match="part 'layer' or 'bias', got 'weight'"):
        NormLast(part="weight")
