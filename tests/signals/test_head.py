"""Scores by one layer and Adam's moments, against autograd one sample at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import headway
from headway.errors import LossError, SignalError, StateError

GROUPS = torch.tensor([0, 0, 0, 1, 1, 1, 1])


def parts(every: int = 1, seed: int = 0) -> tuple[nn.Sequential, torch.optim.Optimizer, headway.HeadMeter]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    return model, optimizer, headway.HeadMeter(model[-1], optimizer, 3, every=every, hedge=0.3, errors=2.0)


def losses_of(model: nn.Module, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    return (model(x) - x[:, :3]).square().sum(1)


def by_hand(model: nn.Sequential, optimizer: torch.optim.Optimizer, step: int, known: dict) -> list[float]:
    """The scores of a batch; `known` has c and e of each group, and is brought up to date."""
    weight, state = model[-1].weight, optimizer.state.get(model[-1].weight)
    ratio = torch.zeros_like(weight)
    if state:
        ratio = state["exp_avg"] / state["exp_avg_sq"].clamp(min=float(state["exp_avg_sq"].mean()))
    own = [torch.autograd.grad(losses_of(model, step)[sample], weight)[0] * ratio for sample in range(7)]
    for group in (0, 1):
        dots = [float(own[sample].sum()) for sample in range(7) if GROUPS[sample] == group]
        c, e = known.get(group, (0.0, 0.0))
        known[group] = 0.6 * c + sum(dots) / len(dots), 0.36 * e + sum(dot**2 for dot in dots) / len(dots) ** 2
    scores = []
    for sample in range(7):
        c, e = known[int(GROUPS[sample])]
        p = min(1.0, max(0.0, c / (2.0 * math.sqrt(e)))) if e else 1.0
        scores.append(float(own[sample].abs().sum()) / math.sqrt(weight.numel()) * (0.3 + 0.7 * p))
    return scores


@pytest.mark.parametrize("every", [1, 3])
def test_scores_and_gradients_are_those_by_hand(every: int) -> None:
    model, optimizer, meter = parts(every)
    known: dict[int, tuple[float, float]] = {}
    for step in range(12):
        expected = by_hand(model, optimizer, step, known) if step % every == 0 else None
        grads = torch.autograd.grad(losses_of(model, step).mean(), list(model.parameters()))
        scores = meter.backward(losses_of(model, step), groups=GROUPS)
        assert (scores is None) == (expected is None)
        if scores is not None:
            assert scores.tolist() == pytest.approx(expected, rel=1e-9)
        assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), grads, strict=True))
        optimizer.step()
        optimizer.zero_grad()
    assert known[0][0] > 0


def test_it_resumes_exactly() -> None:
    def steps(model: nn.Module, optimizer: torch.optim.Optimizer, meter: headway.HeadMeter, first: int, last: int):
        scores = []
        for step in range(first, last):
            scores.append(meter.backward(losses_of(model, step), groups=GROUPS))
            optimizer.step()
            optimizer.zero_grad()
        return scores

    expected = steps(*parts(2), 0, 9)
    half = parts(2)
    steps(*half, 0, 5)
    rest = parts(2, seed=1)
    for new, old in zip(rest, half, strict=True):
        new.load_state_dict(old.state_dict())
    for got, wanted in zip(steps(*rest, 5, 9), expected[5:], strict=True):
        assert (got is None and wanted is None) or torch.equal(got, wanted)
    with pytest.raises(StateError, match="expected a state of 2 groups"):
        headway.HeadMeter(rest[0][-1], rest[1], 2).load_state_dict(half[2].state_dict())


def test_forward_passes_that_are_not_trained_on_do_not_count() -> None:
    model, _, meter = parts()
    losses = losses_of(model, 0)
    losses_of(model, 1)
    with torch.no_grad():
        losses_of(model, 2)
    assert meter.backward(losses, groups=GROUPS) is not None
    with pytest.raises(LossError, match="expected one call of the layer"):
        meter.backward(losses_of(model, 0) + losses_of(model, 1), groups=GROUPS)
    meter.detach()
    with pytest.raises(LossError, match="got none"):
        meter.backward(losses_of(model, 0), groups=GROUPS)


def test_what_it_cannot_take() -> None:
    model, optimizer, _ = parts()
    for wrong in ({"every": 0}, {"hedge": 2.0}, {"smoothing": 1.0}, {"errors": 0.0}, {"groups": 0}):
        with pytest.raises(SignalError, match="expected"):
            headway.HeadMeter(**{"layer": model[-1], "optimizer": optimizer, "groups": 2, **wrong})
    with pytest.raises(SignalError, match="got Tanh"):
        headway.HeadMeter(model[1], optimizer, 2)
    plain = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    meter = headway.HeadMeter(model[-1], plain, 2, every=1)
    meter.backward(losses_of(model, 0), groups=GROUPS)
    plain.step()
    with pytest.raises(SignalError, match="got SGD"):
        meter.backward(losses_of(model, 1), groups=GROUPS)
    with pytest.raises(SignalError, match="expected groups from 0 to 1"):
        headway.HeadMeter(model[-1], optimizer, 2).backward(losses_of(model, 0), groups=GROUPS + 1)


def test_an_optimizer_without_moments_is_refused() -> None:
    model, _, _ = parts()
    with pytest.raises(SignalError, match="expected an optimizer that trains the layer's weight"):
        headway.HeadMeter(model[-1], torch.optim.Adam(model[0].parameters()), 2)
    plain = torch.optim.SGD(model.parameters(), 1e-3)  # keeps no state at all
    meter = headway.HeadMeter(model[-1], plain, 2, every=50)
    for step in range(100):
        meter.backward(losses_of(model, step), groups=GROUPS)
        plain.step()
        plain.zero_grad()
    with pytest.raises(SignalError, match="got SGD"):
        meter.backward(losses_of(model, 100), groups=GROUPS)
