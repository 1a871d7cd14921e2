"""What was silently wrong once: hooks, compiled blocks, checkpoints, random replays, gradients that are freed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headway import GMC, Meter, NormAll
from headway.errors import RuleError, VerificationError

from ..models import batch, losses, mlp
from .oracle import is_exact, own_norms, without


def scaled(model: nn.Module, **options: Any) -> nn.Module:
    model[0].register_forward_hook(lambda module, args, output: output * 1.5, **options)
    return model


@pytest.mark.parametrize("simultaneous", [True, False])
def test_a_hook_that_changes_an_output(simultaneous: bool) -> None:
    torch.manual_seed(0)
    model = scaled(nn.Sequential(nn.Linear(5, 4), nn.Tanh()).double())
    x = torch.randn(6, 3, 5, dtype=torch.float64)

    def loss() -> Tensor:
        return model(x).square().sum((1, 2))

    expected = own_norms(model, loss)
    loss().mean().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    scores = Meter(model, NormAll(), simultaneous=simultaneous).backward(loss())
    assert is_exact(scores, expected)
    for parameter, grad in zip(model.parameters(), plain, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


@pytest.mark.parametrize("simultaneous", [True, False])
def test_a_hook_that_comes_before_the_meters_is_noticed(simultaneous: bool) -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh())
    meter = Meter(model, NormAll(), simultaneous=simultaneous)
    scaled(model, prepend=True)
    with pytest.raises((RuleError, VerificationError), match="hook"):
        meter.backward(model(torch.randn(6, 3, 5)).square().sum((1, 2)))


class Doubling(nn.Module):
    """A module without a rule, with a hook on its input or its output."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.scale)


@pytest.mark.parametrize("before", [True, False])
def test_hooks_on_a_module_without_a_rule(before: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 5), Doubling()).double()
    if before:
        model[1].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        model[1].register_forward_hook(lambda module, args, output: output * 1.5)
    meter = Meter(model, NormAll())
    if not before:
        model[1].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        model[1].register_forward_hook(lambda module, args, output: output * 1.5)
    x = torch.randn(6, 5, dtype=torch.float64)
    expected = without(meter, lambda: model(x).square().sum(1))
    assert is_exact(meter.backward(model(x).square().sum(1)), expected)


