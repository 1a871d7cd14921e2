"""Which batches a meter scores when it chooses itself."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway.grads.every
from headway import GMC, AutoEvery, Meter, NormAll
from headway.errors import LossError
from headway.grads.every import TIMED, WARM, AutoInterval, Movement
from tests.ranks import join_pair, leaving_together, run_ranks

MEASURED = WARM + 2 * TIMED
"""Batches after which the cost is known."""


class Clock:
    """A clock that goes on by what a step is said to last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        self.now = 0.0
        if monkeypatch is not None:
            monkeypatch.setattr(headway.grads.every.time, "perf_counter", lambda: self.now)


def scored(interval: AutoInterval, batches: int, make: Callable[[int], Tensor]) -> list[int]:
    """The batches that are scored, with the scores that `make` gives for each."""
    found, due = [], True
    for batch in range(batches):
        if due:
            found.append(batch)
        due = interval.advance(batch + 1, {"gmc": make(batch)} if due else None, None)
    return found


@pytest.mark.parametrize("rate", [0.07, 0.03, 0.012, 0.007])
def test_the_interval_is_as_long_as_the_drift_allows(rate: float) -> None:
    """Scores e^(rt): over k batches they move by 2 (e^(rk) - 1) / (e^(rk) + 1) of their mean."""
    interval = AutoInterval(AutoEvery(cost=0.0))
    scored(interval, 400, lambda batch: torch.full((8,), math.exp(rate * batch)))

    def moved(k: int) -> float:
        return 2 * math.tanh(rate * k / 2)

    assert 0.05 <= moved(interval.length) <= 0.1
    assert moved(2 * interval.length) > 0.099


def test_steady_scores_are_asked_for_most_rarely_and_wild_ones_always() -> None:
    steady, wild = AutoInterval(AutoEvery(cost=0.0)), AutoInterval(AutoEvery(cost=0.0))
    scored(steady, 400, lambda batch: torch.ones(8))
    scored(wild, 400, lambda batch: torch.full((8,), 2.0 ** (batch % 7)))
    assert (steady.length, wild.length) == (16, 1)


def test_the_interval_becomes_short_again_when_the_scores_begin_to_move() -> None:
    interval = AutoInterval(AutoEvery(cost=0.0))
    scored(interval, 1200, lambda batch: torch.full((8,), math.exp(0.07 * max(0, batch - 400))))
    assert interval.length == 1


@pytest.mark.parametrize("samples", [4, 64])
def test_scatter_of_samples_is_not_taken_for_drift(samples: int) -> None:
    """Scores with a heavy tail whose mean stays: their batch means differ by far more than the drift that counts."""
    generator = torch.Generator().manual_seed(0)
    interval, lengths = AutoInterval(AutoEvery(cost=0.0)), []

    def make(batch: int) -> Tensor:
        lengths.append(interval.length)
        return torch.empty(samples).exponential_(generator=generator)

    scored(interval, 4000, make)
    assert statistics.fmean(length >= 8 for length in lengths[50:]) > 0.8


def test_scores_that_are_all_zero_say_nothing() -> None:
    interval = AutoInterval(AutoEvery(cost=0.0))
    assert scored(interval, 50, lambda batch: torch.zeros(8)) == list(range(50))


def test_the_movement_is_that_of_group_means_beyond_their_scatter() -> None:
    """Against a loop over groups, with variances of the standard library; group 2 has too few samples."""
    generator = torch.Generator().manual_seed(1)
    groups = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2])
    batches = [torch.rand(8, generator=generator) + 3 * groups for _ in range(3)]
    movement, squares = Movement(), []
    for batch in batches:
        movement.add({"gmc": batch}, groups)
    for before, now in itertools.pairwise(batches):
        scale = float(before.abs().mean() + now.abs().mean()) / 2
        own = []
        for group in (0, 1):
            a, b = (values[groups == group].tolist() for values in (before, now))
            change = (statistics.fmean(a) - statistics.fmean(b)) ** 2
            own.append((change - statistics.variance(a) / len(a) - statistics.variance(b) / len(b)) / scale**2)
        squares.append(statistics.fmean(own))
    assert movement.state_dict()["squares"]["gmc"] == pytest.approx(squares, rel=1e-5)
    error = statistics.stdev(squares) / math.sqrt(2)
    assert movement.read() == pytest.approx(math.sqrt(max(0.0, statistics.fmean(squares) - error)), abs=1e-9)


