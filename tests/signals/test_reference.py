"""Signals with a reference, against autograd on one sample at a time and by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway
from headway.errors import SignalError


def model_and_data() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    return model, torch.randn(9, 5, dtype=torch.float64), torch.randint(3, (9,))


def gradient(model: nn.Module, loss: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


@pytest.mark.parametrize("measure", ["dot", "cosine", "projection"])
def test_alignment_is_that_of_single_gradients(measure: str) -> None:
    model, x, y = model_and_data()
    reference = headway.Reference()
    meter = headway.Meter(model, headway.Alignment(reference, measure=measure))
    valid = torch.randn(20, 5, dtype=torch.float64), torch.randint(3, (20,))
    reference.refresh(model, F.cross_entropy(model(valid[0]), valid[1]))
    scores = meter.backward(F.cross_entropy(model(x), y, reduction="none"))
    meter.detach()
    r = gradient(model, F.cross_entropy(model(valid[0]), valid[1]))
    for sample in range(9):
        g = gradient(model, F.cross_entropy(model(x[sample : sample + 1]), y[sample : sample + 1]))
        length = {"dot": 1.0, "cosine": g.norm() * r.norm(), "projection": r.norm()}[measure]
        assert float(scores[sample]) == pytest.approx(float(g @ r / length), rel=1e-9)


def test_a_refresh_leaves_grad_alone_and_counts_from_the_next_batch_on() -> None:
    model, x, y = model_and_data()
    reference = headway.Reference()
    meter = headway.Meter(model, headway.Alignment(reference))
    assert not meter.backward(F.cross_entropy(model(x), y, reduction="none")).any()
    before = [p.grad.clone() for p in model.parameters()]
    reference.refresh(model, F.cross_entropy(model(x), y))
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before, strict=True))
    losses = F.cross_entropy(model(x), y, reduction="none")
    scores = meter.score(losses)
    # The mean of g . r over the batch whose mean gradient r is: |r|^2.
    assert float(scores.mean()) == pytest.approx(float(gradient(model, F.cross_entropy(model(x), y)).square().sum()))


def test_the_reference_is_in_the_state_of_the_meter() -> None:
    model, x, y = model_and_data()
    reference = headway.Reference()
    meter = headway.Meter(model, headway.Alignment(reference))
    reference.refresh(model, F.cross_entropy(model(x), y))
    scores = meter.score(F.cross_entropy(model(x), y, reduction="none"))
    state = meter.state_dict()
    meter.detach()
    again = headway.Meter(model, headway.Alignment(headway.Reference()))
    again.load_state_dict(state)
    assert torch.equal(again.score(F.cross_entropy(model(x), y, reduction="none")), scores)


def test_gradients_from_elsewhere_must_fit() -> None:
    model, x, y = model_and_data()
    reference = headway.Reference()
    meter = headway.Meter(model, headway.Alignment(reference))
    reference.set({"0.weight": torch.ones(3, 3)})
    with pytest.raises(SignalError, match=r"0\.weight.*\[7, 5\].*\[3, 3\]"):
        meter.backward(F.cross_entropy(model(x), y, reduction="none"))
    with pytest.raises(SignalError, match="one loss"):
        reference.refresh(model, F.cross_entropy(model(x), y, reduction="none"))


def test_excess_by_source_and_by_sample() -> None:
    model, x, y = model_and_data()
    losses = F.cross_entropy(model(x), y, reduction="none").detach()
    groups = torch.arange(9) % 2
    meter = headway.Meter(model, headway.Excess(torch.tensor([0.5, 1.5])))
    scores = meter.backward(F.cross_entropy(model(x), y, reduction="none"), groups=groups)
    assert torch.allclose(scores, losses - torch.where(groups == 0, 0.5, 1.5))
    meter.detach()
    table = torch.linspace(0.0, 3.0, 100)
    index = torch.tensor([3, 99, 50, 7, 8, 9, 10, 11, 12])
    meter = headway.Meter(model, headway.Excess(table, clip=True))
    scores = meter.backward(F.cross_entropy(model(x), y, reduction="none"), groups=index)
    assert torch.allclose(scores, (losses - table[index].double()).clamp(min=0))
    with pytest.raises(SignalError, match="99"):
        meter.backward(F.cross_entropy(model(x), y, reduction="none"), groups=index + 1)


def test_prediction_gain_is_the_fall_of_the_loss() -> None:
    model, x, y = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = F.cross_entropy(model(x), y, reduction="none")
    losses.mean().backward()
    optimizer.step()
    gain = headway.prediction_gain(losses, lambda: F.cross_entropy(model(x), y, reduction="none"))
    assert torch.equal(gain, losses.detach() - F.cross_entropy(model(x), y, reduction="none").detach())
    assert float(gain.mean()) > 0
    with pytest.raises(SignalError):
        headway.prediction_gain(losses, lambda: losses[:3])
