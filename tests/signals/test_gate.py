"""The noise gate of GMC on moments whose answer is known."""

from __future__ import annotations

import warnings

import pytest
import torch

from headway import GMC, Decay, Meter, Moments
from headway.errors import SignalError
from headway.signals.gmc import gate_share

from ..models import batch, losses, mlp, sample_gradients


@pytest.mark.parametrize("rates", [(0.9, 0.9), (0.5, 0.99), (0.0, 0.0)])
def test_the_noise_level_is_what_the_recursions_of_the_expectations_give(rates: tuple[float, float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        moments = Moments({"w": torch.zeros(1)}, Decay(*rates))
    square, second = 0.0, 0.0  # E[m^2] and E[v] for gradients of variance 1
    assert moments.noise_level() == 1.0
    for _ in range(30):
        square = rates[0] ** 2 * square + (1 - rates[0]) ** 2
        second = rates[1] * second + (1 - rates[1])
        moments.update({"w": torch.ones(1)})
        assert moments.noise_level() == pytest.approx(square / second, rel=1e-12)


def test_the_level_begins_where_any_gradient_does_and_goes_to_its_limit() -> None:
    moments = Moments({"w": torch.zeros(1)}, Decay(0.9, 0.9))
    moments.update({"w": torch.ones(1)})
    assert moments.noise_level() == pytest.approx(0.1)  # after one update m^2 = (1 - b) v whatever the gradient was
    for _ in range(300):
        moments.update({"w": torch.ones(1)})
    assert moments.noise_level() == pytest.approx(0.1 / 1.9)


def test_shares_by_hand() -> None:
    m, v = torch.tensor([0.0, 1.0, -2.0, 3.0]), torch.ones(4)
    # m^2 = 0, 1, 4, 9 against a level of 2
    assert gate_share(m, v, 2.0, "hard").tolist() == [0, 0, 1, 1]
    torch.testing.assert_close(gate_share(m, v, 2.0, "soft"), torch.tensor([0, 0, 0.5, 7 / 9]))
    # a parameter that never had a gradient lets nothing through, and nothing becomes NaN
    assert gate_share(torch.zeros(2), torch.zeros(2), 2.0, "soft").tolist() == [0, 0]


def test_noise_is_shut_out_and_a_drift_is_let_through() -> None:
    generator = torch.Generator().manual_seed(0)
    moments = Moments({"noise": torch.zeros(20_000), "drift": torch.zeros(20_000)}, Decay(0.99, 0.99))
    for _ in range(600):
        noise = torch.randn(20_000, generator=generator)
        moments.update({"noise": noise, "drift": 1.0 + noise})
    level = moments.noise_level()
    passed = {
        name: [float(gate_share(moments.m[name], moments.v[name], k * level, gate).mean()) for k, gate in GATES]
        for name in ("noise", "drift")
    }
    # of a normal, 4.6% lie beyond two standard deviations and 32% beyond one
    assert passed["noise"][0] == pytest.approx(0.046, abs=0.01)
    assert passed["noise"][1] < 0.32 / 2
    # m = 1, v = 2, level 1/199: far out of the noise
    assert passed["drift"][0] == 1.0
    assert passed["drift"][1] == pytest.approx(1 - 2 / 199, abs=0.002)


GATES = ((4.0, "hard"), (1.0, "soft"))


@pytest.mark.parametrize("bias_correction", [True, False])
def test_scores_are_those_of_the_definition(bias_correction: bool) -> None:
    model = mlp(torch.float64)
    signals = [
        GMC(beta=0.8, floor=1e-4, bias_correction=bias_correction, gate="hard", name="hard"),
        GMC(beta=0.8, floor=1e-4, bias_correction=bias_correction, gate="hard", gate_level=0.5, name="half"),
        GMC(beta=0.8, floor=1e-4, bias_correction=bias_correction, gate="soft", name="soft"),
    ]
    meter = Meter(model, signals)
    for step in (0, 0, 0, 0, 0, 1):  # mostly the same, so that there is momentum
        meter.backward(losses(model, *batch(seed=step, dtype=torch.float64)))
        model.zero_grad()
    x, y = batch(seed=9, dtype=torch.float64)
    grads = sample_gradients(model, x, y)
    scores = meter.score(losses(model, x, y))
    moments = meter.moments("hard")
    size = sum(p.numel() for p in model.parameters())
    level = 0.2 / 1.8 * (1 - 0.8**12) / (1 - 0.8**6)
    for name, k in (("hard", 4.0), ("half", 0.5), ("soft", 1.0)):
        expected = torch.zeros(len(x), dtype=torch.float64)
        for parameter, own in grads.items():
            m, v = moments.corrected(parameter)
            raw_m, raw_v = moments.m[parameter], moments.v[parameter]
            share = (raw_m**2 > k * level * raw_v).double()
            if name == "soft":
                share = (1 - k * level * raw_v / raw_m**2).clamp(min=0).nan_to_num(0.0)
            expected += (own * (m * share / v.clamp(min=1e-4))).abs().flatten(1).sum(1)
        torch.testing.assert_close(scores[name], expected / size**0.5)
        assert float(scores[name].sum()) > 0
    assert not torch.allclose(scores["hard"], scores["half"])


def test_an_open_gate_changes_nothing() -> None:
    model = mlp(torch.float64)
    meter = Meter(model, [GMC(beta=0.8), GMC(beta=0.8, gate="hard", gate_level=1e-12, name="open")])
    for step in range(3):
        scores = meter.backward(losses(model, *batch(seed=step, dtype=torch.float64)))
        model.zero_grad()
    torch.testing.assert_close(scores["gmc"], scores["open"])


def test_bad_gates_are_refused() -> None:
    with pytest.raises(SignalError, match="got 'firm'"):
        GMC(gate="firm")  # type: ignore[arg-type]
    with pytest.raises(SignalError, match=r"gate_level.*got -1"):
        GMC(gate="hard", gate_level=-1)
    with pytest.raises(SignalError, match=r"gate_level.*got 2\.0 without one"):
        GMC(gate_level=2.0)
