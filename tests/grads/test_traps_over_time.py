"""Traps over time: something changes at a random later step, and the scores stay exact or an error says so.

With the usual schedule the error may come with the next check, at the latest within 1,024 batches; with
`check="always"` it comes within two batches. Scores can be wrong between two checks only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headway import Meter, NormAll
from headway.errors import HeadwayError

from .oracle import is_exact, without

STEPS, SAMPLES, WIDTH = 300, 5, 6


class Trap:
    """A model, and losses of batches that change their character at `self.change`."""

    layout: Any = None
    change: int

    def __init__(self) -> None:
        self.model = self.make().double()

    def make(self) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4))

    def inputs(self, step: int) -> Tensor:
        return torch.randn(SAMPLES, WIDTH, dtype=torch.float64)

    def prepare(self, step: int) -> None:
        """What happens before the forward pass."""

    def losses(self, x: Tensor, step: int) -> Tensor:
        return self.model(x).flatten(1).square().sum(1)

    def late(self, step: int) -> bool:
        return step >= self.change


class ContrastiveTerm(Trap):
    def losses(self, x: Tensor, step: int) -> Tensor:
        z = F.normalize(self.model(x), dim=1)
        term = F.cross_entropy(z @ z.T, torch.arange(len(x)), reduction="none")
        return z.square().mul(torch.arange(4.0)).sum(1) + (0.1 if self.late(step) else 0.0) * term


class Penalty(Trap):
    def losses(self, x: Tensor, step: int) -> Tensor:
        old = sum(p.square().sum() for p in self.model.parameters())
        return super().losses(x, step) + (old if self.late(step) else 0.0)


class ReusedHead(Trap):
    def losses(self, x: Tensor, step: int) -> Tensor:
        own = super().losses(x, step)
        return own + F.linear(x, self.model[2].weight).square().sum(1) if self.late(step) else own


class BatchStatistics(Trap):
    def losses(self, x: Tensor, step: int) -> Tensor:
        h = self.model[1](self.model[0](x))
        h = F.batch_norm(h, None, None, training=True) if self.late(step) else h
        return self.model[2](h).square().sum(1)


class BatchNormWakes(Trap):
    def make(self) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH).eval(), nn.Linear(WIDTH, 4))

    def prepare(self, step: int) -> None:
        self.model[1].train(self.late(step))


class Sorting(Trap):
    def losses(self, x: Tensor, step: int) -> Tensor:
        order = torch.randperm(len(x)) if self.late(step) else torch.arange(len(x))
        return self.model(x[order])[order.argsort()].square().sum(1)


class Normaliser(Trap):
    def losses(self, x: Tensor, step: int) -> Tensor:
        own = super().losses(x, step)
        return own / own.sum() if self.late(step) else own


class HiddenMixup(Trap):
    def losses(self, x: Tensor, step: int) -> Tensor:
        h = self.model[0](x)
        h = 0.7 * h + 0.3 * h.roll(1, 0) if self.late(step) else h
        return self.model[2](self.model[1](h)).square().sum(1)


class InputMixup(Trap):
    def inputs(self, step: int) -> Tensor:
        x = super().inputs(step)
        return 0.7 * x + 0.3 * x.roll(1, 0) if self.late(step) else x


class RaggedGraphs(Trap):
    """Nodes of all graphs in a row, three for each graph at first."""

    layout: Any = "flat"

    def losses(self, x: Tensor, step: int) -> Tensor:
        sizes = [1, 5, 3, 2, 4] if self.late(step) else [3] * 5
        nodes = self.model(x.repeat(3, 1) + torch.randn(15, WIDTH, dtype=torch.float64)).square().sum(1)
        return torch.stack([part.sum() for part in nodes.split(sizes)])


class LaterDropout(Trap):
    def make(self) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.0), nn.Linear(WIDTH, 4))

    def prepare(self, step: int) -> None:
        self.model[1].p = 0.5 if self.late(step) else 0.0


class Leaf(nn.Module):
    """A module without a rule, whose forward has a random part."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.noise, self.leave = nn.Parameter(torch.randn(WIDTH)), 0.0, 0.02

    def forward(self, x: Tensor) -> Tensor:
        if torch.rand(()) < self.leave:
            return x
        return torch.tanh(x * self.scale + self.noise * torch.randn_like(x))


class StochasticDepth(Trap):
    def make(self) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), Leaf(), nn.Linear(WIDTH, 4))


class AnnealedNoise(StochasticDepth):
    def prepare(self, step: int) -> None:
        self.model[1].noise = 0.1 if self.late(step) else 0.0


class WeightDropout(Trap):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.weight, self.drop = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(4, WIDTH)), 0.0

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(self.layer(x), F.dropout(self.weight, self.drop))

    def make(self) -> nn.Module:
        return self.Net()

    def prepare(self, step: int) -> None:
        self.model.drop = 0.05 if self.late(step) else 0.0


