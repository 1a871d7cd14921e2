"""Moving averages against hand calculations."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import Decay, Meter, Moments
from headway.errors import SignalError, StateError
from headway.moments import Flat
from headway.moments.flat import Whole
from headway.signals import GMC

from .models import batch, losses, mlp


def make(decay: Decay | None = None, size: int = 2) -> Moments:
    return Moments({"w": torch.zeros(size, dtype=torch.float64)}, decay or Decay(0.5, 0.5))


def grad(*values: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor(values, dtype=torch.float64)}


def test_two_updates_by_hand() -> None:
    """b = 1/2, g = (2, -4) then (4, 0): m = (2.5, -1), v = (9, 4); corrected by 1 - 1/4."""
    moments = make()
    moments.update(grad(2, -4))
    assert moments.m["w"].tolist() == [1, -2]
    assert moments.v["w"].tolist() == [2, 8]
    moments.update(grad(4, 0))
    assert moments.m["w"].tolist() == [2.5, -1]
    assert moments.v["w"].tolist() == [9, 4]
    m, v = moments.corrected("w")
    torch.testing.assert_close(m, torch.tensor([10 / 3, -4 / 3], dtype=torch.float64))
    torch.testing.assert_close(v, torch.tensor([12.0, 16 / 3], dtype=torch.float64))


def test_the_ratio_uses_the_floor_after_bias_correction() -> None:
    moments = make()
    moments.update(grad(2, -4))  # corrected: m = (2, -4), v = (4, 16)
    ratio = moments.ratios(["w"], 5.0)["w"]
    torch.testing.assert_close(ratio, torch.tensor([2 / 5, -4 / 16], dtype=torch.float64))
    assert moments.share_under(5.0) == 0.5


def test_without_bias_correction_the_raw_moments_count() -> None:
    moments = make(Decay(0.5, 0.5, bias_correction=False))
    moments.update(grad(2, -4))
    ratio = moments.ratios(["w"], 1e-8)["w"]
    torch.testing.assert_close(ratio, torch.tensor([1 / 2, -2 / 8], dtype=torch.float64))


def test_unequal_rates_warn_and_are_corrected_apart() -> None:
    with pytest.warns(UserWarning, match=r"m\^2 <= v is no longer guaranteed"):
        decay = Decay(0.5, 0.75)
    moments = make(decay)
    moments.update(grad(2, -4))
    ratio = moments.ratios(["w"], 1e-8)["w"]  # one update: corrected m = g, v = g^2
    torch.testing.assert_close(ratio, torch.tensor([1 / 2, -1 / 4], dtype=torch.float64))


def test_before_the_first_update_everything_is_zero() -> None:
    assert make().ratios(["w"], 1e-8)["w"].tolist() == [0, 0]


def test_a_missing_gradient_counts_as_zero() -> None:
    moments = make()
    moments.update(grad(2, 2))
    moments.update({"w": None})
    assert moments.m["w"].tolist() == [0.5, 0.5]


def test_a_scale_is_divided_out() -> None:
    moments = make()
    moments.update(grad(20, -40), torch.tensor(10.0, dtype=torch.float64))
    assert moments.m["w"].tolist() == [1, -2]


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 1e200])
def test_a_bad_gradient_never_enters_and_is_named(poison: float) -> None:
    moments = Moments({"a": torch.zeros(2, dtype=torch.float64), "b": torch.zeros(1, dtype=torch.float64)}, Decay())
    good = {"a": torch.ones(2, dtype=torch.float64), "b": torch.ones(1, dtype=torch.float64)}
    moments.update(good)
    before = copy.deepcopy(moments.state_dict())
    with pytest.warns(UserWarning, match="gradient in a: the moments were not updated"):
        moments.update({**good, "a": torch.tensor([1.0, poison], dtype=torch.float64)})
    assert moments.updates == 1
    assert moments.skipped == 1
    assert moments.skipped_names == ["a"]
    for key in ("m", "v"):
        for name in ("a", "b"):
            assert torch.equal(moments.state_dict()[key][name], before[key][name])


def test_the_path_without_branches_agrees_with_the_host_path() -> None:
    """What runs on accelerators, where nothing may wait for the device, run here on the CPU."""
    host, device = make(size=3), make(size=3)
    device._on_host = False
    for values in ((1, 2, 3), (0.5, -1, 2), (1, float("nan"), 0), (4, 4, -4)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            host.update(grad(*values))
            device.update(grad(*values))
    assert host.updates == device.updates == 3
    assert host.skipped == device.skipped == 1
    assert device.skipped_names == ["w"]
    torch.testing.assert_close(host.m["w"], device.m["w"])
    torch.testing.assert_close(host.v["w"], device.v["w"])
    torch.testing.assert_close(host.ratios(["w"], 1e-3)["w"], device.ratios(["w"], 1e-3)["w"])


def test_a_nan_loss_leaves_the_meter_usable() -> None:
    model = mlp()
    meter = Meter(model, GMC())
    x, y = batch()
    meter.backward(losses(model, x, y))
    model.zero_grad()
    with pytest.warns(UserWarning, match="NaN or infinite"):
        meter.backward(losses(model, x, y) * float("nan"))
    model.zero_grad()
    assert torch.isfinite(meter.backward(losses(model, x, y))).all()
    assert meter.moments().skipped == 1


@settings(max_examples=30)
@given(
    st.floats(0, 0.9999),
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=20),
    st.booleans(),
)
def test_equal_rates_keep_m_squared_below_v(rate: float, stream: list[list[float]], correct: bool) -> None:
    moments = make(Decay(rate, rate, correct), 3)
    for values in stream:
        moments.update(grad(*values))
        m, v = moments.corrected("w")
        assert bool((m**2 <= v * (1 + 1e-9) + 1e-300).all())


def test_state_continues_identically() -> None:
    a, b = make(), make()
    a.update(grad(1, 2))
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    a.update(grad(3, 4))
    b.update(grad(3, 4))
    assert torch.equal(a.v["w"], b.v["w"])
    assert a.updates == b.updates == 2


def test_a_foreign_state_is_refused() -> None:
    with pytest.raises(StateError, match=r"shape \[2\], got shape \[5\]"):
        make().load_state_dict(make(size=5).state_dict())
    with pytest.raises(StateError, match="'x'"):
        make().load_state_dict(Moments({"x": torch.zeros(2)}, Decay(0.5, 0.5)).state_dict())


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2.0, float("nan")])
def test_bad_rates_are_refused(rate: float) -> None:
    with pytest.raises(SignalError, match=r"\[0, 1\)"):
        Decay(rate, rate)


def test_low_precision_parameters_have_float32_moments() -> None:
    moments = Moments({"w": torch.zeros(2, dtype=torch.bfloat16)}, Decay())
    moments.update({"w": torch.ones(2, dtype=torch.bfloat16)})
    assert moments.m["w"].dtype == torch.float32


def test_momentum_stays_within_the_bound_only_with_equal_decay_rates() -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(50, 1000, generator=generator)
    equal = Moments({"w": torch.zeros(1000)}, Decay(0.9, 0.9))
    with pytest.warns(UserWarning, match="differ"):
        unequal = Moments({"w": torch.zeros(1000)}, Decay(0.5, 0.99, bias_correction=False))
    for gradient in gradients:
        equal.update({"w": gradient})
        unequal.update({"w": gradient})
        assert equal.share_within_bound() == 1
    # by hand: v is about 1 - 0.99^50 = 0.39, and m, a normal of variance 1/3, exceeds sqrt(v) in about 28% of cases
    assert 0.6 < unequal.share_within_bound() < 0.85


SHAPES = {"a": (3, 7), "b": (5,), "c": (2, 2)}


def flat_gradients(seed: int) -> Flat:
    gradients = Flat({name: torch.zeros(shape) for name, shape in SHAPES.items()})
    draws = torch.Generator().manual_seed(seed)
    for tensor in gradients.values():
        tensor.normal_(generator=draws)
    return gradients


def test_tensors_in_one_buffer() -> None:
    flat = Flat({"a": torch.zeros(3, 7), "b": torch.zeros(5, dtype=torch.float16)})
    assert flat.whole is not None
    assert flat.whole.shape == (32 + 5,)
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in flat.items()} == {
        "a": ((3, 7), torch.float32),
        "b": ((5,), torch.float32),
    }
    flat.whole.copy_(torch.arange(37.0))
    assert flat["b"].tolist() == [32, 33, 34, 35, 36]
    assert Flat({"a": torch.zeros(2), "b": torch.zeros(2, dtype=torch.float64)}).whole is None
    flat.replace("a", torch.zeros(3, 7))
    assert flat.whole is None


def test_gradients_in_one_buffer_give_the_same_moments() -> None:
    shapes = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    at_once, apart = Moments(shapes, Decay(0.9, 0.9)), Moments(shapes, Decay(0.9, 0.9))
    for seed in range(3):
        gradients = flat_gradients(seed)
        at_once.update(gradients)
        apart.update(dict(gradients))
    assert at_once.updates == apart.updates == 3
    for name in SHAPES:
        torch.testing.assert_close(at_once.m[name], apart.m[name])
        torch.testing.assert_close(at_once.v[name], apart.v[name])
    some = apart.ratios(["a", "c"], 0.5)  # tensor by tensor
    every = at_once.ratios(SHAPES, 0.5)
    for name in ("a", "c"):
        torch.testing.assert_close(some[name], every[name])
    assert at_once.ratios(SHAPES, 0.5, every, absolute=True) is every
    torch.testing.assert_close(every["c"], some["c"].abs())


def test_a_bad_gradient_in_one_buffer_is_named() -> None:
    moments = Moments({name: torch.zeros(shape) for name, shape in SHAPES.items()}, Decay())
    gradients = flat_gradients(0)
    gradients["b"][2] = float("nan")
    with pytest.warns(UserWarning, match="gradient in b"):
        moments.update(gradients)
    assert (moments.updates, moments.skipped, moments.skipped_names) == (0, 1, ["b"])


class Elsewhere(Whole):
    """Another rank that has found so many gradients that are not finite, and has nothing else to add."""

    def __init__(self) -> None:
        self.bad = 0

    def total(self, number: torch.Tensor) -> torch.Tensor:
        return number + (float("nan") if number.is_floating_point() and self.bad else self.bad)


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.filterwarnings("ignore:NaN or infinite gradient")
def test_a_gradient_that_is_not_finite_on_another_rank_is_left_out_on_all(on_host: bool) -> None:
    elsewhere = Elsewhere()
    moments = Moments({"w": torch.zeros(3)}, Decay(0.5, 0.5), elsewhere)
    moments._on_host = on_host
    for bad in (0, 1, 0):
        elsewhere.bad = bad
        moments.update({"w": torch.ones(3)})
    assert (moments.updates, moments.skipped, moments.skipped_names) == (2, 1, ["w"])
    torch.testing.assert_close(moments.m["w"], torch.full((3,), 0.75))
