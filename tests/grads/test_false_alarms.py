"""Correct models that must not be refused, and what the check must leave alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from headway import Meter, NormAll
from headway.errors import ModelError, VerificationError
from tests.ranks import join_pair, leaving_together, run_ranks

from ..models import batch, losses, mlp
from .oracle import is_exact, without


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


class NearIdentity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.u, self.v = nn.Linear(6, 6), nn.Parameter(torch.randn(6, 1)), nn.Parameter(torch.randn(1, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ (torch.eye(6, dtype=x.dtype) + self.u @ self.v)


class BiasTable(nn.Module):
    """Attention with a bias for every distance, looked up by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(4, 4), nn.Parameter(torch.randn(6, 11))

    def forward(self, x: Tensor) -> Tensor:
        q = self.layer(x.view(len(x), 6, 1).expand(-1, -1, 4))
        places = torch.arange(6)
        distance = places[:, None] - places[None] + 5
        weights = (q @ q.mT + self.table.gather(1, distance)).softmax(-1)
        return (weights @ q).flatten(1)


@pytest.mark.parametrize("make", [Spectral, NearIdentity, BiasTable])
@pytest.mark.parametrize("samples", [6, 5])
def test_as_many_samples_as_a_matrix_has_rows(make: Callable[[], nn.Module], samples: int) -> None:
    torch.manual_seed(0)
    model = make().double().eval()  # spectral_norm turns its vectors in training mode
    meter = Meter(model, NormAll())
    for _ in range(2):
        x = torch.randn(samples, 6, dtype=torch.float64)
        expected = without(meter, lambda x=x: model(x).square().sum(1))
        assert is_exact(meter.backward(model(x).square().sum(1)), expected)


def test_a_convolution_over_what_all_samples_share() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places, self.layer = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 1)
            self.register_buffer("grid", torch.randn(1, 2, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.places(self.grid)

    torch.manual_seed(0)
    model = Positions().double()
    meter = Meter(model, NormAll(), layout={"places": "shared"})
    x = torch.randn(6, 4, 3, 3, dtype=torch.float64)
    expected = without(meter, lambda: model(x).square().sum((1, 2, 3)))
    assert is_exact(meter.backward(model(x).square().sum((1, 2, 3))), expected)


@pytest.mark.parametrize("verify", [False, True])
def test_a_double_model_with_a_part_in_single_precision(verify: bool) -> None:
    class Cast(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x.float() * 1.1).double()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), Cast(), nn.Linear(20, 20), Cast(), nn.Linear(20, 4)).double()
    meter = Meter(model, NormAll(), verify=verify, check="always")
    for seed in range(3):
        assert (meter.backward(losses(model, *batch(40, torch.float64, seed))) > 0).all()


