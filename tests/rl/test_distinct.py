"""Distinct rows, and signals on them that weigh each by how often it occurs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import headway
from headway.rl.distinct import WeightedSignal, distinct_rows, padded, weighted_losses
from headway.signals import Signal


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.float64, torch.bool])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2, 3)])
def test_rows_come_back_as_they_were(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    few = torch.randint(0, 3, (7, *shape), generator=generator)
    values = few[torch.randint(0, 7, (50,), generator=generator)].to(dtype)
    rows, indices = distinct_rows(values)
    assert torch.equal(rows[indices], values)
    assert rows.dtype == dtype
    assert len(rows) == len({tuple(row.flatten().tolist()) for row in values})


def test_a_view_whose_rows_are_not_contiguous() -> None:
    values = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    rows, indices = distinct_rows(values)
    assert torch.equal(rows[indices], values)
    assert len(rows) == 4


def test_gradients_of_repeated_rows_add_up() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    layer = torch.nn.Linear(2, 2)
    layer(values).square().sum().backward()
    expected = layer.weight.grad
    layer.weight.grad = None
    rows, indices = distinct_rows(values)
    assert len(rows) == 2
    layer(rows).index_select(0, indices).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, expected)


SIGNALS = [
    headway.GMC(beta=0.9),
    headway.GMC(beta=0.9, unit="batch", floor=1e-4),
    headway.DotProduct(beta=0.9),
    headway.Cosine(beta=0.9),
    headway.Cosine(beta=0.9, over="tensor", against="m/v"),
    headway.Projection(beta=0.9, absolute=False),
    headway.NormAll(),
    headway.NormAll(norm="l2-squared", unit="batch"),
    headway.NormLast(),
    headway.Curiosity(),
    headway.Uniform(),
    headway.DeltaLoss(window=None),
    headway.DeltaLoss(window=13),
    headway.GroupGMC(beta=0.9),
    headway.Rate(headway.GMC(beta=0.9), window=3),
]


@pytest.mark.parametrize("signal", SIGNALS, ids=repr)
def test_scores_gradients_and_moments_are_those_of_all_samples(signal: Signal) -> None:
    generator = torch.Generator().manual_seed(0)
    one = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    other = copy.deepcopy(one)
    whole, distinct = headway.Meter(one, signal), headway.Meter(other, WeightedSignal(signal))
    for _ in range(4):
        rows = torch.randn(5, 4, generator=generator, dtype=torch.float64)
        indices = torch.cat([torch.arange(5), torch.randint(0, 3, (8,), generator=generator)])
        expected = whole.backward(one(rows[indices]).square().mean(1))
        counts = indices.bincount(minlength=6)  # the last row is filled up and stands for nothing
        scores = distinct.backward(
            weighted_losses(other(padded(rows, len(indices))).square().mean(1), counts), groups=counts
        )
        torch.testing.assert_close(scores[indices], expected, rtol=1e-10, atol=1e-13)
        for parameter, twin in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(twin.grad, parameter.grad, rtol=1e-10, atol=1e-13)
            with torch.no_grad():
                parameter -= 0.1 * parameter.grad
                twin -= 0.1 * twin.grad
            parameter.grad = twin.grad = None
        whole.end_epoch()
        distinct.end_epoch()


def test_rows_are_padded_to_a_few_lengths() -> None:
    rows = torch.arange(64.0).reshape(64, 1)
    assert len({len(padded(rows[:count], 64)) for count in range(1, 65)}) == 8
    for count in range(1, 65):
        filled = padded(rows[:count], 64)
        assert count <= len(filled) <= 64
        assert torch.equal(filled[:count], rows[:count])
        assert (filled[count:] == rows[0]).all()
    assert torch.equal(padded(rows[:3], 3), rows[:3])
