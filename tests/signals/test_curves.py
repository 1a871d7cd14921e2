"""Power laws, learnability and rates, against curves whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import headway
from headway.errors import SignalError
from headway.signals.curves import Curves, fit_power_law, slopes


def test_a_power_law_is_found_again() -> None:
    n = torch.logspace(1, 5, 30, dtype=torch.float64).expand(3, -1)
    truth = torch.tensor([[0.5, 3.0, 0.5], [0.0, 2.0, 0.3], [1.2, 10.0, 1.0]], dtype=torch.float64)
    losses = truth[:, :1] + truth[:, 1:2] * n.pow(-truth[:, 2:])
    law = fit_power_law(n, losses, torch.ones(3, 30, dtype=torch.bool))
    assert torch.allclose(torch.stack(law, 1), truth, atol=1e-6)
    expected = truth[:, 2] * truth[:, 1] * 100.0 ** (-truth[:, 2] - 1)
    assert torch.allclose(law.slope(torch.full((3,), 100.0, dtype=torch.float64)), expected)


def test_too_few_points_and_rising_curves_have_no_law() -> None:
    n = torch.arange(1, 11, dtype=torch.float64).expand(2, -1)
    known = torch.ones(2, 10, dtype=torch.bool)
    known[0, 5:] = False
    law = fit_power_law(n, n.clone(), known)
    assert law.irreducible[0] == law.height[0] == 0
    assert law.height[1] == 0  # a loss that rises is explained by its mean
    assert float(law.irreducible[1]) == pytest.approx(5.5)


def test_curves_keep_the_mean_of_every_bin() -> None:
    curves = Curves({}, 2)
    for _ in range(100):
        curves.add(torch.tensor([8.0, 0.0]), torch.tensor([4, 0]))
    counts = curves.memory["counts"]
    assert counts.sum(1).tolist() == [400.0, 0.0]
    means = curves.memory["losses"][0][counts[0] > 0] / counts[0][counts[0] > 0]
    assert means.tolist() == pytest.approx([2.0] * len(means))


def test_learnability_subtracts_what_cannot_be_learned() -> None:
    """Two groups with the same loss now: one falls to zero, the other stays where it is."""
    model = nn.Linear(1, 1)
    meter = headway.Meter(model, headway.Learnability(groups=2, refit=10))
    groups = torch.arange(20) % 2
    for step in range(200):
        n = 10 * step + 5.5
        values = torch.where(groups == 0, 4 * n**-0.5, 1.0)
        losses = model(torch.ones(20, 1)).squeeze(1) * 0 + values
        scores = meter.backward(losses, groups=groups)
    assert float(scores[groups == 0].mean()) == pytest.approx(4 * n**-0.5, rel=0.1)
    assert float(scores[groups == 1].mean()) == pytest.approx(0.0, abs=1e-6)


def test_slopes_are_those_of_polyfit() -> None:
    generator = np.random.default_rng(0)
    window = generator.normal(size=(4, 12))
    seen = [12, 5, 3, 2]
    expected = [np.polyfit(np.arange(k), row[-k:], 1)[0] if k > 2 else 0.0 for row, k in zip(window, seen, strict=True)]
    assert slopes(torch.tensor(window), torch.tensor(seen)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("absolute", [True, False])
def test_a_rate_is_the_slope_of_the_groups_means(absolute: bool) -> None:
    model = nn.Linear(1, 1)
    meter = headway.Meter(model, headway.Rate(headway.Curiosity(), groups=3, window=5, absolute=absolute))
    groups = torch.tensor([0, 0, 1, 2])
    for step in range(8):
        values = torch.tensor([9.0 - step, 11.0 - step, 2.0 * step, 5.0])
        scores = meter.backward(model(torch.ones(4, 1)).squeeze(1) * 0 + values, groups=groups)
    rising = 2.0 if absolute else -2.0
    assert scores.tolist() == pytest.approx([1.0, 1.0, rising, 0.0])


def test_the_rate_of_gmc_resumes_exactly() -> None:
    def steps(meter: headway.Meter, first: int, last: int) -> list[torch.Tensor]:
        out = []
        for step in range(first, last):
            x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
            out.append(meter.backward(meter.model(x).square().sum(1), groups=torch.arange(6) % 2))
            meter.model.zero_grad()
        return out

    signal = headway.Rate(headway.GMC(beta=0.9), groups=2, window=4)
    assert signal.name == "rate_of_gmc"
    torch.manual_seed(0)
    meter = headway.Meter(nn.Linear(4, 2), signal)
    steps(meter, 0, 6)
    state = meter.state_dict()
    expected = steps(meter, 6, 10)
    other = headway.Meter(nn.Linear(4, 2), signal)
    other.model.load_state_dict(meter.model.state_dict())
    other.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(steps(other, 6, 10), expected, strict=True))
    assert float(expected[-1].abs().sum()) > 0


def test_bad_arguments() -> None:
    with pytest.raises(SignalError):
        headway.Rate("gmc")
    with pytest.raises(SignalError):
        headway.Rate(headway.GMC(), window=2)
    with pytest.raises(SignalError):
        headway.Learnability(groups=0)