class Encoder(nn.Module):
    """A class token in front of a block that is compiled later."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(torch.cat([self.token.expand(len(x), -1, -1), x], 1))[:, 0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo looks at it
def test_a_compiled_block_beside_a_parameter_that_is_used_directly() -> None:
    torch.manual_seed(0)
    model, plain = Encoder(), Encoder()
    plain.load_state_dict(model.state_dict())
    meter = Meter(model, NormAll())
    model.block.compile(backend="aot_eager")
    for samples in (5, 5, 5, 4, 4, 6):
        x = torch.randn(samples, 4, 8)
        scores = meter.backward(model(x).square().sum(1))
        assert is_exact(scores, own_norms(plain, lambda x=x: plain(x).square().sum(1)), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["detached", "without gradients"])
def test_a_compiled_parameter_without_a_gradient(kind: str) -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.idle, self.b = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            with torch.no_grad() if kind == "without gradients" else nullcontext():
                extra = self.idle(h)
            return self.b(h.tanh() + extra.detach())

    torch.manual_seed(0)
    model = Idle()
    meter = Meter(model, NormAll())
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        assert meter.backward(compiled(torch.randn(5, 6)).square().sum(1)).shape == (5,)


class Reentrant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.idle = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(checkpoint(lambda y: torch.tanh(self.a(y)), x, use_reentrant=True))


def test_reentrant_checkpoints_are_checked_too() -> None:
    torch.manual_seed(0)
    model, other = Reentrant().double(), nn.Linear(4, 4).double()
    x = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    meter = Meter(model, NormAll())
    z = F.normalize(other(model(x)), dim=1)
    with pytest.raises(VerificationError, match="contrastive"):
        meter.backward(F.cross_entropy(z @ z.T, torch.arange(8), reduction="none"))
    x.grad = other.weight.grad = None
    scores = meter.backward(other(model(x)).square().sum(1))
    expected = []
    for i in range(8):
        model.zero_grad()
        own = x[i : i + 1].detach().requires_grad_()
        with meter._engine.paused():
            other(model(own)).square().sum().backward()
        expected.append(sum(p.grad.abs().sum() for p in model.parameters() if p.grad is not None))
    assert is_exact(scores, torch.stack(expected))
    per_sample = other(model(x)).square().sum(1).mean()
    filled = x.grad.clone()
    x.grad = None
    with meter._engine.paused():
        per_sample.backward()
    torch.testing.assert_close(filled, x.grad)  # the check has left nothing in it


def test_samples_that_change_places_are_refused() -> None:
    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x: Tensor, length: Tensor) -> Tensor:
            order = length.argsort(descending=True)
            return self.layer(x[order])[order.argsort()]

    model = Sorted()
    meter = Meter(model, NormAll())
    with pytest.raises(VerificationError, match="samples change their places"):
        meter.backward(model(torch.randn(6, 6), torch.tensor([9, 3, 5, 2, 7, 1])).square().sum(1))
    assert model.layer.weight.grad is None


class Depth(nn.Module):
    """Leaves itself out at random, and drops some of its weights."""

    def __init__(self, leave: float = 0.0, drop: float = 0.0) -> None:
        super().__init__()
        self.scale, self.leave, self.drop = nn.Parameter(torch.randn(6)), leave, drop

    def forward(self, x: Tensor) -> Tensor:
        if torch.rand(()) < self.leave:
            return x
        return torch.tanh(x * F.dropout(self.scale, self.drop))


class Outer(nn.Module):
    """The same in a module with children, whose operations are followed."""

    def __init__(self, **options: float) -> None:
        super().__init__()
        self.layer, self.inner = nn.Linear(6, 6), Depth(**options)

    def forward(self, x: Tensor) -> Tensor:
        return Depth.forward(self.inner, self.layer(x))


@pytest.mark.parametrize("options", [{"leave": 0.3}, {"drop": 0.3}], ids=["depth", "weights"])
@pytest.mark.parametrize(
    "make", [lambda **o: nn.Sequential(nn.Linear(6, 6), Depth(**o)), Outer], ids=["leaf", "direct"]
)
def test_replays_draw_the_random_numbers_of_the_forward(make: Callable[..., nn.Module], options: Any) -> None:
    torch.manual_seed(1)
    model = make(**options).double()
    meter = Meter(model, NormAll(), check="never")
    for _ in range(20):
        x = torch.randn(5, 6, dtype=torch.float64)
        expected = without(meter, lambda x=x: model(x).square().sum(1))
        assert is_exact(meter.backward(model(x).square().sum(1)), expected)


def test_random_numbers_for_each_sample_are_refused_when_they_begin_to_count() -> None:
    class Noisy(nn.Module):
        sigma = 0.0

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.randn(6))

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x * self.scale + self.sigma * torch.randn_like(x))

    model = nn.Sequential(nn.Linear(6, 6), Noisy())
    meter = Meter(model, NormAll(), check="never")
    meter.backward(model(torch.randn(5, 6)).square().sum(1))
    model[1].sigma = 0.1
    with pytest.raises(RuleError, match="random numbers for each sample"):
        meter.backward(model(torch.randn(5, 6)).square().sum(1))


def test_a_batch_that_does_not_tell_two_readings_apart_decides_nothing() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.randn(4))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return torch.tanh(x * self.scale) * mask

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.masked = nn.Linear(4, 4), Masked()

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.masked(self.layer(x), mask)

    torch.manual_seed(0)
    model = Net().double()
    meter = Meter(model, NormAll(), check="never")
    masks = [torch.ones(5, 1), torch.rand(5, 1), torch.ones(5, 1), torch.rand(5, 1)]  # of positions, for all samples
    for mask in masks:
        x = torch.randn(5, 5, 4, dtype=torch.float64)
        expected = without(meter, lambda x=x, mask=mask: model(x, mask.double()).square().sum((1, 2)))
        assert is_exact(meter.backward(model(x, mask.double()).square().sum((1, 2))), expected)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("how", ["post-accumulate hook", "hook of the accumulator"])
def test_an_optimizer_that_steps_inside_the_backward(how: str, accumulate: int) -> None:
    model, plain = mlp(), mlp()
    model_steps = [torch.optim.SGD([p], 0.1) for p in model.parameters()]
    accumulators = []
    for parameter, optimizer in zip(model.parameters(), model_steps, strict=True):

        def take(*_: Any, parameter: Tensor = parameter, optimizer: Any = optimizer) -> None:
            optimizer.step()
            parameter.grad = None

        if how == "post-accumulate hook":
            parameter.register_post_accumulate_grad_hook(take)
        else:
            accumulators.append(parameter.expand_as(parameter).grad_fn.next_functions[0][0])
            accumulators[-1].register_hook(take)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    a, b = (Meter(net, GMC(beta=0.9), accumulate=accumulate) for net in (model, plain))
    for step in range(6):
        got = a.backward(losses(model, *batch(seed=step)))
        want = b.backward(losses(plain, *batch(seed=step)))
        optimizer.step()
        if how == "post-accumulate hook" and accumulate == 1:
            torch.testing.assert_close(got, want)
            optimizer.zero_grad()
    assert a.moments().updates == (6 if how == "post-accumulate hook" else 5) // accumulate
    assert float(got.min()) > 0