def test_hooks_that_clip_gradients_are_not_mistaken_for_an_error() -> None:
    model = mlp()
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    meter = Meter(model, NormAll(), simultaneous=False)
    assert (meter.backward(losses(model, *batch())) > 0).all()
    assert max(float(p.grad.abs().max()) for p in model.parameters()) == pytest.approx(1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distance", [0.0, 1e-6, 1e-4])
def test_gradients_that_cancel_are_no_alarm(distance: float, dtype: torch.dtype) -> None:
    """A student that is a copy of its teacher: what is left of every gradient is rounding."""
    student, teacher = mlp(dtype), mlp(dtype).requires_grad_(False)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(distance * torch.randn_like(parameter))
    meter = Meter(student, NormAll(), check="always")
    for seed in range(5):
        x, _ = batch(16, dtype, seed)
        own, other = student(x).log_softmax(1), teacher(x).log_softmax(1)
        scores = meter.backward(F.kl_div(own, other, log_target=True, reduction="none").sum(1))
        assert scores.isfinite().all()


def test_a_parameter_whose_gradient_is_zero_by_nature_may_be_the_only_one() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return (self.q(x) @ self.k(x).mT).softmax(-1) @ self.v(x)

    torch.manual_seed(0)
    model = Attention()
    meter = Meter(model, NormAll(where="k.bias"), check="always")
    for _ in range(5):
        scores = meter.backward(model(torch.randn(6, 5, 8)).square().sum((1, 2)))
        assert scores.isfinite().all()


class Once(torch.autograd.Function):
    """A function whose backward can run once: it frees what it has kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x.detach()
        return x.square()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x = ctx.x
        del ctx.x
        return 2 * x * grad


def test_a_graph_that_can_run_once_is_trained_and_told() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(Once.apply(self.a(x)))

    model = Net()
    meter = Meter(model, NormAll())
    with pytest.warns(UserWarning, match="cannot check the scores of this model: its graph allows only one"):
        meter.backward(model(batch()[0]).square().sum(1))
    assert model.a.weight.grad is not None
    for _ in range(3):  # warnings are errors here
        meter.backward(model(batch()[0]).square().sum(1))


@pytest.mark.parametrize("closure", [True, False])
def test_a_reentrant_checkpoint_of_another_module_gets_the_gradient_of_training(closure: bool) -> None:
    torch.manual_seed(0)
    model, head = nn.Sequential(nn.Linear(6, 5), nn.Tanh()).double(), nn.Linear(5, 3).double()
    x = batch(dtype=torch.float64)[0]
    part = (lambda h: head(h)) if closure else head
    checkpoint(part, model(x), use_reentrant=True).square().sum(1).mean().backward()
    expected = head.weight.grad.clone()
    head.zero_grad()
    Meter(model, NormAll()).backward(checkpoint(part, model(x), use_reentrant=True).square().sum(1))
    torch.testing.assert_close(head.weight.grad, expected)


def test_after_an_error_the_next_batch_is_checked() -> None:
    model = mlp()
    meter = Meter(model, NormAll(), check="first")
    for seed in range(3):
        loss = losses(model, *batch(seed=seed))
        with pytest.raises(VerificationError):
            meter.backward(loss + loss.mean())
    meter.backward(losses(model, *batch()))
    assert not meter._engine.checking


@leaving_together
def static_rank(rank: int, folder: str) -> None:
    join_pair(rank, folder)
    torch.manual_seed(0)
    net = nn.Linear(4, 3).double()
    model = DistributedDataParallel(net, static_graph=True)
    meter = Meter(model, NormAll(), check="always")
    torch.manual_seed(rank)
    grads = []
    for _ in range(3):
        net.zero_grad()
        meter.backward(model(torch.randn(6, 4, dtype=torch.float64)).square().sum(1))
        grads.append(net.weight.grad.clone())
    torch.save(grads, Path(folder) / f"rank{rank}.pt")


@pytest.mark.slow
def test_a_static_graph_is_still_averaged_over_ranks(tmp_path: Path) -> None:
    run_ranks(static_rank, str(tmp_path))
    one, other = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    for own, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(own, theirs)


@pytest.mark.parametrize("options", [{"verify": True}, {}])
def test_what_would_break_a_static_graph_is_refused(options: dict[str, bool], tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        net = nn.Linear(4, 3)
        model = DistributedDataParallel(net, static_graph=True)
        meter = Meter(model, NormAll(), **options)
        loss = model(torch.randn(6, 4)).square().sum(1)
        with pytest.raises(ModelError, match="static_graph=True"):
            meter.backward(loss) if options else meter.score(loss)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(("factor", "scaled"), [(1e-8, True), (1e-5, False), (1.0, True)])
def test_gradients_below_the_range_of_float16(factor: float, scaled: bool) -> None:
    model = mlp()
    meter = Meter(model, NormAll(), check="always")
    scaler = torch.amp.GradScaler("cpu") if scaled else None
    for seed in range(3):
        with torch.autocast("cpu", torch.float16):
            out = model(batch(16, seed=seed)[0])
        scores = meter.backward(out.float().square().sum(1) * factor, scaler=scaler)
        assert scores.isfinite().all()


def test_low_precision_that_a_compiled_graph_hides() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(32, 64), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(torch.tanh(self.a(x))).float()

    torch.manual_seed(0)
    model = Net()
    meter = Meter(model, NormAll(), check="always")
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            out = compiled(torch.randn(16, 32))
        assert (meter.backward(out.square().sum(1)) > 0).all()
