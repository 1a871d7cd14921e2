"""Which dimension of a tensor holds the samples: found by shape, found again when shapes change, or asked for."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway import Meter, NormAll
from headway.errors import LayoutError, VerificationError

AMBIGUOUS = (VerificationError, LayoutError)


def total(out: Tensor) -> Tensor:
    """One loss per sample of outputs [B, ...]."""
    return out.flatten(1).square().sum(1)


def sequence_first_total(out: Tensor) -> Tensor:
    """One loss per sample of outputs [T, B, ...]."""
    return total(out.transpose(0, 1))


def assert_right(model: nn.Module, batches: Sequence[tuple[Any, ...]], loss: Any = total, **options: Any) -> None:
    """Scores of every batch in turn, under one meter, equal those of autograd on an unmetered copy."""
    model, plain = model.double(), copy.deepcopy(model).double()
    parameters = list(plain.parameters())
    with Meter(model, NormAll(), **options) as meter:
        for inputs in batches:
            rows = [
                torch.autograd.grad(one, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
                for one in loss(plain(*inputs))
            ]
            want = torch.stack([torch.stack([g.abs().sum() for g in row]).sum() for row in rows])
            torch.testing.assert_close(meter.backward(loss(model(*inputs))), want, rtol=1e-9, atol=1e-12)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


# Shared in one batch, per sample in another


class Attention(nn.Module):
    """A module without a rule and without children."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 6))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(x @ self.w @ x.mT + mask, -1) @ x


class MaskToken(nn.Module):
    """A parameter that is used directly."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.token = nn.Linear(6, 6), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask > 0, self.token, self.inner(x))


@pytest.mark.parametrize("order", ["shared, own", "own, shared", "shared, own, single, own, square, shared"])
@pytest.mark.parametrize("kind", [Attention, MaskToken])
def test_a_mask_may_be_shared_in_one_batch_and_per_sample_in_another(kind: type[nn.Module], order: str) -> None:
    width = 3 if kind is Attention else 1
    masks = {
        "shared": lambda: (randn(5, 3, 6), randn(3, width)),
        "single": lambda: (randn(5, 3, 6), randn(1, 3, width)),
        "own": lambda: (randn(5, 3, 6), randn(5, 3, width)),
        "square": lambda: (randn(3, 3, 6), randn(3, width)),  # as many positions as samples
    }
    assert_right(kind(), [masks[name]() for name in order.split(", ")])


def test_a_replayed_call_with_other_shapes_is_checked_again() -> None:
    """As many positions as samples: the mask could be anybody's, and only the outputs tell."""
    assert_right(Attention(), [(randn(5, 3, 6), randn(3, 3)), (randn(5, 5, 6), randn(5, 5))])


# As many positions as samples, in a later batch only


class Padded(nn.Module):
    """One position more than its input, with an offset in the table of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.table, self.head = nn.Linear(6, 8), nn.Embedding(40, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = F.pad(self.inner(x), (0, 0, 1, 0))
        return self.head(torch.tanh(h + self.table(torch.arange(h.shape[1]) + 2)))


class Strided(Padded):
    """Half the positions of its input, with a bias for each pair of them."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x)[:, ::2]
        i = torch.arange(h.shape[1])
        bias = self.table((i[:, None] - i[None]).clamp(-19, 19) + 19).mean(-1)
        return self.head(torch.softmax(h @ h.mT + bias, -1) @ h)


@pytest.mark.parametrize(("kind", "first", "later"), [(Padded, 11, 7), (Strided, 22, 16)])
def test_positions_inside_the_model_may_become_as_many_as_samples(
    kind: type[nn.Module], first: int, later: int
) -> None:
    model = kind()
    meter = Meter(model, NormAll())
    meter.backward(total(model(torch.randn(8, first, 6))))
    with pytest.raises(AMBIGUOUS, match="layout="):
        meter.backward(total(model(torch.randn(8, later, 6))))


@pytest.mark.parametrize(("kind", "first", "later"), [(Padded, 11, 7), (Strided, 22, 16)])
def test_then_the_layout_can_be_told(kind: type[nn.Module], first: int, later: int) -> None:
    assert_right(kind(), [(randn(8, first, 6),), (randn(8, later, 6),)], layout={"table": "shared"})


class SequenceFirstScale(nn.Module):
    """Positions first, and no module that would show it."""

    def __init__(self) -> None:
        super().__init__()
        self.pos, self.end = nn.Parameter(torch.randn(20, 1, 6)), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.end(torch.tanh(x * self.pos[: len(x)]))


class SequenceFirstTable(nn.Module):
    """Positions first, with modules before and behind the table."""

    def __init__(self) -> None:
        super().__init__()
        self.i, self.pos, self.o = nn.Linear(6, 6), nn.Parameter(torch.randn(20, 1, 6)), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(torch.tanh(self.i(x) + self.pos[: len(x)]))


class SequenceFirstTied(nn.Module):
    """Positions first, with a Linear that is used directly."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.end = nn.Parameter(torch.randn(4, 6)), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.end(F.linear(x, self.w))


MODULES = {"i": "positions-first", "o": "positions-first"}
CALLS = [
    (SequenceFirstScale, {}, "pos in mul"),
    (SequenceFirstTable, MODULES, "pos in add"),
    (SequenceFirstTied, {}, "w in linear"),
]


@pytest.mark.parametrize(("kind", "layout", "call"), CALLS)
def test_a_parameter_used_directly_in_a_sequence_first_model_asks_for_its_layout(
    kind: type[nn.Module], layout: dict[str, str], call: str
) -> None:
    model = kind()
    meter = Meter(model, NormAll(), layout=layout)
    meter.backward(sequence_first_total(model(torch.randn(7, 5, 6))))
    with pytest.raises(LayoutError, match=f"layout={{'{call}': 'positions-first'}}"):
        meter.backward(sequence_first_total(model(torch.randn(5, 5, 6))))


@pytest.mark.parametrize(("kind", "layout", "call"), CALLS)
def test_and_takes_the_answer(kind: type[nn.Module], layout: dict[str, str], call: str) -> None:
    batches = [(randn(7, 5, 6),), (randn(5, 5, 6),)]
    assert_right(kind(), batches, sequence_first_total, layout=layout | {call: "positions-first"})
