"""Parameters that a forward uses directly: operations with a rule are not replayed, and are as exact as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from headway import Meter
from headway.grads import fallback

from .test_zoo import Everything, assert_close, expected_reduction
from .zoo import weighted_loss


class Direct(nn.Module):
    """Some parameters, and a function of samples and parameters."""

    def __init__(self, forward: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.own = nn.ParameterList([nn.Parameter(0.5 * torch.randn(shape)) for shape in shapes])
        self.body = nn.Linear(6, 6)
        self._forward = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(x if not x.is_floating_point() else self.body(x).tanh(), *self.own)


def chunks(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Three maps from one packed weight."""
    q, k, v = (F.linear(x, part, bias) for part, bias in zip(w.chunk(3), b.chunk(3), strict=True))
    return q * k + v.sin()


def loop(x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    """A recurrence written by hand, with the same transposed weight in every step."""
    h = x.new_zeros(len(x), 3)
    for t in range(x.shape[1]):
        h = (F.linear(x[:, t], w.t()) + h @ u + b).tanh()
    return h


def in_place(x: Tensor, b: Tensor, s: Tensor) -> Tensor:
    y = x * 2
    y += b
    y *= s
    return y


CASES: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...], tuple[int, ...]]] = {
    "linear": (F.linear, ((4, 6), (4,)), (6,)),
    "linear, transposed": (lambda x, w, b: F.linear(x, w.t(), bias=b), ((6, 4), (4,)), (3, 6)),
    "linear, a slice": (lambda x, w: F.linear(x, w[1:, None].squeeze(1)), ((5, 6),), (6,)),
    "linear, a view": (lambda x, w: F.linear(x, w.view(4, 6).T.mT), ((24,),), (3, 6)),
    "linear, chunks": (chunks, ((12, 6), (12,)), (6,)),
    "matmul": (lambda x, w, b: x @ w + b, ((6, 4), (4,)), (6,)),
    "matmul, positions": (lambda x, w: torch.matmul(x, w), ((6, 4),), (3, 6)),
    "matmul, weight first": (lambda x, w: w @ x, ((4, 3),), (3, 6)),
    "matmul, groups": (lambda x, w: x @ w, ((3, 6, 4),), (3, 2, 6)),
    "addmm": (lambda x, w, b: torch.addmm(b, x, w), ((6, 4), (4,)), (6,)),
    "einsum": (lambda x, w: torch.einsum("bi,io->bo", x, w), ((6, 4),), (6,)),
    "einsum, weight first": (lambda x, w: torch.einsum("oi,bti->bto", w, x), ((4, 6),), (3, 6)),
    "einsum, groups": (lambda x, w: torch.einsum("bgi,gio->bgo", x, w), ((3, 6, 4),), (3, 6)),
    "einsum, several inputs": (lambda x, w: torch.einsum("bti,tio->bo", x, w), ((3, 6, 4),), (3, 6)),
    "einsum, mixed order": (lambda x, w: torch.einsum("bti,iot->bo", x, w), ((6, 4, 3),), (3, 6)),
    "einsum, ellipsis": (lambda x, w: torch.einsum("...i,oi->...o", x, w), ((4, 6),), (3, 6)),
    "einsum, a sum": (lambda x, w: torch.einsum("bti,oi->bo", x, w), ((4, 6),), (3, 6)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding="same"), ((4, 3, 3), (4,)), (3, 6)),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2), ((4, 1, 3, 3),), (2, 5, 6)),
    "conv transpose": (lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1), ((3, 4, 3), (4,)), (3, 6)),
    "mul, add": (lambda x, s, b: x * s + b, ((6,), (3, 1)), (3, 6)),
    "sub": (lambda x, s, b: (s - x) - b, ((1, 3, 6), ()), (3, 6)),
    "in place": (in_place, ((6,), ()), (3, 6)),
    "loop": (loop, ((6, 3), (3, 3), (3,)), (4, 6)),
}


def reductions_of(model: nn.Module, x: Tensor) -> None:
    """Compare every reduction with those of single samples, and the gradients with autograd's."""
    names = dict(model.named_parameters())
    rows = [
        torch.autograd.grad(loss, list(names.values()), retain_graph=True) for loss in weighted_loss(model(x), len(x))
    ]
    expected = {name: torch.stack(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    with Meter(model, Everything()) as meter:
        for _ in range(2):
            model.zero_grad()
            meter.backward(weighted_loss(model(x), len(x)))
        scope = meter._scopes["everything"]
        for name, grads in expected.items():
            for key in ("l1", "plain l1", "dot", "plain dot", "sq"):
                want = expected_reduction(key, grads, scope.cache[name])
                terms = grads.abs().reshape(len(grads), -1).sum(1) if "dot" in key else None
                assert_close(scope.memory[f"{key}/{name}"], want, f"{key} of {name}", terms)
            assert_close(names[name].grad, grads.mean(0), f"gradient of {name}", grads)


@pytest.fixture
def no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fallback.Replay._run

    def refuse(*args: Any, only_outputs: bool = False) -> Any:
        assert only_outputs, "a call was replayed"  # a constant as long as the batch is tried once
        return run(*args, only_outputs=True)

    monkeypatch.setattr(fallback.Replay, "_run", refuse)


@pytest.mark.usefixtures("no_replay")
@pytest.mark.parametrize("name", CASES)
def test_an_operation_with_a_rule_is_not_replayed(name: str) -> None:
    torch.manual_seed(0)
    function, shapes, inputs = CASES[name]
    reductions_of(Direct(function, *shapes).double(), torch.randn(5, *inputs).double())


@pytest.mark.usefixtures("no_replay")
def test_a_table_is_not_replayed() -> None:
    torch.manual_seed(0)
    model = Direct(lambda ids, w: F.embedding(ids, w, padding_idx=-1).cos(), (7, 4)).double()
    del model.body
    reductions_of(model, torch.randint(0, 7, (5, 6)))


@pytest.mark.slow
@pytest.mark.usefixtures("no_replay")
@pytest.mark.parametrize("samples", [5, 700], ids=["few samples", "many samples"])
@pytest.mark.parametrize("inputs", [(6,), (3, 6)], ids=["vectors", "positions"])
def test_weight_norm_is_not_replayed(samples: int, inputs: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(weight_norm(nn.Linear(6, 200)), nn.Tanh(), weight_norm(nn.Linear(200, 3))).double()
    reductions_of(model, torch.randn(samples if len(inputs) == 1 else 5, *inputs).double())


@pytest.mark.usefixtures("no_replay")
@pytest.mark.parametrize("kind", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_a_loop_of_cells_is_not_replayed(kind: type[nn.RNNCellBase]) -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = kind(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            state = None
            for t in range(x.shape[1]):
                state = self.cell(x[:, t], state)
            return state[0] if isinstance(state, tuple) else state

    torch.manual_seed(0)
    model, x = Loop(), torch.randn(5, 4, 6)
    plain = model(x)
    with Meter(model, Everything()):
        assert torch.equal(model(x), plain)  # to the bit
    reductions_of(model.double(), x.double())


def test_what_has_no_rule_is_replayed() -> None:
    torch.manual_seed(0)
    reductions_of(Direct(lambda x, w: F.linear(x, w.exp()), (4, 6)).double(), torch.randn(5, 6).double())
