"""Which dimension of a tensor holds the samples: found by shape, found again when shapes change, or asked for."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway import Meter, NormAll
from headway.errors import LayoutError, RuleError, UnscoredGradientError, VerificationError

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
    return torch.randn(shape, dtype=torch.float64)


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


class SequenceFirstMask(nn.Module):
    """Positions first, with a token that is written over some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.i, self.token = nn.Linear(6, 6), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        h = self.i(x)
        h[x[..., 0] > 0] = self.token
        return torch.tanh(h)


MODULES = {"i": "positions-first", "o": "positions-first"}
CALLS = [
    (SequenceFirstScale, {}, "pos in mul"),
    (SequenceFirstTable, MODULES, "pos in add"),
    (SequenceFirstTied, {}, "w in linear"),
    (SequenceFirstMask, MODULES, "token in __setitem__"),
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


# Flat


class Frames(nn.Module):
    """Parameters that are used directly on the frames of samples, with a mask for all frames or for each."""

    def __init__(self) -> None:
        super().__init__()
        self.i, self.w = nn.Linear(6, 6), nn.Parameter(torch.randn(6, 6))
        self.token, self.first = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(1, 1, 6))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        frames = torch.tanh(self.i(x)).flatten(0, 1)
        frames = torch.where(mask > 0, self.token, F.linear(frames, self.w))
        out = torch.cat([self.first.expand(len(frames), -1, -1), frames], 1)
        return out.unflatten(0, (len(x), -1))


@pytest.mark.parametrize("order", ["shared, own", "own, shared, single, own, fewer, single, shared"])
def test_the_number_of_frames_and_their_masks_may_change(order: str) -> None:
    batches = {
        "shared": lambda: (randn(5, 3, 4, 6), randn(4, 1)),
        "own": lambda: (randn(5, 3, 4, 6), randn(15, 4, 1)),
        "single": lambda: (randn(5, 1, 4, 6), randn(5, 4, 1)),
        "fewer": lambda: (randn(4, 2, 4, 6), randn(4, 1)),  # as many positions as samples
    }
    assert_right(Frames(), [batches[name]() for name in order.split(", ")], layout={"* in *": "flat"})


@pytest.mark.parametrize("kind", [SequenceFirstTied, SequenceFirstMask])
def test_a_shape_that_could_be_flat_in_a_later_batch_only_is_checked_again(kind: type[nn.Module]) -> None:
    model = kind()
    meter = Meter(model, NormAll(), layout=MODULES | {"* in *": "flat"})
    meter.backward(sequence_first_total(model(torch.randn(7, 5, 6))))
    with pytest.raises(VerificationError, match="layout="):
        meter.backward(sequence_first_total(model(torch.randn(10, 5, 6))))


# How many samples there are, before the losses say it


class Decoder(nn.Module):
    """A model whose second half is also used alone."""

    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Linear(6, 4)
        self.dec = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(self.enc(x))


def test_a_part_may_be_called_alone_with_another_number_of_samples() -> None:
    model = Decoder().double()
    z = randn(5, 4)
    with Meter(model, NormAll()) as meter:
        meter.backward(total(model(randn(8, 6))))
        got = meter.backward(total(model.dec(z)))
    parameters = list(model.dec.parameters())
    rows = [torch.autograd.grad(total(model.dec(z[i : i + 1])).sum(), parameters) for i in range(5)]
    torch.testing.assert_close(got, torch.stack([sum(g.abs().sum() for g in row) for row in rows]))


