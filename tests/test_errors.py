"""Warnings name the line of the user's code that led to them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import headway
from headway.moments import Decay
from headway.selection import Mixture


def test_a_setting_is_warned_about_where_it_is_made() -> None:
    with pytest.warns(UserWarning, match="decay rates") as caught:
        Decay(0.5, 0.75)
    assert caught[0].filename == __file__


def test_a_gradient_is_warned_about_at_the_backward_behind_torchs_frames() -> None:
    model = nn.Linear(2, 1)
    meter = headway.Meter(model, headway.GMC())
    with pytest.warns(UserWarning, match="NaN or infinite gradient") as caught, meter:
        meter.backward(model(torch.tensor([[float("nan"), 1.0]])).sum(1))
    assert [warning.filename for warning in caught] == [__file__]


def test_a_second_meter_is_warned_about_where_it_is_attached() -> None:
    model = nn.Linear(2, 1)
    with (
        headway.Meter(model, headway.GMC()),
        pytest.warns(UserWarning, match="another meter") as caught,
        headway.Meter(model, headway.GMC()),
    ):
        pass
    assert caught[0].filename == __file__


def test_bad_scores_are_warned_about_where_they_are_told() -> None:
    mixture = Mixture(["a", "b"])
    with pytest.warns(UserWarning, match="NaN or infinite") as caught:
        mixture.update(torch.tensor([0, 1]), torch.tensor([1.0, float("nan")]))
    assert caught[0].filename == __file__
