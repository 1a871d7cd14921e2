"""GMC of groups, against autograd one sample at a time and sums by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import headway
from headway.errors import SignalError
from headway.signals.groups import evidence

BETA, FLOOR = 0.8, 1e-6


class ByHand:
    """m, v and the evidence of each group, by loops over samples in plain autograd."""

    def __init__(self, model: nn.Module, signal: headway.GroupGMC) -> None:
        self.model, self.signal = model, signal
        self.m = [torch.zeros_like(p) for p in model.parameters()]
        self.v = [torch.zeros_like(p) for p in model.parameters()]
        self.steps = 0
        self.known: dict[int, tuple[float, float]] = {}

    def _ratios(self) -> list[Tensor]:
        of = 1 - BETA**self.steps if self.steps else 1.0
        return [(m / of) / (v / of).clamp(min=FLOOR) for m, v in zip(self.m, self.v, strict=True)]

    def step(self, x: Tensor, y: Tensor, groups: list[int], scored: bool = True) -> list[float]:
        couplings, dots = [], []
        parameters = list(self.model.parameters())
        size = sum(p.numel() for p in parameters)
        for one, target in zip(x, y, strict=True):
            own = torch.autograd.grad((self.model(one) - target).square().sum(), parameters)
            products = [g * ratio for g, ratio in zip(own, self._ratios(), strict=True)]
            couplings.append(sum(float(p.abs().sum()) for p in products))
            dots.append(sum(float(p.sum()) for p in products))
        for group in range(self.signal.groups) if scored else ():
            own = [dot for dot, its in zip(dots, groups, strict=True) if its == group]
            c, e = self.known.get(group, (0.0, 0.0))
            c, e = self.signal.smoothing * c, self.signal.smoothing**2 * e
            if own:
                c, e = c + sum(own) / len(own), e + sum(dot**2 for dot in own) / len(own) ** 2
            self.known[group] = c, e
        whole = torch.autograd.grad((self.model(x) - y).square().sum(1).mean(), parameters)
        self.m = [BETA * m + (1 - BETA) * g for m, g in zip(self.m, whole, strict=True)]
        self.v = [BETA * v + (1 - BETA) * g**2 for v, g in zip(self.v, whole, strict=True)]
        self.steps += 1
        hedge = self.signal.hedge
        left = [hedge + (1 - hedge) * self.evidence(group) for group in groups]
        return [c * own / math.sqrt(size) for c, own in zip(couplings, left, strict=True)]

    def evidence(self, group: int) -> float:
        c, e = self.known.get(group, (0.0, 0.0))
        return min(1.0, max(0.0, c / (self.signal.errors * math.sqrt(e)))) if e else 1.0


def signal(**changes: float) -> headway.GroupGMC:
    return headway.GroupGMC(groups=3, beta=BETA, floor=FLOOR, smoothing=0.6, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [1, 3])
def test_scores_are_those_by_hand(every: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    meter = headway.Meter(model, signal(hedge=0.3, errors=2.0), every=every)
    by_hand = ByHand(model, signal(hedge=0.3, errors=2.0))
    seen = set()
    for step in range(30):
        x, y = torch.randn(9, 4, dtype=torch.float64), torch.randn(9, 2, dtype=torch.float64)
        groups = [0, 0, 0, 0, 1, 1, 1, 1, 2] if step % 2 else [0, 0, 0, 1, 1, 1, 2, 2, 2]
        y[:3] = x[:3, :2]
        expected = by_hand.step(x, y, groups, step % every == 0)
        scores = meter.backward((model(x) - y).square().sum(1), groups=torch.tensor(groups))
        model.zero_grad()
        if step % every == 0:
            assert scores.tolist() == pytest.approx(expected, rel=1e-9)
            seen |= {round(by_hand.evidence(group), 6) for group in range(3)}
    assert 0.0 in seen
    assert any(0 < p < 1 for p in seen)


def test_a_hedge_of_one_is_gmc() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    meter = headway.Meter(model, [headway.GMC(beta=BETA), headway.GroupGMC(groups=2, beta=BETA, hedge=1.0)])
    for _ in range(4):
        losses = model(torch.randn(6, 4)).square().sum(1)
        scores = meter.backward(losses, groups=torch.arange(6) % 2)
        torch.testing.assert_close(scores["group_gmc"], scores["gmc"])


def test_noise_keeps_the_hedge_and_what_is_learned_keeps_all() -> None:
    torch.manual_seed(2)
    model = nn.Linear(8, 1)
    own = headway.GroupGMC(groups=2, beta=0.9, floor=1.0, unit="relative")
    meter = headway.Meter(model, own)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    groups = torch.arange(64) % 2
    truth = torch.randn(8, 1)
    with torch.no_grad():
        model.weight[:, 4:] = 0  # there is nothing to unlearn of the noise either
    for _ in range(40):
        x = torch.randn(64, 8)
        x[groups == 1, :4], x[groups == 0, 4:] = 0, 0
        y = torch.where((groups == 0).unsqueeze(1), x @ truth, 3 * torch.randn(64, 1))
        meter.backward((model(x) - y).square().squeeze(1), groups=groups)
        optimizer.step()
        optimizer.zero_grad()
    learned, noise = evidence(meter._scopes["group_gmc"].memory["evidence"], own.errors).tolist()
    assert learned == 1.0
    assert noise < 0.5


@pytest.mark.parametrize(
    ("signal", "key"),
    [
        (headway.GroupGMC(groups=2, beta=0.9), "evidence"),
        (headway.Rate(headway.Curiosity(), groups=2, window=3), "rate.window"),
    ],
)
def test_what_score_saw_is_not_observed_where_the_next_batch_is_not_scored(signal: headway.Signal, key: str) -> None:
    torch.manual_seed(4)
    model = nn.Linear(3, 2)
    meter = headway.Meter(model, signal)

    def batch(size: int) -> tuple[Tensor, Tensor]:
        return model(torch.randn(size, 3)).square().sum(1), torch.arange(size) % 2

    def memory() -> Tensor:
        return meter.state_dict()["memory"][signal.name][key]

    for _ in range(2):
        losses, groups = batch(8)
        meter.backward(losses, groups=groups)
    before = memory()
    assert before.any()
    losses, groups = batch(12)
    meter.score(losses, groups=groups)
    with meter.unscored():
        losses, groups = batch(8)
        assert meter.backward(losses, groups=groups) is None
    assert torch.equal(memory(), before)


def test_it_resumes_exactly_and_scoring_twice_changes_nothing() -> None:
    def steps(meter: headway.Meter, first: int, last: int) -> list[Tensor]:
        scores = []
        for step in range(first, last):
            torch.manual_seed(step)
            losses = meter.model(torch.randn(8, 3)).square().sum(1)
            meter.score(losses, groups=torch.arange(8) % 2, retain_graph=True)
            scores.append(meter.backward(losses, groups=torch.arange(8) % 2))
            meter.model.zero_grad()
        return scores

    def fresh() -> headway.Meter:
        torch.manual_seed(3)
        return headway.Meter(nn.Linear(3, 2), headway.GroupGMC(groups=2, beta=0.9))

    whole, half = fresh(), fresh()
    expected = steps(whole, 0, 8)
    steps(half, 0, 4)
    rest = fresh()
    rest.load_state_dict(half.state_dict())
    assert all(torch.equal(*pair) for pair in zip(steps(rest, 4, 8), expected[4:], strict=True))


@pytest.mark.parametrize("wrong", [{"groups": 0}, {"hedge": 1.5}, {"smoothing": 1.0}, {"errors": 0.0}])
def test_senseless_arguments(wrong: dict[str, float]) -> None:
    with pytest.raises(SignalError, match="expected"):
        headway.GroupGMC(**wrong)  # type: ignore[arg-type]


def test_groups_are_asked_for() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(SignalError, match="expected the group of each sample"):
        headway.Meter(model, headway.GroupGMC(groups=2)).backward(model(torch.randn(4, 3)).sum(1))