class Conditioned(nn.Module):
    """Takes something that all samples share before the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.o = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, shared: Tensor, x: Tensor) -> Tensor:
        return self.o(torch.tanh(self.a(x))) * shared.mean()


@pytest.mark.parametrize("shape", [(4, 4), (1,), ()])
def test_the_samples_need_not_come_first(shape: tuple[int, ...]) -> None:
    assert_right(Conditioned(), [(randn(*shape), randn(5, 6))])


def test_an_input_that_looks_like_samples_is_explained() -> None:
    model = Conditioned()
    meter = Meter(model, NormAll())
    with pytest.raises(UnscoredGradientError, match=r"shows 3 samples for 5 losses.*layout="):
        meter.backward(total(model(torch.randn(3, 4), torch.randn(5, 6))))
    assert_right(Conditioned(), [(randn(3, 4), randn(5, 6))], layout="samples-first")


class TokensAndFeatures(nn.Module):
    """Tokens [T, B] and features [B, d]."""

    def __init__(self) -> None:
        super().__init__()
        self.t, self.f, self.o = nn.Embedding(11, 8), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, features: Tensor) -> Tensor:
        return self.o(torch.tanh(self.t(ids) + self.f(features)))


def test_inputs_of_two_layouts_are_explained() -> None:
    model, inputs = TokensAndFeatures(), (torch.randint(0, 11, (7, 5)), randn(5, 6))
    meter = Meter(model, NormAll())
    with pytest.raises(RuleError, match=r"shows 7 samples for 5 losses.*layout="):
        meter.backward(sequence_first_total(model(inputs[0], inputs[1].float())))
    assert_right(TokensAndFeatures(), [inputs], sequence_first_total, layout={"f": "samples-first"})


@dataclass
class Inputs:
    ids: Tensor


class Custom:
    def __init__(self, ids: Tensor) -> None:
        self.ids = ids


class Tokens(nn.Module):
    """Takes an object that holds the samples; has a table of positions and may have a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.t, self.p, self.o = nn.Embedding(11, 8), nn.Embedding(16, 8), nn.Linear(8, 3)
        self.token = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, inputs: Any, with_token: bool = True) -> Tensor:
        ids = inputs["ids"] if isinstance(inputs, UserDict) else inputs.ids
        x = self.t(ids) + self.p(torch.arange(ids.shape[1]))
        tokens = [self.token.expand(len(ids), -1, -1)] if with_token else []
        return self.o(torch.tanh(torch.cat([*tokens, x], 1)))


@pytest.mark.parametrize("kind", [Inputs, lambda ids: SimpleNamespace(ids=ids), lambda ids: UserDict(ids=ids)])
def test_the_samples_may_be_in_a_dataclass_or_the_like(kind: Any) -> None:
    assert_right(Tokens(), [(kind(torch.randint(0, 11, (5, 7))),)])


def test_samples_that_no_argument_shows_are_explained() -> None:
    model, inputs = Tokens(), Custom(torch.randint(0, 11, (5, 7)))
    meter = Meter(model, NormAll())
    with pytest.raises(LayoutError, match=r"p: .*layout=\{'p': 'shared'\}"):
        meter.backward(total(model(inputs, with_token=False)))
    assert_right(Tokens(), [(inputs, False)], layout={"p": "shared"})
    with pytest.raises(RuleError, match=r"token in cat: .*pass the samples to the model as a tensor"):
        meter.backward(total(model(inputs)))


class SequenceFirstToken(nn.Module):
    """A class token for each sample, in dimension 1."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.i, self.token, self.way = nn.Linear(6, 6), nn.Parameter(torch.randn(1, 1, 6)), way
        self.layer = nn.TransformerEncoderLayer(6, 2, 8, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.i(x)
        token = {
            "expand": lambda: self.token.expand(-1, x.shape[1], -1),
            "repeat": lambda: self.token.repeat(1, x.shape[1], 1),
            "expand_as": lambda: self.token.expand_as(x[:1]),
            "new": lambda: self.token[0].expand(1, x.shape[1], -1),
        }[self.way]()
        return self.layer(torch.cat([torch.tanh(token), x]))[0]


@pytest.mark.parametrize("way", ["expand", "repeat", "expand_as", "new"])
def test_a_class_token_in_a_sequence_first_model(way: str) -> None:
    assert_right(SequenceFirstToken(way), [(randn(7, 5, 6),), (randn(4, 3, 6),)], layout="positions-first")


@pytest.mark.parametrize("samples", [4, 27, 3])
def test_a_constant_may_have_as_many_entries_as_there_are_samples(samples: int) -> None:
    """Spectral normalisation multiplies by vectors of 4 and of 27 numbers."""
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)).eval()
    assert_right(nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)), [(randn(samples, 3, 4, 4),)])


@pytest.mark.parametrize("layout", [None, "positions-first", {"attention": "positions-first"}])
def test_an_attention_knows_where_its_samples_are(layout) -> None:
    """Sequence-first, with as many positions as samples in the second batch."""
    torch.manual_seed(0)
    model = SequenceFirstAttention().double()
    meter = Meter(model, NormAll(), layout=layout, verify=True)
    for positions in (6, 4):
        model.zero_grad()
        scores = meter.backward(model(torch.randn(positions, 4, 8, dtype=torch.float64)).square().mean((0, 2)))
        assert (scores > 0).all()


class SequenceFirstAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]
