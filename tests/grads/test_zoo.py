"""Every rule and the fallback against one-sample-at-a-time autograd, in float64."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from headway import Meter
from headway.grads import Reduction
from headway.signals import GMC, BaseSignal, Batch, DotProduct, Plan, Scope, Signal, Values

from .zoo import CASES, Case, weighted_loss


@dataclass(frozen=True, kw_only=True)
class Everything(BaseSignal):
    """All reductions of every parameter, kept for inspection."""

    name: str = "everything"

    def init(self, scope: Scope) -> None:
        generator = torch.Generator().manual_seed(3)
        for name, parameter in scope.parameters.items():
            scope.cache[name] = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype)

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        weights = scope.cache
        return {
            "l1": {name: Reduction("l1", w) for name, w in weights.items()},
            "plain l1": {name: Reduction("l1") for name in weights},
            "dot": {name: Reduction("dot", w - 0.5) for name, w in weights.items()},
            "plain dot": {name: Reduction("dot") for name in weights},
            "sq": {name: Reduction("sq") for name in weights},
        }

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        scope.memory.clear()
        for key, by_parameter in values.items():
            for name, value in by_parameter.items():
                scope.memory[f"{key}/{name}"] = value
        return batch.losses


def expected_reduction(key: str, grads: Tensor, weight: Tensor) -> Tensor:
    """The definition, on materialised gradients [B, *shape]."""
    flat, w = grads.reshape(len(grads), -1), weight.flatten()
    return {
        "l1": (flat * w).abs().sum(1),
        "plain l1": flat.abs().sum(1),
        "dot": (flat * (w - 0.5)).sum(1),
        "plain dot": flat.sum(1),
        "sq": flat.square().sum(1),
    }[key]


def build(case: Case) -> tuple[nn.Module, tuple, dict]:
    torch.manual_seed(0)
    model = case.model().double().train(case.train)
    for module in model.modules():  # statistics and slopes that are not the trivial ones
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.running_mean is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    for parameter in model.parameters():
        if parameter.dim() <= 1:
            parameter.data.add_(torch.randn_like(parameter) * 0.3)

    def double(tree):
        return torch.utils._pytree.tree_map(
            lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, tree
        )

    return model, double(case.inputs(case.samples)), double(case.kwargs(case.samples))


def losses_of(case: Case, model: nn.Module, inputs: tuple, kwargs: dict) -> Tensor:
    torch.manual_seed(1)  # the same dropout masks in every run
    return (case.loss or weighted_loss)(model(*inputs, **kwargs), case.samples)


@functools.lru_cache(maxsize=1)
def oracle(case: Case) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients of every sample [B, *shape] by parameter, from an unmetered model, and the losses."""
    model, inputs, kwargs = build(case)
    losses = losses_of(case, model, inputs, kwargs)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for loss in losses:
        model.zero_grad()
        loss.backward(retain_graph=True)
        for name, parameter in parameters.items():
            zero = torch.zeros_like(parameter)
            rows[name].append(zero if parameter.grad is None else parameter.grad.to_dense().clone())
    return {name: torch.stack(column) for name, column in rows.items()}, losses.detach()


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def rounding(expected: dict[str, Tensor]) -> float:
    """A hundred-thousandth of the largest gradient: one that is zero but for rounding has no size of its own."""
    return 1e-5 * max(grads.abs().reshape(len(grads), -1).sum(1).max().item() for grads in expected.values())


