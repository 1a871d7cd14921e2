"""GMC and its relatives against their definitions on materialised gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headway import GMC, Cosine, DotProduct, Meter, Projection
from headway.errors import SignalError

from ..models import batch, losses, mlp, sample_gradients


def setting() -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Scores, sample gradients, and the corrected m and v that they are compared with, after four updates."""
    model = mlp(torch.float64)
    signals = [
        GMC(beta=0.8, floor=1e-4),
        GMC(beta=0.8, floor=1e-6, unit="batch", name="batch floor"),
        GMC(beta=0.8, floor=0.5, unit="relative", name="relative floor"),
        DotProduct(beta=0.8, floor=0.5, unit="relative", where="0.*", name="relative part"),
        GMC(beta=0.8, floor=1e-4, scale=3.0, name="scaled"),
        DotProduct(beta=0.8, floor=1e-4),
        DotProduct(beta=0.8, floor=1e-4, over="tensor", name="dot tensor"),
        Cosine(beta=0.8),
        Cosine(beta=0.8, floor=1e-4, over="tensor", against="m/v", name="cosine tensor"),
        Projection(beta=0.8),
        Projection(beta=0.8, absolute=False, name="signed"),
    ]
    meter = Meter(model, signals)
    for step in range(4):
        meter.backward(losses(model, *batch(seed=step, dtype=torch.float64)))
        model.zero_grad()
    x, y = batch(seed=9, dtype=torch.float64)
    grads = sample_gradients(model, x, y)
    moments = meter.moments("gmc")
    pairs = {name: moments.corrected(name) for name in grads}
    scores = meter.score(losses(model, x, y))
    return scores, grads, {n: m for n, (m, _) in pairs.items()}, {n: v for n, (_, v) in pairs.items()}


def flat(tensors: dict[str, Tensor], lead: int) -> Tensor:
    return torch.cat([t.flatten(lead) for t in tensors.values()], dim=lead)


def test_every_variant_follows_its_formula() -> None:
    scores, grads, m, v = setting()
    g, mm, vv = flat(grads, 1), flat(m, 0), flat(v, 0)
    root = g.shape[1] ** 0.5
    part, m_part, v_part = (
        flat({name: tensor for name, tensor in own.items() if name.startswith("0.")}, lead)
        for own, lead in ((grads, 1), (m, 0), (v, 0))
    )
    expected = {
        "gmc": (g * mm / vv.clamp(min=1e-4)).abs().sum(1) / root,
        "batch floor": (g * mm / vv.clamp(min=1e-6 * 10**2)).abs().sum(1) / root,
        "relative floor": (g * mm / vv.clamp(min=0.5 * vv.mean())).abs().sum(1) / root,
        "relative part": (part * m_part / v_part.clamp(min=0.5 * v_part.mean())).sum(1).abs() / part.shape[1] ** 0.5,
        "scaled": 3 * (g * mm / vv.clamp(min=1e-4)).abs().sum(1) / root,
        "dot": (g * mm / vv.clamp(min=1e-4)).sum(1).abs() / root,
        "dot tensor": sum((grads[n] * m[n] / v[n].clamp(min=1e-4)).flatten(1).sum(1).abs() for n in grads) / root,
        "cosine": torch.cosine_similarity(g, mm.expand_as(g), dim=1).abs(),
        "cosine tensor": sum(
            torch.cosine_similarity(grads[n].flatten(1), (m[n] / v[n].clamp(min=1e-4)).flatten()[None], dim=1).abs()
            for n in grads
        )
        / root,
        "projection": ((g @ mm) / mm.norm()).abs(),
        "signed": (g @ mm) / mm.norm(),
    }
    assert scores.keys() == expected.keys()
    for name, want in expected.items():
        torch.testing.assert_close(scores[name], want, rtol=1e-9, atol=1e-12, msg=lambda text, n=name: f"{n}: {text}")