class SharedMask(Trap):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.leaf = nn.Linear(WIDTH, WIDTH), self.Masked()

        class Masked(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale = nn.Parameter(torch.randn(WIDTH))

            def forward(self, x: Tensor, mask: Tensor) -> Tensor:
                return torch.tanh(x * self.scale) * mask

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.leaf(self.layer(x), mask)

    def make(self) -> nn.Module:
        return self.Net()

    def inputs(self, step: int) -> Tensor:
        return torch.randn(SAMPLES, SAMPLES, WIDTH, dtype=torch.float64)

    def losses(self, x: Tensor, step: int) -> Tensor:
        mask = torch.rand(SAMPLES, 1, dtype=torch.float64) if self.late(step) else torch.ones(SAMPLES, 1).double()
        return self.model(x, mask).square().sum((1, 2))


class LaterHook(Trap):
    prepend = False

    def prepare(self, step: int) -> None:
        if step == self.change:
            self.model[0].register_forward_hook(lambda module, args, out: out * 1.5, prepend=self.prepend)


class LaterHookInFront(LaterHook):
    prepend = True

    def inputs(self, step: int) -> Tensor:
        return torch.randn(SAMPLES, 3, WIDTH, dtype=torch.float64)


class PatchedForward(Trap):
    def prepare(self, step: int) -> None:
        if step == self.change:
            layer = self.model[0]
            layer.forward = lambda x: F.linear(x, layer.weight, layer.bias) * 1.5

    def inputs(self, step: int) -> Tensor:
        return torch.randn(SAMPLES, 3, WIDTH, dtype=torch.float64)


class OtherSizes(Trap):
    def inputs(self, step: int) -> Tensor:
        return torch.randn(random.Random(step).randint(1, 8) if self.late(step) else 5, WIDTH, dtype=torch.float64)


class OtherLengths(Trap):
    def make(self) -> nn.Module:
        return nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True)

    def inputs(self, step: int) -> Tensor:
        length = random.Random(step).randint(1, 7) if self.late(step) else 4
        return torch.randn(SAMPLES, length, WIDTH, dtype=torch.float64)


class Checkpointing(Trap):
    kind: Literal[True, False] = False

    def losses(self, x: Tensor, step: int) -> Tensor:
        h = self.model[0](x)
        if self.late(step):
            h = checkpoint(lambda y: self.model[2](self.model[1](y)), h, use_reentrant=self.kind)
        else:
            h = self.model[2](self.model[1](h))
        return h.square().sum(1)


class UsedTwice(Trap):
    def losses(self, x: Tensor, step: int) -> Tensor:
        h = self.model[0](x)
        h = self.model[0](h.sin()) if self.late(step) else h
        return self.model[2](h).square().sum(1)


class MemoryBank(Trap):
    """Features of other samples that carry no gradient: each sample's loss is still its own."""

    def losses(self, x: Tensor, step: int) -> Tensor:
        z = self.model(x)
        others = z.detach().roll(1, 0) if self.late(step) else torch.zeros_like(z)
        return (z - others).square().sum(1)


class Unfrozen(Trap):
    def make(self) -> nn.Module:
        model = super().make()
        model[2].bias.requires_grad_(False)
        return model

    def prepare(self, step: int) -> None:
        self.model[2].bias.requires_grad_(self.late(step))


class PairLoss(Trap):
    """A ranking loss against the neighbour, from some step on."""

    def losses(self, x: Tensor, step: int) -> Tensor:
        z = self.model(x).sum(1)
        return F.softplus(z - z.roll(1, 0)) if self.late(step) else F.softplus(z)


class Bfloat16(Trap):
    def losses(self, x: Tensor, step: int) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16) if self.late(step) else nullcontext():
            out = self.model(x)
        return out.double().square().sum(1)


TRAPS = [
    *(ContrastiveTerm, Penalty, ReusedHead, BatchStatistics, BatchNormWakes, Sorting, Normaliser, HiddenMixup),
    *(InputMixup, RaggedGraphs, LaterDropout, StochasticDepth, AnnealedNoise, WeightDropout, SharedMask, LaterHook),
    *(LaterHookInFront, PatchedForward, OtherSizes, OtherLengths, Checkpointing, UsedTwice, MemoryBank, Unfrozen),
    *(PairLoss, Bfloat16),
]
EXACT = {
    *(InputMixup, LaterDropout, StochasticDepth, WeightDropout, SharedMask, LaterHook, OtherSizes, OtherLengths),
    *(Checkpointing, UsedTwice, MemoryBank, Bfloat16),
}
"""Those in which every sample keeps a gradient of its own, and headway can follow it."""


def walk(trap: Trap, meter: Meter) -> Iterator[tuple[int, bool]]:
    """For each step whether its scores are exact; an error ends the walk."""
    tolerance = 0.05 if isinstance(trap, Bfloat16) else 1e-9
    optimizer = torch.optim.SGD(trap.model.parameters(), 1e-3)
    for step in range(1, STEPS + 1):
        trap.prepare(step)
        x = trap.inputs(step)
        looked_at = step in (1, 2) or trap.change <= step < trap.change + 3 or step % 50 == 0
        expected = without(meter, lambda x=x, step=step: trap.losses(x, step)) if looked_at else None
        scores = meter.backward(trap.losses(x, step))
        optimizer.step()
        optimizer.zero_grad()
        yield step, expected is None or is_exact(scores, expected, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("check", ["auto", "always"])
@pytest.mark.parametrize("kind", TRAPS, ids=lambda kind: kind.__name__)
def test_exact_or_an_error(kind: type[Trap], check: Literal["auto", "always"]) -> None:
    torch.manual_seed(TRAPS.index(kind))
    trap = kind()
    trap.change = random.Random(kind.__name__).randint(3, 180)
    meter = Meter(trap.model, NormAll(), layout=trap.layout, check=check)
    steps = 0
    wrong: list[int] = []
    error = None
    try:
        for steps, exact in walk(trap, meter):
            wrong += [] if exact else [steps]
    except HeadwayError as raised:
        error = raised
    assert all(step >= trap.change for step in wrong)
    if kind in EXACT:
        assert error is None, error
        assert not wrong
        return
    assert error is not None
    latest = trap.change + 1 if check == "always" else 2 ** (trap.change - 1).bit_length() + 1
    assert trap.change - 1 <= steps < latest
    assert not wrong or check == "auto"