@pytest.mark.parametrize(("cost", "least"), [(0.0, 1), (0.1, 1), (0.35, 4), (0.7, 7), (2.5, 25)])
def test_scores_stay_within_the_budget_of_time(monkeypatch: pytest.MonkeyPatch, cost: float, least: int) -> None:
    """With scores that never stand still, the budget alone decides; what they take is added up beside it."""
    clock, interval = Clock(monkeypatch), AutoInterval(AutoEvery(budget=0.1))
    generator, due, added, plain = torch.Generator().manual_seed(0), True, 0.0, 0.0
    for batch in range(2000):
        last, scores = due, torch.rand(1, generator=generator).expand(8)
        clock.now += 1.0 + cost * last + 5.0 * (batch % 10 == 3)  # some steps wait for data
        due = interval.advance(batch + 1, {"gmc": scores} if due else None, None)
        if batch >= MEASURED:
            added, plain = added + cost * last, plain + 1.0
    assert interval.length == least
    assert added / plain <= 0.1 + cost / (2000 - MEASURED)  # the last interval may not have ended


def losses_of(model: nn.Module, batch: int, rank: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + batch)
    x = torch.randn(8, 5, generator=generator)
    return F.cross_entropy(model(x), (x[:, 0] > 0).long(), reduction="none")


def train(model: nn.Module, meter: Any, batches: range, rank: int = 0) -> list[tuple[int, list[float]]]:
    """Train, and give the batches that were scored with their scores."""
    found = []
    for batch in batches:
        scores = meter.backward(losses_of(model, batch, rank))
        if scores is not None:
            found.append((batch, scores["gmc"].tolist()))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    return found


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))


@pytest.mark.parametrize("stop", [3, 17, 90, 133])
def test_a_resumed_run_scores_the_same_batches_as_one_that_was_not_stopped(stop: int, tmp_path: Path) -> None:
    every = AutoEvery(cost=0.15, drift=0.2)
    model = make_model()
    whole = train(model, Meter(model, [GMC(beta=0.9), NormAll()], every=every), range(200))
    model = make_model()
    meter = Meter(model, [GMC(beta=0.9), NormAll()], every=every)
    parts = train(model, meter, range(stop))
    torch.save([model.state_dict(), meter.state_dict()], tmp_path / "state.pt")
    model = make_model()
    meter = Meter(model, [GMC(beta=0.9), NormAll()], every=every)
    weights, state = torch.load(tmp_path / "state.pt")
    model.load_state_dict(weights)
    meter.load_state_dict(state)
    assert parts + train(model, meter, range(stop, 200)) == whole
    gaps = {after - before for (before, _), (after, _) in itertools.pairwise(whole)}
    assert len(gaps) > 1  # decisions were made on both sides


def test_what_was_measured_is_in_the_state_and_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    model = make_model()
    meter = Meter(model, GMC(), every="auto")
    for batch in range(MEASURED):
        is_scored = meter.backward(losses_of(model, batch)) is not None
        clock.now += 1.0
        assert is_scored == (batch < WARM + TIMED)
    clock.now = 1e9
    other = Meter(make_model(), GMC(), every="auto")
    other.load_state_dict(meter.state_dict())
    assert other.state_dict()["every"]["cost"] == 0.0
    fixed = Meter(make_model(), GMC(), every=4)
    fixed.load_state_dict(meter.state_dict())
    assert fixed.every == 4
    other.load_state_dict(fixed.state_dict())
    assert other.state_dict()["every"]["cost"] is None  # it begins anew


@leaving_together
def rank_of_two(rank: int, folder: str) -> None:
    """Ranks with data and clocks of their own score the same batches."""
    join_pair(rank, folder)
    clock = Clock()
    headway.grads.every.time = clock  # type: ignore[assignment]
    clock.perf_counter = lambda: clock.now  # type: ignore[attr-defined]
    model = make_model()
    parallel = nn.parallel.DistributedDataParallel(model)
    meter = Meter(parallel, [GMC(beta=0.9), NormAll()], every=AutoEvery(drift=0.2))
    found = []
    for batch in range(160):
        scores = meter.backward(losses_of(parallel, batch, rank))
        clock.now += 1.0
        if scores is not None:
            clock.now += 0.1 if rank else 0.7  # 0.4 on average: an interval of 4
            found.append(batch)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    torch.save([found, meter.every, meter.state_dict()["every"]["cost"]], f"{folder}/{rank}.pt")


@pytest.mark.slow
def test_two_ranks_decide_alike(tmp_path: Path) -> None:
    run_ranks(rank_of_two, str(tmp_path))
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first == second
    assert first[2] == pytest.approx(0.4)
    assert first[1] >= 4
    assert len(first[0]) < 80


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AutoEvery(budget=0.0), "above 0, got 0.0"),
        (lambda: AutoEvery(most=0), "at least 1, got 0"),
        (lambda: AutoEvery(cost=-1.0), "or None, got -1.0"),
        (lambda: Meter(make_model(), GMC(), every="often"), "'auto' or an AutoEvery, got 'often'"),  # type: ignore[call-overload]
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(LossError, match=message):
        make()
