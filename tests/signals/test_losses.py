"""Signals without gradients, by hand."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from headway import Curiosity, DeltaLoss, Meter, Uniform
from headway.errors import SignalError
from headway.signals import Batch, Scope

from ..models import batch, losses, mlp


def scope_for(signal: DeltaLoss) -> Scope:
    scope = Scope({"w": torch.zeros(1)})
    signal.init(scope)
    return scope


def feed(signal: DeltaLoss, scope: Scope, values: list[float], groups: list[int]) -> list[float]:
    """Score a batch, then take it in."""
    data = Batch(torch.tensor(values), torch.tensor(groups))
    scores = signal.scores(scope, data, {})
    signal.observe(scope, data)
    return scores.tolist()


def test_uniform_is_zero_and_curiosity_the_loss() -> None:
    model = mlp()
    x, y = batch()
    loss = losses(model, x, y)
    scores = Meter(model, [Uniform(), Curiosity(scale=2.0)]).backward(loss)
    assert torch.equal(scores["uniform"], torch.zeros(10))
    torch.testing.assert_close(scores["curiosity"], 2 * loss.detach())


def test_windows_by_hand() -> None:
    """Group 0 falls from a mean of 4 to a mean of 1 over windows of 2: (4 - 1) / 2 = 1.5."""
    signal = DeltaLoss(groups=2, window=2)
    scope = scope_for(signal)
    assert feed(signal, scope, [5.0, 9.0, 3.0], [0, 1, 0]) == [0, 0, 0]
    assert feed(signal, scope, [1.5, 0.5], [0, 0]) == [0, 0]
    assert feed(signal, scope, [7.0, 7.0], [0, 1]) == [1.5, 0]
    # Now the windows of group 0 are (3, 1.5) and (0.5, 7): (2.25 - 3.75) / 2.
    assert feed(signal, scope, [0.0], [0]) == [-0.75]


def test_epochs_by_hand() -> None:
    """|mean of the last epoch - mean of the one before| / samples in both, times the scale."""
    signal = DeltaLoss(groups=2, window=None, absolute=True, scale=100.0)
    scope = scope_for(signal)
    assert feed(signal, scope, [4.0, 2.0, 8.0], [0, 0, 1]) == [0, 0, 0]
    signal.end_epoch(scope)
    assert feed(signal, scope, [5.0], [0]) == [0]
    signal.end_epoch(scope)
    # Group 0: |5 - 3| / 3. Group 1 has had one epoch with samples.
    assert feed(signal, scope, [1.0, 7.0], [0, 1]) == pytest.approx([100 * 2 / 3, 0])
    signal.end_epoch(scope)
    # Group 0: |1 - 5| / 2. Group 1: the epoch without samples is skipped, |7 - 8| / 2.
    assert feed(signal, scope, [1.0, 1.0], [0, 1]) == pytest.approx([100 * 2, 50])


@pytest.mark.parametrize(("empty", "later"), [("skip", 0.5), ("stop", 0.25)])
def test_delta_loss_after_an_epoch_without_samples(empty: Literal["skip", "stop"], later: float) -> None:
    """Mean losses 4, 3 make (4 - 3) / 4; after the empty epoch 1 makes (3 - 1) / 4, unless the record has ended."""
    signal = DeltaLoss(groups=2, window=None, empty=empty)
    scope = scope_for(signal)
    for values, expected in (([4.0, 4.0], 0.0), ([3.0, 3.0], 0.25), ([], 0.25), ([1.0, 1.0], later), ([], later)):
        feed(signal, scope, [*values, 7.0], [*(0 for _ in values), 1])
        signal.end_epoch(scope)
        assert signal.progress(scope).tolist() == [expected, 0.0]


def test_the_sign_is_kept_unless_asked() -> None:
    signal = DeltaLoss(window=1)
    scope = scope_for(signal)
    feed(signal, scope, [1.0], [0])
    feed(signal, scope, [3.0], [0])
    assert feed(signal, scope, [0.0], [0]) == [-2]


def test_a_nan_loss_does_not_spoil_the_windows() -> None:
    signal = DeltaLoss(window=1)
    scope = scope_for(signal)
    feed(signal, scope, [1.0], [0])
    feed(signal, scope, [float("nan")], [0])
    feed(signal, scope, [0.5], [0])
    assert feed(signal, scope, [0.0], [0]) == [0.5]


def test_meter_passes_groups_and_epochs_on() -> None:
    model = mlp()
    meter = Meter(model, DeltaLoss(groups=2, window=None))
    groups = torch.tensor([0, 1] * 5)
    for epoch in range(3):
        scores = meter.backward(losses(model, *batch(seed=epoch)), groups=groups)
        meter.end_epoch()
    assert scores[0] == scores[2] != scores[1]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(SignalError, match="at least one group"):
        DeltaLoss(groups=0)
    with pytest.raises(SignalError, match="at least one sample"):
        DeltaLoss(window=0)


@pytest.mark.parametrize("window", [2, None])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.bool])
def test_groups_may_be_integers_of_any_size(dtype: torch.dtype, window: int | None) -> None:
    signal = DeltaLoss(groups=2, window=window)
    meters = [Meter(mlp(), signal) for _ in range(2)]
    groups = torch.tensor([0, 1, 1, 0, 0, 1, 0, 1, 1, 0])
    for step in range(3):
        x, y = batch(seed=step)
        wide, narrow = (
            meter.backward(losses(meter.model, x, y), groups=numbers)
            for meter, numbers in zip(meters, (groups, groups.to(dtype)), strict=True)
        )
        for meter in meters:
            meter.end_epoch()
        assert torch.equal(wide, narrow)
    assert bool(wide.any())


def test_groups_that_are_not_integers_are_refused() -> None:
    model = mlp()
    meter = Meter(model, DeltaLoss(groups=2))
    with pytest.raises(SignalError, match=r"got torch\.float32"):
        meter.backward(losses(model, *batch()), groups=torch.zeros(10))
