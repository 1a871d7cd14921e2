"""Samples that occur several times: scored once, they score as if each had been scored."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import headway
from headway.rl.repeats import Repeated, filled_up, repeated
from headway.signals import Signal

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
]


@pytest.mark.parametrize("signal", SIGNALS, ids=repr)
def test_scores_gradients_and_moments_are_those_of_all_samples(signal: Signal) -> None:
    generator = torch.Generator().manual_seed(0)
    one = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    other = copy.deepcopy(one)
    whole, distinct = headway.Meter(one, signal), headway.Meter(other, Repeated(signal))
    for _ in range(4):
        rows = torch.randn(5, 4, generator=generator, dtype=torch.float64)
        indices = torch.cat([torch.arange(5), torch.randint(0, 3, (8,), generator=generator)])
        expected = whole.backward(one(rows[indices]).square().mean(1))
        counts = indices.bincount(minlength=6)  # the last row is filled up and stands for nothing
        scores = distinct.backward(
            repeated(other(filled_up(rows, len(indices))).square().mean(1), counts), groups=counts
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


def test_rows_are_filled_up_to_a_few_lengths() -> None:
    rows = torch.arange(64.0).reshape(64, 1)
    assert len({len(filled_up(rows[:count], 64)) for count in range(1, 65)}) == 8
    for count in range(1, 65):
        filled = filled_up(rows[:count], 64)
        assert count <= len(filled) <= 64
        assert torch.equal(filled[:count], rows[:count])
        assert (filled[count:] == rows[0]).all()
    assert torch.equal(filled_up(rows[:3], 3), rows[:3])
