"""A loss of the batch as a whole beside the losses of its samples, and the micro-batches of accelerate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway import Meter, NormAll
from headway.errors import LossError, VerificationError


class Experts(nn.Module):
    """A router over two maps of sequences, whose load is to be balanced over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.maps = nn.Linear(4, 2), nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shares = self.router(x).softmax(-1)
        mixed = sum(shares[..., k : k + 1] * one(x) for k, one in enumerate(self.maps))
        return mixed, shares.flatten(0, 1).mean(0).square().sum()


def test_aux_trains_and_is_in_no_score() -> None:
    torch.manual_seed(0)
    model, x = Experts().double(), torch.randn(5, 3, 4).double()
    out, balance = model(x)
    (out.square().sum((1, 2)).mean() + 0.3 * balance).backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    with Meter(model, NormAll(), check="always") as meter:
        alone = meter.score(model(x)[0].square().sum((1, 2)))
        out, balance = model(x)
        scores = meter.backward(out.square().sum((1, 2)), aux=0.3 * balance)
        assert torch.allclose(scores, alone, rtol=1e-12)
        for name, parameter in model.named_parameters():
            assert torch.allclose(parameter.grad, expected[name], rtol=1e-9), name
        model.zero_grad()
        out, balance = model(x)
        with pytest.raises(VerificationError, match="aux="):
            meter.backward(out.square().sum((1, 2)) + balance)


@pytest.mark.parametrize("wrong", [torch.ones(()), torch.ones(3, requires_grad=True), 0.1])
def test_what_is_no_loss_of_a_batch(wrong: object) -> None:
    model = nn.Linear(3, 2)
    with Meter(model, NormAll()) as meter, pytest.raises(LossError, match="aux"):
        meter.backward(model(torch.randn(4, 3)).sum(1), aux=wrong)  # type: ignore[arg-type]


@pytest.fixture
def accelerator() -> Iterator[object]:
    accelerate = pytest.importorskip("accelerate")
    yield accelerate.Accelerator(gradient_accumulation_steps=4, cpu=True)
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


def test_accumulation_is_that_of_the_accelerator(accelerator: object) -> None:
    torch.manual_seed(0)
    model, batches = nn.Linear(3, 2), [(torch.randn(4, 3), torch.randint(0, 2, (4,))) for _ in range(4)]
    for x, y in batches:
        with accelerator.accumulate(model):  # type: ignore[attr-defined]
            accelerator.backward(F.cross_entropy(model(x), y))  # type: ignore[attr-defined]
    expected = model.weight.grad.clone()
    model.zero_grad()
    with Meter(model, NormAll()) as meter:
        for x, y in batches:
            meter.backward(F.cross_entropy(model(x), y, reduction="none"))
    assert torch.allclose(model.weight.grad, expected, rtol=1e-5)
