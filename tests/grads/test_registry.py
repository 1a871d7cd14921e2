"""The registry of rules."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headway import Meter, NormAll, register_rule, unregister_rule
from headway.errors import RuleError
from headway.grads import rule_for


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_users_rule_is_used() -> None:
    calls = []

    @register_rule(Scale)
    def scale(module: nn.Module, inputs: tuple[Tensor, ...], grad_output: Tensor) -> dict[str, Tensor]:
        calls.append(len(grad_output))
        return {"scale": (grad_output * inputs[0]).flatten(1).sum(1, keepdim=True)}

    try:
        model = Scale()
        x = torch.randn(4, 3)
        scores = Meter(model, NormAll()).backward(model(x).sum(1))
        torch.testing.assert_close(scores, x.sum(1).abs())
        assert sum(calls) == 4
    finally:
        unregister_rule(Scale)
    assert rule_for(Scale()) is None


class LastState(nn.GRU):
    """A subclass of a recurrent module with a forward of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[1][0]


def single_gradients(module: nn.Module, inputs: tuple[Tensor, ...], grad_output: Tensor) -> dict[str, Tensor]:
    """Gradients of every sample by a backward pass of its own."""
    parameters = dict(module.named_parameters())
    rows = []
    for x, g in zip(inputs[0], grad_output, strict=True):
        with torch.enable_grad():
            out = type(module).forward(module, x[None])
        rows.append(torch.autograd.grad(out, list(parameters.values()), g[None]))
    return {name: torch.stack(column) for name, column in zip(parameters, zip(*rows, strict=True), strict=True)}


@pytest.mark.parametrize("with_rule", [False, True])
def test_a_recurrent_module_with_a_forward_of_its_own_is_followed(with_rule: bool) -> None:
    calls = []

    def rule(module: nn.Module, inputs: tuple[Tensor, ...], grad_output: Tensor) -> dict[str, Tensor]:
        calls.append(len(grad_output))
        return single_gradients(module, inputs, grad_output)

    model, x = LastState(3, 4, batch_first=True).double(), torch.randn(5, 6, 3, dtype=torch.float64)
    expected = single_gradients(model, (x,), torch.ones(5, 4, dtype=torch.float64))
    want = torch.stack([grads.flatten(1).abs().sum(1) for grads in expected.values()]).sum(0)
    if with_rule:
        register_rule(LastState)(rule)
    try:
        torch.testing.assert_close(Meter(model, NormAll()).backward(model(x).sum(1)), want)
        assert bool(calls) == with_rule
    finally:
        if with_rule:
            unregister_rule(LastState)


def test_a_rule_that_loses_gradient_is_noticed() -> None:
    from headway.errors import VerificationError

    @register_rule(Scale)
    def half(module: nn.Module, inputs: tuple[Tensor, ...], grad_output: Tensor) -> dict[str, Tensor]:
        return {"scale": (grad_output * inputs[0]).flatten(1).sum(1, keepdim=True) / 2}

    try:
        model = Scale()
        with pytest.raises(VerificationError, match=r"scale: .*\(1\) the rule that was registered for Scale is wrong"):
            Meter(model, NormAll()).backward(model(torch.randn(4, 3)).sum(1))
    finally:
        unregister_rule(Scale)


def test_duplicates_and_misses_are_refused() -> None:
    with pytest.raises(RuleError, match="Linear, which has one"):
        register_rule(nn.Linear)(lambda module, inputs, grad_output: {})
    with pytest.raises(RuleError, match=r"got Scale; known: .*Conv2d.*Linear"):
        unregister_rule(Scale)


def test_a_subclass_has_no_rule_of_its_own() -> None:
    class Mine(nn.Linear):
        pass

    assert rule_for(Mine(2, 2)) is None
    assert rule_for(nn.Linear(2, 2)) is not None
