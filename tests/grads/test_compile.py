"""Scores under torch.compile equal eager ones, in one graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headway import GMC, Meter
from headway.errors import LayoutError, UnscoredGradientError

from .zoo import TinyGPT, weighted_loss


def tokens_only() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(11, 8), nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), nn.Linear(8, 3)
    )


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(64, 3),
    )


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))


CASES = {
    "perceptron": (perceptron, lambda n: torch.randn(n, 6)),
    "convolutions": (convolutions, lambda n: torch.randn(n, 2, 4, 4)),
    "attention": (tokens_only, lambda n: torch.randint(0, 11, (n, 7))),
}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_compiled_scores_equal_eager_ones(name: str) -> None:
    make, data = CASES[name]
    eager, model = make(), make()
    model.load_state_dict(eager.state_dict())
    a, b = Meter(eager, GMC(beta=0.9)), Meter(model, GMC(beta=0.9))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for step in range(4):
        torch.manual_seed(step)
        x = data(5)
        want = a.backward(weighted_loss(eager(x), 5))
        got = b.backward(weighted_loss(compiled(x), 5))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
        for p, q in zip(eager.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-6)
        eager.zero_grad()
        model.zero_grad()


@pytest.mark.slow
def test_inductor_gives_the_same_scores() -> None:
    make, data = CASES["perceptron"]
    eager, model = make(), make()
    model.load_state_dict(eager.state_dict())
    a, b = Meter(eager, GMC(beta=0.9)), Meter(torch.compile(model), GMC(beta=0.9))
    compiled = torch.compile(model)
    for _ in range(2):
        x = data(5)
        torch.testing.assert_close(
            b.backward(weighted_loss(compiled(x), 5)),
            a.backward(weighted_loss(eager(x), 5)),
            rtol=1e-4,
            atol=1e-6,
        )


@pytest.mark.slow
def test_every_works_compiled() -> None:
    make, data = CASES["perceptron"]
    eager, model = make(), make()
    model.load_state_dict(eager.state_dict())
    whole, meter = Meter(eager, GMC()), Meter(model, GMC(), every=2)
    compiled = torch.compile(model, backend="aot_eager")
    for step in range(4):
        x = data(4)
        want, got = whole.backward(weighted_loss(eager(x), 4)), meter.backward(weighted_loss(compiled(x), 4))
        eager.zero_grad()
        model.zero_grad()
        if step % 2:
            assert got is None
        else:
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


def test_a_meter_made_after_compilation_says_so() -> None:
    make, data = CASES["perceptron"]
    compiled = torch.compile(make(), backend="aot_eager")
    compiled(data(4)).sum().backward()
    meter = Meter(compiled, GMC())
    with pytest.raises(UnscoredGradientError, match=r"before torch\.compile"):
        meter.backward(weighted_loss(compiled(data(4)), 4))


class Positions(nn.Module):
    """Looks its positions up as [1, T], as the models of Hugging Face do, or as [B, T]."""

    def __init__(self, each: bool = False) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 8), nn.Embedding(7, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
        self._each = each

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1]).unsqueeze(0)
        return self.block(self.tokens(ids) + self.positions(positions.expand(ids.shape) if self._each else positions))


@pytest.mark.parametrize("layout", [None, {"positions": "shared"}])
def test_a_row_of_positions_in_a_compiled_graph_is_an_error(layout: dict | None) -> None:
    model = Positions()
    meter = Meter(model, GMC(), layout=layout)
    compiled = torch.compile(model, backend="aot_eager")
    # torch 2.6 writes where it was in the graph below a message.
    ways = r"^positions: .* inside torch\.compile.* with where=, or look them up .* with indices \[5, 7\](\n|$)"
    with pytest.raises(LayoutError, match=ways):
        meter.backward(weighted_loss(compiled(torch.randint(0, 11, (5, 7))), 5))


@pytest.mark.parametrize(("each", "where"), [(False, ["tokens.*", "block.*"]), (True, None)])
def test_the_ways_out_for_positions_in_a_compiled_graph(each: bool, where: list[str] | None) -> None:
    eager, model = Positions(), Positions(each)
    model.load_state_dict(eager.state_dict())
    a, b = (Meter(one, GMC(beta=0.9, where=where)) for one in (eager, model))
    compiled = torch.compile(model, backend="aot_eager")
    ids = torch.randint(0, 11, (5, 7))
    for _ in range(2):
        want, got = (meter.backward(weighted_loss(run(ids), 5)) for meter, run in ((a, eager), (b, compiled)))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_what_a_compiled_graph_hides_is_an_error() -> None:
    model = TinyGPT()
    meter = Meter(model, GMC())
    compiled = torch.compile(model, backend="aot_eager")
    with pytest.raises(LayoutError, match=r"positions.*inside torch\.compile"):
        meter.backward(weighted_loss(compiled(torch.randint(0, 11, (5, 7))), 5))