def test_projection_is_the_first_order_change_of_the_momentum() -> None:
    """|m + e g| - |m| = e (g . m) / |m| + O(e^2)."""
    scores, grads, m, _ = setting()
    g, mm = flat(grads, 1), flat(m, 0)
    step = 1e-7
    change = ((mm + step * g).norm(dim=1) - mm.norm()) / step
    torch.testing.assert_close(scores["signed"], change, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("signal", [GMC(), DotProduct(), Cosine(), Cosine(against="m/v"), Projection()])
def test_the_first_batch_scores_zero(signal) -> None:
    model = mlp()
    assert torch.equal(Meter(model, signal).backward(losses(model, *batch())), torch.zeros(10))


def test_d_counts_the_scored_parameters() -> None:
    model = mlp(torch.float64)
    everywhere, head = GMC(beta=0.8), GMC(beta=0.8, where="4.*", name="head")
    meter = Meter(model, [everywhere, head])
    meter.backward(losses(model, *batch(dtype=torch.float64)))
    model.zero_grad()
    x, y = batch(seed=3, dtype=torch.float64)
    grads = sample_gradients(model, x, y)
    moments = meter.moments("gmc")
    expected = 0
    for name in ("4.weight", "4.bias"):
        m, v = moments.corrected(name)
        expected = expected + (grads[name] * m / v.clamp(min=1e-8)).abs().flatten(1).sum(1)
    torch.testing.assert_close(meter.score(losses(model, x, y))["head"], expected / 36**0.5)


def test_a_negative_floor_is_refused() -> None:
    with pytest.raises(SignalError, match="above 0, got -1"):
        GMC(floor=-1)


@pytest.mark.parametrize("kind", [DotProduct, Cosine])
def test_an_unknown_scope_of_the_sum_is_refused(kind: type) -> None:
    with pytest.raises(SignalError, match="over 'all' or 'tensor', got 'tensors'"):
        kind(over="tensors")


def test_an_unknown_direction_is_refused() -> None:
    with pytest.raises(SignalError, match="against 'm' or 'm/v', got 'v'"):
        Cosine(against="v")


def test_a_pair_of_decay_rates_may_be_a_list() -> None:
    assert GMC(beta=[0.9, 0.9]) == GMC(beta=(0.9, 0.9))
    assert hash(GMC(beta=[0.9, 0.9])) == hash(GMC(beta=(0.9, 0.9)))


@pytest.mark.parametrize("beta", [[0.9], (0.9, 0.9, 0.9), "0.9", [0.9, "0.9"], None])
def test_other_decay_rates_are_refused(beta: object) -> None:
    with pytest.raises(SignalError, match="expected beta to be a decay rate, or a pair for m and v"):
        GMC(beta=beta)


def scores_of(signal: GMC, factor: float, steps: int = 6) -> Tensor:
    """The scores of the last of some batches whose losses are all multiplied by a factor."""
    model = mlp(torch.float64)
    meter = Meter(model, signal)
    for step in range(steps):
        scores = meter.backward(losses(model, *batch(seed=step, dtype=torch.float64)) * factor)
        model.zero_grad()
    return scores


@pytest.mark.parametrize("bias_correction", [True, False])
def test_a_relative_floor_does_not_depend_on_the_size_of_the_losses(bias_correction: bool) -> None:
    relative = GMC(beta=0.8, floor=0.5, unit="relative", bias_correction=bias_correction)
    for factor in (10.0, 1e-6):
        torch.testing.assert_close(scores_of(relative, factor), scores_of(relative, 1.0), rtol=1e-10, atol=0)
    fixed = GMC(beta=0.8, floor=1e-4, bias_correction=bias_correction)
    assert not torch.allclose(scores_of(fixed, 10.0), scores_of(fixed, 1.0), rtol=0.1)


def test_a_relative_floor_before_the_first_update_and_without_gradients() -> None:
    relative = GMC(floor=0.5, unit="relative")
    assert scores_of(relative, 1.0, steps=1).tolist() == [0.0] * 10
    assert scores_of(relative, 0.0, steps=4).tolist() == [0.0] * 10
    with pytest.raises(SignalError, match="relative floor"):
        relative.floor_for(10)


def train(meter: Meter, steps: int) -> None:
    for step in range(steps):
        meter.backward(losses(meter.model, *batch(seed=step % 7, dtype=torch.float64)))
        meter.model.zero_grad()


@pytest.mark.slow
def test_a_floor_that_decides_nearly_all_is_reported_once() -> None:
    signals = [GMC(floor=1e6), GMC(floor=1e-12, name="small"), Projection(floor=1e6)]
    meter = Meter(mlp(torch.float64), signals)
    with pytest.warns(UserWarning, match=r"^gmc: 100.0% of the parameters have a second moment under the") as seen:
        train(meter, 1100)
    assert len(seen) == 1
