"""Rows that belong to samples in any number: packed sequences, graphs, pairs, against autograd on single samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway
from headway import Meter, NormAll
from headway.errors import LayoutError, VerificationError
from headway.grads.segments import Segments
from tests.models import Experts

from .oracle import is_exact, without

LENGTHS = [4, 1, 6, 3]


class Packed(nn.Module):
    """A small language model over packed sequences [1, N], with a scale that its forward uses directly."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(7, 8)
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 11)
        self.scale, self.shift = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(1, 1, 8))
        self.mix = nn.Parameter(torch.randn(8, 8))

    def forward(self, tokens: Tensor, places: Tensor, ids: Tensor) -> Tensor:
        x = (self.tokens(tokens) + self.places(places)) * self.scale + self.shift
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        own = ids[:, None] == ids[None, :]
        x = x + F.scaled_dot_product_attention(q, k, v, own) @ self.mix
        return self.out(x.tanh())


class Graph(nn.Module):
    """Two rounds of messages along edges, then a readout of each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.readout = nn.Linear(5, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 2)
        self.gate, self.cell = nn.Parameter(torch.randn(6)), nn.GRUCell(6, 6)
        self.custom = Custom()

    def forward(self, x: Tensor, edges: Tensor, own: Segments) -> Tensor:
        h = self.first(x).tanh()
        for _ in range(2):
            received = torch.zeros_like(h).index_add(0, edges[1], self.second(h)[edges[0]])
            h = self.cell(received * self.gate, h)
        return self.readout(own.mean(self.custom(h)))


class Custom(nn.Module):
    """A layer without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.power = nn.Parameter(torch.randn(6))

    def forward(self, h: Tensor) -> Tensor:
        return h * (1 + h.square() * self.power).cos()


def packed(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens and positions [1, N], and the sample of each [N]."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 11, (1, sum(LENGTHS)), generator=generator)
    places = torch.cat([torch.arange(length) for length in LENGTHS]).unsqueeze(0)
    return tokens, places, torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))