def assert_close(got: Tensor, want: Tensor, what: str, terms: Tensor | None = None, least: float = 1e-12) -> None:
    """Equal to 1e-9 of the largest value; of the summed terms, where a signed sum may cancel."""
    scale = (want if terms is None else terms).abs().max().clamp(min=least)
    worst = ((got - want).abs().max() / scale).item()
    assert worst <= 1e-9, f"{what}: relative difference {worst:.3g}"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("signal", [GMC(beta=0.9), DotProduct(beta=0.9)], ids=["gmc", "dot"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_check_changes_no_last_bit(case: Case, signal: Signal) -> None:
    """Which batches are checked starts anew with a resume, so scores must be the same with and without it."""
    outcomes = []
    for check in ("always", "never"):
        torch.manual_seed(0)
        model = case.model().train(case.train)
        meter = Meter(model, signal, layout=case.layout, check=check)
        for _ in range(3):  # the moments of the first batch are zero
            model.zero_grad()
            torch.manual_seed(1)
            inputs, kwargs = case.inputs(case.samples), case.kwargs(case.samples)
            scores = meter.backward((case.loss or weighted_loss)(model(*inputs, **kwargs), case.samples))
        outcomes.append(scores)
    assert torch.equal(*outcomes)


def test_nor_where_sizes_are_odd() -> None:
    """The last bits of a product may depend on where in memory its factors begin."""
    outcomes = []
    for check in ("always", "never"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(7, 19), nn.ReLU(), nn.Linear(19, 17))
        meter = Meter(model, GMC(beta=0.9), check=check)
        outcomes.append([meter.backward(model(torch.randn(33, 7)).square().sum(1)) for _ in range(20)])
        meter.detach()
    assert all(map(torch.equal, *outcomes))


@pytest.mark.slow
@pytest.mark.parametrize("simultaneous", [True, False], ids=["simultaneous", "apart"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reductions_equal_those_of_single_samples(case: Case, reduction: str, simultaneous: bool) -> None:
    expected, plain_losses = oracle(case)
    model, inputs, kwargs = build(case)
    with Meter(model, Everything(), reduction=reduction, layout=case.layout, simultaneous=simultaneous) as meter:
        losses = losses_of(case, model, inputs, kwargs)
        assert_close(losses.detach(), plain_losses, "losses")
        meter.backward(losses)
        scope, least = meter._scopes["everything"], rounding(expected)
        for name, grads in expected.items():
            for key in ("l1", "plain l1", "dot", "plain dot", "sq"):
                want = expected_reduction(key, grads, scope.cache[name])
                terms = grads.abs().reshape(len(grads), -1).sum(1) if "dot" in key else None
                assert_close(scope.memory[f"{key}/{name}"], want, f"{key} of {name}", terms, least)
            total = grads.sum(0) / (case.samples if reduction == "mean" else 1)
            parameter = dict(model.named_parameters())[name]
            got = torch.zeros_like(total) if parameter.grad is None else parameter.grad.to_dense()
            assert_close(got, total, f"gradient of {name}", grads, least)
    assert hooks(model) == hooks(build(case)[0])
    assert all(
        isinstance(p, nn.Parameter) for module in model.modules() for p in module._parameters.values() if p is not None
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_second_batch_of_another_size_is_right_too(case: Case) -> None:
    """What is remembered from the first pass must serve the later ones."""
    from dataclasses import replace

    small = replace(case, samples=max(1, case.samples - 2))
    expected, _ = oracle(small)
    model, inputs, kwargs = build(case)
    with Meter(model, Everything(), layout=case.layout) as meter:
        meter.backward(losses_of(case, model, inputs, kwargs))
        model2, inputs, kwargs = build(small)
        model.load_state_dict(model2.state_dict())
        model.zero_grad()
        meter.backward(losses_of(small, model, inputs, kwargs))
        scope = meter._scopes["everything"]
        for name, grads in expected.items():
            want = expected_reduction("l1", grads, scope.cache[name])
            assert_close(scope.memory[f"l1/{name}"], want, f"l1 of {name}", least=rounding(expected))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_batch_of_one_sample_is_right_too(case: Case) -> None:
    from dataclasses import replace

    single = replace(case, samples=1)
    expected, _ = oracle(single)
    model, inputs, kwargs = build(single)
    with Meter(model, Everything(), layout=case.layout) as meter:
        meter.backward(losses_of(single, model, inputs, kwargs))
        scope = meter._scopes["everything"]
        for name, grads in expected.items():
            want = expected_reduction("l1", grads, scope.cache[name])
            assert_close(scope.memory[f"l1/{name}"], want, f"l1 of {name}", least=rounding(expected))


def test_the_zoo_is_large() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
