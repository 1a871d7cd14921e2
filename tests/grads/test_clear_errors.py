"""Errors that name what is wrong, and states that are refused whole."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headway
from headway import GMC, Meter, NormAll, register_rule, unregister_rule
from headway.errors import LayoutError, LossError, ModelError, RuleError, StateError

from ..models import batch, losses, mlp


def test_complex_parameters_are_refused_by_name() -> None:
    model = nn.Linear(3, 3, dtype=torch.complex64)
    with pytest.raises(ModelError, match=r"weight: expected a real parameter, got torch\.complex64"):
        Meter(model, GMC())


def test_something_else_than_a_tensor_is_refused() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(LossError, match="expected a tensor of losses, one per sample, got ndarray"):
        Meter(mlp(), GMC()).backward(numpy.ones(3))


def test_complex_losses_are_refused() -> None:
    with pytest.raises(LossError, match=r"got torch\.complex64"):
        Meter(mlp(), GMC()).backward(torch.ones(3, dtype=torch.complex64, requires_grad=True))


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda m, i, g: {"scale": (g * i[0]).sum(0)}, r"'scale' with shape \[5, 6\], samples first, got \[6\]"),
        (lambda m, i, g: {"scal": g * i[0]}, r"gradients of 'scale', got \['scal'\]"),
        (
            lambda m, i, g: {"scale": headway.grads.persample.RankOne(g, g)},
            "6 numbers each, got a RankOne of 36",
        ),
    ],
    ids=["shape", "name", "form"],
)
def test_a_rule_that_gives_something_else_is_named(rule: Any, message: str) -> None:
    register_rule(Scale)(rule)
    try:
        model = nn.Sequential(nn.Linear(6, 6), Scale())
        with pytest.raises(RuleError, match=rf"1: expected the rule for Scale to give .*{message}"):
            Meter(model, GMC()).backward(model(torch.randn(5, 6)).square().sum(1))
    finally:
        unregister_rule(Scale)


@pytest.mark.parametrize("width", [6, 5])
def test_experts_that_see_some_of_the_samples_are_refused_in_words(width: int) -> None:
    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.expert, self.weight = nn.Linear(6, 6), nn.Linear(6, 6), nn.Parameter(torch.randn(6, width))

        def forward(self, x: Tensor, direct: bool) -> Tensor:
            chosen = torch.tensor([0, 2, 3])
            x = x if direct else self.first(x)
            part = x[chosen] @ self.weight if direct else self.expert(x[chosen])
            return x.new_zeros(len(x), part.shape[1]).index_add(0, chosen, part)

    for direct in (True, False):
        model = Routed()
        with pytest.raises((LayoutError, RuleError, headway.errors.UnscoredGradientError), match="expected"):
            Meter(model, NormAll()).backward(model(torch.randn(6, 6), direct).square().sum(1))


def test_a_sample_with_a_nan_loss_scores_nan_with_every_signal() -> None:
    signals = [
        *(GMC(), headway.DotProduct(), headway.Cosine(), headway.Projection(), NormAll(), headway.NormLast()),
        *(headway.Curiosity(), headway.Cosine(name="tensors", over="tensor", against="m/v")),
    ]
    model = mlp()
    meter = Meter(model, signals)
    for seed in range(3):
        loss = losses(model, *batch(seed=seed))
        bad = torch.arange(10) == 4
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = meter.backward(loss * torch.where(bad, torch.nan, 1.0) if seed == 2 else loss)
        model.zero_grad()
    for name, values in scores.items():
        assert torch.isnan(values).tolist() == bad.tolist(), name


def damaged(state: dict[str, Any], damage: str) -> None:
    moments = state["moments"][0]
    changes: dict[str, Callable[[], Any]] = {
        "no updates": lambda: moments.pop("updates"),
        "no skipped": lambda: moments.pop("skipped"),
        "no bad": lambda: moments.pop("bad"),
        "no batches": lambda: state.pop("batches"),
        "negative batches": lambda: state.update(batches=-1),
        "updates of another shape": lambda: moments.update(updates=torch.zeros(2, dtype=torch.int64)),
        "updates that are no tensor": lambda: moments.update(updates="7"),
        "fractional updates": lambda: moments.update(updates=torch.tensor(1.5)),
        "negative updates": lambda: moments.update(updates=torch.tensor(-1)),
        "bad of another length": lambda: moments.update(bad=torch.zeros(2, dtype=torch.bool)),
        "NaN": lambda: moments["m"]["0.weight"].fill_(torch.nan),
        "infinity": lambda: moments["v"]["2.bias"].fill_(torch.inf),
        "negative v": lambda: moments["v"]["2.bias"].fill_(-1.0),
        "moments that are no tensor": lambda: moments["m"].update({"0.bias": [0.0]}),
    }
    changes[damage]()


@pytest.mark.parametrize(
    "damage",
    [
        *("no updates", "no skipped", "no bad", "no batches", "negative batches", "updates of another shape"),
        *("updates that are no tensor", "fractional updates", "negative updates", "bad of another length", "NaN"),
        *("infinity", "negative v", "moments that are no tensor"),
    ],
)
def test_a_damaged_state_changes_nothing(damage: str) -> None:
    model = mlp()
    meter = Meter(model, GMC(beta=0.9))
    for seed in range(2):
        meter.backward(losses(model, *batch(seed=seed)))
        model.zero_grad()
    before, state = meter.state_dict(), meter.state_dict()
    damaged(state, damage)
    with pytest.raises(StateError, match="expected"):
        meter.load_state_dict(state)
    after = meter.state_dict()
    assert after["batches"] == before["batches"]
    for key in ("m", "v"):
        for name, value in before["moments"][0][key].items():
            assert torch.equal(after["moments"][0][key][name], value)
    for key in ("updates", "skipped", "bad"):
        assert torch.equal(after["moments"][0][key], before["moments"][0][key])
