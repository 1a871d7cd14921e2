"""Mixed precision, low precision and loss scaling."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headway import GMC, DotProduct, Meter, NormAll, Signal

from ..models import batch, losses, mlp
from .zoo import TinyGPT, VisionTransformer, weighted_loss


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want.double()).abs().max() / want.double().abs().max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_scores_are_near_those_of_float32(dtype: torch.dtype) -> None:
    full, mixed = mlp(), mlp()
    signals = [GMC(floor=1e-2), NormAll()]  # a floor above the rounding noise, which m / v would magnify
    a, b = Meter(full, signals), Meter(mixed, signals)
    for step in range(3):
        x, y = batch(seed=step)
        want = a.backward(losses(full, x, y))
        with torch.autocast("cpu", dtype=dtype):
            loss = losses(mixed, x, y)
        got = b.backward(loss)
        assert got["gmc"].dtype == torch.float32
        assert relative(got["norm_all"], want["norm_all"]) < 0.03
        if step:
            assert relative(got["gmc"], want["gmc"]) < 0.06
        full.zero_grad()
        mixed.zero_grad()


@pytest.mark.parametrize("make", [TinyGPT, VisionTransformer])
def test_autocast_follows_attention_and_direct_parameters(make) -> None:
    model = make()
    x = torch.randint(0, 11, (5, 7)) if make is TinyGPT else torch.randn(5, 3, 4, 4)
    meter = Meter(model, NormAll())
    want = meter.score(weighted_loss(model(x), 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    got = meter.score(weighted_loss(out.float(), 5))
    assert relative(got, want) < 0.1


def test_bfloat16_models_are_scored_in_float32() -> None:
    half = mlp(torch.bfloat16)
    x, y = batch(dtype=torch.bfloat16)
    scores = Meter(half, NormAll()).backward(losses(half, x, y))
    full = mlp()
    full.load_state_dict(half.state_dict())
    want = Meter(full, NormAll()).backward(losses(full, x.float(), y))
    assert scores.dtype == torch.float32
    assert relative(scores, want) < 0.05


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


class Deep(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 4)
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)), nn.LayerNorm(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x.to(self.first.weight.dtype))
        return self.last(self.blocks(x.to(self.last.weight.dtype)))


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_in_float32_of_a_low_precision_model_are_compared_as_such(dtype: torch.dtype, verify: bool) -> None:
    model = Deep(24).to(dtype)
    meter = Meter(model, GMC(), verify=verify)
    for step in range(3):
        x, y = batch(12 + step, dtype, seed=step)  # another size each time, which is checked again
        scores = meter.backward(nn.functional.cross_entropy(model(x).float(), y, reduction="none"))
        assert scores.isfinite().all()


def test_a_float32_layer_below_frozen_ones_of_low_precision_is_compared_as_such() -> None:
    model = Deep(12).bfloat16().requires_grad_(False)
    model.first.float().requires_grad_(True)
    meter = Meter(model, GMC(), verify=True)
    for step in range(3):
        x, y = batch(12 + step, seed=step)
        scores = meter.backward(nn.functional.cross_entropy(model(x).float(), y, reduction="none"))
        assert scores.isfinite().all()


@pytest.mark.parametrize("samples", [8, 10])
def test_verification_allows_for_autocast(samples: int) -> None:
    model = Deep(2)
    meter = Meter(model, GMC(), verify=True)
    x, y = batch(samples)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    meter.backward(nn.functional.cross_entropy(out.float(), y, reduction="none"))
    assert meter.verification is not None
    assert 0 < meter.verification.largest_difference < 0.3


def test_a_grad_scaler_leaves_scores_and_moments_alone() -> None:
    plain, scaled = mlp(), mlp()
    a, b = Meter(plain, GMC(beta=0.9)), Meter(scaled, GMC(beta=0.9))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    one, two = (torch.optim.SGD(m.parameters(), 0.05) for m in (plain, scaled))
    for step in range(3):
        x, y = batch(seed=step)
        want = a.backward(losses(plain, x, y))
        got = b.backward(losses(scaled, x, y), scaler=scaler)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(scaled[0].weight.grad, plain[0].weight.grad * 1024, rtol=1e-4, atol=1e-4)
        one.step()
        scaler.step(two)
        scaler.update()
        one.zero_grad()
        two.zero_grad()
    torch.testing.assert_close(a.moments().v["0.weight"], b.moments().v["0.weight"], rtol=1e-3, atol=1e-9)


def test_an_overflow_of_the_scaler_skips_moments_and_step() -> None:
    model = mlp()
    meter = Meter(model, GMC())
    scaler = torch.amp.GradScaler("cpu", init_scale=1e38, growth_interval=100)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    before = model[0].weight.clone()
    with pytest.warns(UserWarning, match="NaN or infinite"):
        meter.backward(losses(model, *batch()) * 1e3, scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(model[0].weight, before)
    assert meter.moments().updates == 0


def test_sparse_gradients_enter_the_moments() -> None:
    model = nn.Embedding(11, 4, sparse=True)
    meter = Meter(model, GMC(beta=0.5))
    x = torch.randint(0, 11, (5, 3))
    meter.backward(weighted_loss(model(x), 5))
    torch.testing.assert_close(meter.moments().m["weight"], model.weight.grad.to_dense() / 2)


@pytest.mark.parametrize("signal", [NormAll(norm="l2-squared"), DotProduct(beta=0.9)])
def test_autocast_around_the_backward_pass_does_not_reach_the_reductions(signal: Signal) -> None:
    """Products that save forming the gradients are those of float32, as the gradients would be."""
    outcomes = []
    for around in (False, True):
        torch.manual_seed(0)
        model = nn.Conv1d(3, 40, 2)
        meter = Meter(model, signal)
        for _ in range(2):
            model.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                values = model(torch.randn(6, 3, 5)).float().square().sum((1, 2))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around):
                scores = meter.backward(values)
        outcomes.append(scores)
    torch.testing.assert_close(*outcomes, rtol=1e-6, atol=0)
