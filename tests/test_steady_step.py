"""A steady step: how many operations it launches, and that the host waits for none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from headway import GMC, Meter

STEPS = 7
"""The last of them is counted; batches 1, 2 and 4 are checked."""


class Counting(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func._schema.name.partition("::")[2]] += 1
        return func(*args, **(kwargs or {}))


class Block(nn.Module):
    """A transformer's layer, made of layers that have rules."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))


def transformer() -> nn.Module:
    return nn.Sequential(nn.Embedding(11, 8), *(Block(8) for _ in range(4)), nn.LayerNorm(8), nn.Linear(8, 11))


def chain() -> nn.Module:
    """Layers with positions and no parameters outside of them, for which fake tensors would need a subclass."""
    return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 11))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def of_sequences(model: nn.Module) -> Callable[[], Tensor]:
    tokens = torch.randint(0, 11, (5, 6))
    return lambda: F.cross_entropy(model(tokens).transpose(1, 2), tokens, reduction="none").mean(1)


def of_vectors(model: nn.Module) -> Callable[[], Tensor]:
    x, y = torch.randn(6, 12), torch.randint(0, 3, (6,))
    return lambda: F.cross_entropy(model(x), y, reduction="none")


def steady(
    make: Callable[[], nn.Module], losses: Callable[[nn.Module], Callable[[], Tensor]], on_host: bool
) -> Counter[str]:
    """The operations of one forward and backward after some steps."""
    torch.manual_seed(0)
    model = make()
    meter = Meter(model, GMC())
    for moments in meter._moments.values():
        moments._on_host = on_host
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        batch = losses(model)
        with Counting() as counting:
            meter.backward(batch())
        optimizer.step()
        optimizer.zero_grad()
    return counting.calls


@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
@pytest.mark.parametrize(("make", "losses", "most"), [(mlp, of_vectors, 90), (transformer, of_sequences, 850)])
def test_a_steady_step_launches_few_operations(make: Any, losses: Any, most: int, on_host: bool) -> None:
    calls = steady(make, losses, on_host)
    assert sum(calls.values()) <= most, calls.most_common()
    assert calls["_local_scalar_dense"] <= on_host
    assert calls["equal"] + calls["nonzero"] == 0


@pytest.mark.parametrize(("make", "losses"), [(mlp, of_vectors), (chain, of_sequences)])
def test_steady_steps_run_without_numbers(make: Any, losses: Any) -> None:
    """A fake tensor has none: whatever makes the host wait for a number raises."""
    with FakeTensorMode():
        model = make()
        meter = Meter(model, GMC(), check="never")
        for moments in meter._moments.values():
            moments._on_host = False
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            scores = meter.backward(losses(model)())
            optimizer.step()
            optimizer.zero_grad()
    assert scores.dim() == 1


def test_moments_and_scores_are_the_same_on_the_branch_for_devices() -> None:
    def trained(on_host: bool) -> tuple[Meter, Tensor]:
        torch.manual_seed(0)
        model = mlp().double()
        meter = Meter(model, GMC(beta=0.9))
        for moments in meter._moments.values():
            moments._on_host = on_host
        for step in range(6):
            x = torch.randn(6, 12).double()
            losses = model(x * (float("inf") if step == 3 else 1)).square().sum(1)
            scores = meter.backward(losses)
            model.zero_grad()
        return meter, scores

    with pytest.warns(UserWarning, match="NaN or infinite gradient"):
        host, expected = trained(True)
    device, scores = trained(False)
    assert torch.allclose(scores, expected, rtol=1e-9)
    assert device.moments().skipped == host.moments().skipped == 1
    assert device.moments().skipped_names == host.moments().skipped_names
    for name, m in host.moments().m.items():
        assert torch.allclose(device.moments().m[name], m, rtol=1e-9)
        assert torch.allclose(device.moments().v[name], host.moments().v[name], rtol=1e-9)