def agree(meter: Meter, losses: Callable[[], Tensor]) -> None:
    for _ in range(2):
        meter.model.zero_grad()
        expected = without(meter, losses)
        assert is_exact(meter.backward(losses()), expected)
    grads = {name: p.grad.clone() for name, p in meter.model.named_parameters()}
    meter.model.zero_grad()
    with meter._engine.paused():
        losses().mean().backward()
    for name, parameter in meter.model.named_parameters():
        assert torch.allclose(grads[name], parameter.grad, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("simultaneous", [True, False])
@pytest.mark.parametrize("way", ["ids", "cu_seqlens", "position_ids"])
def test_packed_sequences(way: str, simultaneous: bool) -> None:
    torch.manual_seed(0)
    tokens, places, ids = packed()
    starts = torch.tensor([0, *LENGTHS]).cumsum(0)
    own = headway.segments(**{way: {"ids": ids, "cu_seqlens": starts, "position_ids": places}[way]})
    model = Packed().double()

    def losses() -> Tensor:
        with own:
            logits = model(tokens, places, ids)
        return own.mean(F.cross_entropy(logits[0], tokens[0].roll(1), reduction="none"))

    with Meter(model, NormAll(), simultaneous=simultaneous, check="always") as meter:
        agree(meter, losses)


@pytest.mark.parametrize("order", ["sorted", "mixed"])
def test_ragged_graphs(order: str) -> None:
    torch.manual_seed(0)
    ids = torch.arange(4).repeat_interleave(torch.tensor([3, 5, 1, 2]))
    ids = ids if order == "sorted" else ids[torch.randperm(len(ids))]
    pairs = (ids[:, None] == ids[None, :]).nonzero().t()
    x = torch.randn(len(ids), 5).double()
    own, model = headway.segments(ids), Graph().double()

    def losses() -> Tensor:
        with own:
            return model(x, pairs, own).square().sum(1)

    with Meter(model, NormAll(), check="always") as meter:
        agree(meter, losses)


def test_halves_of_pairs() -> None:
    """Chosen and rejected answers of B pairs, one after the other, as DPO has them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 11)).double()
    tokens, own = torch.randint(0, 11, (6, 5)), headway.segments(torch.arange(3).repeat(2))

    def losses() -> Tensor:
        with own:
            logits = model(tokens)
        chosen, rejected = logits.log_softmax(-1).gather(2, tokens.unsqueeze(2)).sum((1, 2)).chunk(2)
        return -F.logsigmoid(0.1 * (chosen - rejected))

    with Meter(model, NormAll(), check="always") as meter:
        agree(meter, losses)


def test_images_of_albums() -> None:
    """A module that fixes the samples in dimension 0 sees all rows of a sample."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(3, 3), nn.Flatten(), nn.Linear(27, 2)).double()
    own, x = headway.segments(torch.tensor([1, 0, 1, 1, 3]), samples=4), torch.randn(5, 2, 5, 5).double()

    def losses() -> Tensor:
        with own:
            return own.sum(model(x).square().sum(1))

    with Meter(model, NormAll(), check="always") as meter:
        agree(meter, losses)  # sample 2 has no rows, and the score 0


def test_rows_of_another_sample_are_noticed() -> None:
    torch.manual_seed(0)
    tokens, places, ids = packed()
    wrong, own, model = headway.segments(ids.flip(0)), headway.segments(ids), Packed().double()
    with Meter(model, NormAll()) as meter:
        with wrong:
            logits = model(tokens, places, ids)
        losses = own.mean(F.cross_entropy(logits[0], tokens[0], reduction="none"))
        with pytest.raises(VerificationError):
            meter.backward(losses)


def language_losses(model: nn.Module, seed: int) -> Tensor:
    tokens = torch.randint(0, 19, (4, 7), generator=torch.Generator().manual_seed(seed))
    return F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:], reduction="none").mean(1)


@pytest.mark.parametrize("direct", [False, True])
def test_rows_gathered_for_experts_are_scored_by_segment(direct: bool) -> None:
    model = Experts(direct)
    with Meter(model, NormAll(), verify=True, check="always") as meter:
        for seed in range(3):
            meter.backward(language_losses(model, seed))
            assert meter.verification is not None
            assert meter.verification.largest_difference < 1e-12


@pytest.mark.parametrize("direct", [False, True])
def test_rows_gathered_for_experts_are_refused_with_the_way_that_works(direct: bool) -> None:
    model = Experts(direct, segmented=False)
    with (
        Meter(model, NormAll()) as meter,
        pytest.raises(LayoutError, match=r"call it inside headway\.segments\(ids\), with the sample of each row"),
    ):
        meter.backward(language_losses(model, 0))


def test_one_loss_for_each_segment() -> None:
    model, own = nn.Sequential(nn.Linear(3, 2)), headway.segments([0, 0, 1])
    with Meter(model, NormAll()) as meter:
        with own:
            out = model(torch.randn(3, 3))
        with pytest.raises(LayoutError, match="got 3"):
            meter.backward(out.sum(1))


@pytest.mark.parametrize(
    "given", [{}, {"ids": torch.zeros(2, 3)}, {"ids": torch.tensor([0, -1])}, {"position_ids": torch.tensor([1, 2])}]
)
def test_what_are_no_segments(given: Any) -> None:
    with pytest.raises(LayoutError):
        headway.segments(**given)


def test_sums_and_means() -> None:
    own = headway.segments(torch.tensor([2, 0, 0]))
    assert own.sum(torch.tensor([[1.0, 2.0, 4.0]])).tolist() == [6.0, 0.0, 1.0]
    assert own.mean(torch.tensor([1.0, 2.0, 4.0])).tolist() == [3.0, 0.0, 1.0]
