"""The meter: what users hold."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

import headway
from headway import GMC, Curiosity, DeltaLoss, Meter, NormAll, NormLast
from headway.errors import (
    LayoutError,
    LossError,
    ModelError,
    RuleError,
    SignalError,
    StateError,
    UnscoredGradientError,
    VerificationError,
)

from .grads.zoo import Checkpointed, CheckpointedBlocks, CheckpointedMethod, weighted_loss
from .models import batch, losses, mlp, sample_gradients


def train(meter: Meter, model: nn.Module, steps: int, start: int = 0, lr: float = 0.05) -> list[torch.Tensor]:
    """Plain gradient descent; returns the scores of every batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr)
    scores = []
    for step in range(start, start + steps):
        scores.append(meter.backward(losses(model, *batch(seed=step, dtype=next(model.parameters()).dtype))))
        optimizer.step()
        optimizer.zero_grad()
    return scores


def snapshot(model: nn.Module) -> list:
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def test_gmc_follows_its_definition_over_several_steps() -> None:
    """By hand: m, v with bias correction from the batches before; floors and sqrt(d)."""
    model = mlp(torch.float64)
    meter = Meter(model, GMC(beta=0.9, floor=1e-3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    size = sum(p.numel() for p in model.parameters())
    m = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    v = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step in range(5):
        x, y = batch(seed=step, dtype=torch.float64)
        grads = sample_gradients(model, x, y)
        expected = torch.zeros(len(x), dtype=torch.float64)
        if step:
            correction = 1 - 0.9**step
            for name, g in grads.items():
                weight = (m[name] / correction).abs() / (v[name] / correction).clamp(min=1e-3)
                expected += (g.abs() * weight).flatten(1).sum(1) / size**0.5
        scores = meter.backward(losses(model, x, y))
        torch.testing.assert_close(scores, expected, rtol=1e-10, atol=1e-14)
        for name, g in grads.items():
            mean = g.mean(0)
            m[name] = 0.9 * m[name] + 0.1 * mean
            v[name] = 0.9 * v[name] + 0.1 * mean**2
        optimizer.step()
        optimizer.zero_grad()


def test_gradients_are_those_of_plain_training() -> None:
    model, plain = mlp(), mlp()
    x, y = batch()
    Meter(model, GMC()).backward(losses(model, x, y))
    losses(plain, x, y).mean().backward()
    for got, want in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad)


def test_sum_reduction_gives_summed_gradients_and_the_same_scores() -> None:
    one, two = mlp(torch.float64), mlp(torch.float64)
    mean, total = Meter(one, GMC(beta=0.9)), Meter(two, GMC(beta=0.9), reduction="sum")
    for step in range(3):
        x, y = batch(seed=step, dtype=torch.float64)
        one.zero_grad()
        two.zero_grad()
        torch.testing.assert_close(mean.backward(losses(one, x, y)), total.backward(losses(two, x, y)))
        torch.testing.assert_close(one[0].weight.grad * len(x), two[0].weight.grad)


def test_several_signals_share_one_pass_and_equal_each_alone() -> None:
    signals = [
        GMC(),
        NormAll(),
        NormLast(),
        Curiosity(),
        headway.DotProduct(),
        headway.Cosine(),
        headway.Projection(),
    ]
    model = mlp()
    together = [train(Meter(model, signals), model, 4)]
    for signal in signals:
        alone = mlp()
        for got, want in zip(together[0], train(Meter(alone, signal), alone, 4), strict=True):
            torch.testing.assert_close(got[signal.name], want)


def test_scores_are_detached_and_never_below_float32() -> None:
    for dtype, expected in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64,) * 2,
    ):
        model = mlp(dtype)
        scores = Meter(model, NormAll()).backward(losses(model, *batch(dtype=dtype)))
        assert scores.dtype == expected
        assert not scores.requires_grad


def test_score_touches_nothing() -> None:
    model = mlp()
    meter = Meter(model, GMC())
    train(meter, model, 3)
    model(torch.randn(2, 6)).sum().backward()  # gradients that must survive
    before, state = snapshot(model), copy.deepcopy(meter.state_dict())
    x, y = batch(seed=9)
    loss = losses(model, x, y)
    scores = meter.score(loss, retain_graph=True)
    for got, want in zip(snapshot(model), before, strict=True):
        torch.testing.assert_close(got, want)
    assert torch.equal(meter.state_dict()["moments"][0]["m"]["0.weight"], state["moments"][0]["m"]["0.weight"])
    assert meter.state_dict()["batches"] == state["batches"]
    torch.testing.assert_close(meter.backward(loss), scores)


def test_gradients_that_were_there_stay_and_do_not_enter_the_moments() -> None:
    clean, dirty = mlp(torch.float64), mlp(torch.float64)
    for p in dirty.parameters():
        p.grad = torch.ones_like(p)
    a, b = Meter(clean, GMC()), Meter(dirty, GMC())
    x, y = batch(dtype=torch.float64)
    a.backward(losses(clean, x, y))
    b.backward(losses(dirty, x, y))
    torch.testing.assert_close(dirty[0].weight.grad, clean[0].weight.grad + 1)
    torch.testing.assert_close(a.moments().m["0.weight"], b.moments().m["0.weight"])


def test_every_scores_each_kth_batch_like_a_meter_that_scores_all() -> None:
    model, other = mlp(), mlp()
    all_scores = train(Meter(model, GMC()), model, 7)
    some = train(Meter(other, GMC(), every=3), other, 7)
    for step, (want, got) in enumerate(zip(all_scores, some, strict=True)):
        if step % 3 == 0:
            torch.testing.assert_close(got, want)
        else:
            assert got is None


@pytest.mark.parametrize("every", [1, 2])
def test_a_batch_may_be_left_out_and_still_enters_the_moments(every: int) -> None:
    model, other = mlp(), mlp()
    meter, reference = Meter(model, GMC(), every=every), Meter(other, GMC(), every=every)
    want = train(reference, other, 4)
    got = train(meter, model, 2)
    with meter.unscored():
        assert train(meter, model, 1, start=2) == [None]
    with contextlib.suppress(ZeroDivisionError), meter.unscored():
        raise ZeroDivisionError  # whatever happens inside, the meter goes on as before
    got += [None, *train(meter, model, 1, start=3)]
    for step, (one, two) in enumerate(zip(got, want, strict=True)):
        if step != 2:
            assert one is two or torch.equal(one, two)
    assert torch.equal(meter.moments().v["0.weight"], reference.moments().v["0.weight"])


def test_accumulated_micro_batches_equal_the_joined_batch() -> None:
    joined, split = mlp(torch.float64), mlp(torch.float64)
    a, b = Meter(joined, GMC(beta=0.9)), Meter(split, GMC(beta=0.9), accumulate=2)
    for step in range(3):
        x, y = batch(12, seed=step, dtype=torch.float64)
        want = a.backward(losses(joined, x, y))
        got = torch.cat([b.backward(losses(split, x[part], y[part])) for part in (slice(0, 6), slice(6, 12))])
        torch.testing.assert_close(got, want)
        for p, q in zip(joined.parameters(), split.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
        joined.zero_grad()
        split.zero_grad()
    torch.testing.assert_close(a.moments().v["0.weight"], b.moments().v["0.weight"])


@pytest.mark.parametrize("to_none", [True, False])
def test_a_step_that_comes_early_ends_the_accumulation(to_none: bool) -> None:
    model = nn.Linear(3, 1, bias=False)
    meter = Meter(model, GMC(beta=0.0), accumulate=4)
    taken = []
    for micro in range(20):  # two epochs of ten micro-batches with a gradient of 1, a step after 4, 8 and 10 of them
        meter.backward(model(torch.ones(2, 3)).squeeze(1))
        taken.append((meter.moments().updates, meter.moments().m["weight"][0, 0].item()))
        if micro % 10 in (3, 7, 9):
            model.zero_grad(set_to_none=to_none)
            meter.state_dict()  # it is between steps
    updates, values = zip(*taken, strict=True)
    assert updates == (0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4)
    assert set(values[3:]) == {1.0}


def test_saved_and_loaded_continues_identically() -> None:
    model = mlp()
    meter = Meter(model, [GMC(), DeltaLoss(window=4)])
    train(meter, model, 5)
    other = mlp(seed=1)
    other.load_state_dict(model.state_dict())
    loaded = Meter(other, [GMC(), DeltaLoss(window=4)])
    loaded.load_state_dict(copy.deepcopy(meter.state_dict()))
    for want, got in zip(train(meter, model, 4, 5), train(loaded, other, 4, 5), strict=True):
        assert all(torch.equal(want[name], got[name]) for name in want)


def test_a_failed_micro_batch_leaves_those_before_it() -> None:
    model = nn.Linear(3, 2, bias=False)
    meter = Meter(model, GMC(beta=0.0), accumulate=3)

    def ones() -> torch.Tensor:
        return model(torch.ones(2, 3))[:, 0]  # the second output has a gradient of zero

    meter.backward(ones())
    with pytest.raises(RuntimeError, match="on purpose"):
        meter.backward(failing(ones()))
    meter.backward(ones())
    meter.backward(ones())
    assert meter.moments().updates == 1
    torch.testing.assert_close(meter.moments().m["weight"], torch.tensor([[1.0] * 3, [0.0] * 3]))


def failing(losses: torch.Tensor) -> torch.Tensor:
    """The losses, with a backward pass that does not come through."""
    losses = losses * 1.0

    def fail(gradient: torch.Tensor) -> None:
        raise RuntimeError("on purpose")

    losses.register_hook(fail)
    return losses


def test_a_layer_that_is_unfrozen_midway_keeps_the_moments_of_the_others() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    meter = Meter(model, GMC())
    train(meter, model, 3)
    model[0].requires_grad_(True)
    with pytest.raises(ModelError, match=r"load_state_dict\(state, strict=False\)"):
        train(meter, model, 1)
    meter.detach()
    later = Meter(model, GMC())
    with pytest.raises(StateError, match=r"0\.bias.*strict=False"):
        later.load_state_dict(meter.state_dict())
    later.load_state_dict(meter.state_dict(), strict=False)
    assert later.moments().updates == 3
    assert torch.equal(later.moments().v["2.weight"], meter.moments().v["2.weight"])
    assert not later.moments().v["0.weight"].any()
    train(later, model, 1)


def test_state_goes_through_torch_save_with_weights_only(tmp_path) -> None:
    model = mlp()
    meter = Meter(model, GMC())
    train(meter, model, 2)
    torch.save(meter.state_dict(), tmp_path / "meter.pt")
    other = Meter(mlp(), GMC())
    other.load_state_dict(torch.load(tmp_path / "meter.pt", weights_only=True))
    assert other.moments().updates == 2
    for name, value in meter.moments().v.items():
        assert torch.equal(other.moments().v[name], value)
        assert torch.equal(other.moments().m[name], meter.moments().m[name])


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    model = mlp()
    meter = Meter(model, GMC())
    train(meter, model, 2)
    before = copy.deepcopy(meter.state_dict())
    other = nn.Linear(6, 4)
    foreign = Meter(other, GMC())
    foreign.backward(losses(other, *batch()))
    for state in (foreign.state_dict(), Meter(mlp(), NormAll()).state_dict(), {"schema": 7}):
        with pytest.raises(StateError, match="expected"):
            meter.load_state_dict(state)
    after = meter.state_dict()
    assert after["batches"] == before["batches"]
    assert torch.equal(after["moments"][0]["m"]["0.weight"], before["moments"][0]["m"]["0.weight"])


def test_where_restricts_to_some_parameters() -> None:
    model = mlp(torch.float64)
    x, y = batch(dtype=torch.float64)
    grads = sample_gradients(model, x, y)
    norms = {name: g.abs().flatten(1).sum(1) for name, g in grads.items()}
    signals = [
        NormAll(where="4.*", name="pattern"),
        NormAll(where=["0.weight", "4.bias"], name="several"),
        NormAll(where=lambda name, p: p.dim() == 1, name="predicate"),
    ]
    scores = Meter(model, signals).backward(losses(model, x, y))
    torch.testing.assert_close(scores["pattern"], norms["4.weight"] + norms["4.bias"])
    torch.testing.assert_close(scores["several"], norms["0.weight"] + norms["4.bias"])
    torch.testing.assert_close(scores["predicate"], norms["0.bias"] + norms["2.bias"] + norms["4.bias"])


def test_a_model_that_was_metered_and_detached_is_as_before() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), nn.Linear(8, 2))
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    keys = {name: set(attributes) for name, attributes in before.items()}
    with Meter(model, GMC()) as meter:
        meter.backward(model(torch.randn(3, 4, 8)).flatten(1).sum(1))
    for name, module in model.named_modules():
        assert set(vars(module)) == keys[name]
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    copy.deepcopy(model)


class Mixed(nn.Module):
    """Every kind of site: a layer, attention, a direct parameter, normalisation in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(6, 2, 12, 0.0, batch_first=True)
        self.gain, self.head = nn.Parameter(torch.randn(6)), nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4).eval())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(x.unsqueeze(1)).squeeze(1) * self.gain)


def saved_and_loaded(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    assert b"headway" not in file.getvalue()  # it loads where headway is not installed
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "save": saved_and_loaded,
    "copy of a copy": lambda model: pickle.loads(pickle.dumps(copy.deepcopy(model))),
}


@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_metered_model_is_a_model_of_its_own(duplicate) -> None:
    torch.manual_seed(0)
    model, plain = Mixed(), Mixed()
    x, y = batch()
    meter = Meter(model, NormAll())
    meter.backward(losses(model, x, y))
    twin = duplicate(model)
    with torch.no_grad():
        for parameter, value in zip(twin.parameters(), plain.parameters(), strict=True):
            parameter.copy_(value)  # the copy uses its own parameters
    twin.zero_grad()
    losses(twin, x, y).mean().backward()
    losses(plain, x, y).mean().backward()
    for got, want in zip(twin.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad)
    model.zero_grad()
    want = meter.backward(losses(model, x, y))
    twin.zero_grad()
    with Meter(twin, NormAll()) as other, Meter(plain, NormAll()) as judge:
        torch.testing.assert_close(other.backward(losses(twin, x, y)), judge.score(losses(plain, x, y)))
        model.zero_grad()
        torch.testing.assert_close(meter.backward(losses(model, x, y)), want)


@pytest.mark.parametrize("name", ["deepcopy", "pickle"])
def test_a_copied_meter_is_detached_and_hands_its_state_on(name: str) -> None:
    torch.manual_seed(0)
    model = Mixed()
    meter = Meter(model, GMC(beta=0.9))
    x, y = batch()
    meter.backward(losses(model, x, y))
    twin, copied = COPIES[name]((model, meter))
    assert copied.model is twin
    with pytest.raises(ModelError, match=r"or copied; make a new one and load_state_dict\(\)"):
        copied.backward(losses(twin, x, y))
    copied.detach()  # leaves both models alone
    resumed = Meter(twin, GMC(beta=0.9))
    resumed.load_state_dict(copied.state_dict())
    model.zero_grad()
    twin.zero_grad()
    want = meter.backward(losses(model, x, y))
    assert (want > 0).all()
    torch.testing.assert_close(resumed.backward(losses(twin, x, y)), want, rtol=0, atol=0)


def test_a_copy_of_a_metered_model_outlives_its_meter() -> None:
    model = Mixed()
    meter = Meter(model, GMC())
    average = torch.optim.swa_utils.AveragedModel(model)
    engine = weakref.ref(meter._engine)
    meter.detach()
    del meter, model
    gc.collect()
    assert engine() is None
    assert average(batch()[0]).shape == (10, 4)


def test_a_plain_backward_still_trains_a_metered_model() -> None:
    model, plain = nn.Conv2d(2, 3, 3), nn.Conv2d(2, 3, 3)
    plain.load_state_dict(model.state_dict())
    x = torch.randn(4, 2, 5, 5)
    with Meter(model, GMC()):
        model(x).square().mean().backward()
    plain(x).square().mean().backward()
    torch.testing.assert_close(model.weight.grad, plain.weight.grad)
    torch.testing.assert_close(model.bias.grad, plain.bias.grad)


def test_evaluation_between_batches_does_not_matter() -> None:
    model, other = mlp(), mlp()
    a, b = Meter(model, GMC()), Meter(other, GMC())
    for step in range(3):
        with torch.no_grad():
            other(torch.randn(7, 6))
        other(torch.randn(5, 6))  # a forward with gradients that is thrown away
        want, got = train(a, model, 1, step), train(b, other, 1, step)
        torch.testing.assert_close(want, got)


def test_verify_reports_the_largest_difference() -> None:
    model = mlp(torch.float64)
    meter = Meter(model, GMC(), verify=True)
    train(meter, model, 2)
    assert meter.verification is not None
    assert meter.verification.largest_difference < 1e-12


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def test_verify_catches_a_wrong_rule() -> None:
    @headway.register_rule(Odd)
    def wrong(module, inputs, grad_output):  # the right total, the wrong samples
        return {"scale": (inputs[0] * grad_output).flip(0)}

    try:
        model = nn.Sequential(Odd(), nn.Linear(6, 4))
        with pytest.raises(VerificationError, match=r"0\.scale"):
            Meter(model, NormAll(), verify=True).backward(losses(model, *batch()))
    finally:
        headway.unregister_rule(Odd)


@pytest.mark.parametrize("make", [lambda: Checkpointed(False), CheckpointedBlocks, CheckpointedMethod])
def test_verify_follows_checkpoints(make) -> None:
    model = make().double()
    meter = Meter(model, GMC(), verify=True)
    x = torch.randn(5, *((4, 6) if make is CheckpointedMethod else (6,)), dtype=torch.float64)
    for _ in range(2):
        meter.backward(weighted_loss(model(x), 5))
        assert meter.verification is not None
        assert meter.verification.largest_difference < 1e-10


def test_a_checkpointed_method_may_be_gone_through_twice() -> None:
    model = CheckpointedMethod().double()
    meter = Meter(model, NormAll())
    loss = weighted_loss(model(torch.randn(5, 4, 6, dtype=torch.float64)), 5)
    torch.testing.assert_close(meter.backward(loss, retain_graph=True), meter.backward(loss))
    assert all(isinstance(p, nn.Parameter) for module in model.modules() for p in module._parameters.values())


def test_the_check_of_the_first_batch_sees_into_checkpoints() -> None:
    @headway.register_rule(Odd)
    def wrong(module, inputs, grad_output):  # the right total, the wrong samples
        return {"scale": (inputs[0] * grad_output).flip(0)}

    try:
        model = Checkpointed(False)
        model.body = nn.Sequential(nn.Linear(6, 6), Odd())
        meter = Meter(model, NormAll())
        with pytest.raises(VerificationError, match=r"body\.1\.scale"):
            meter.backward(losses(model, *batch()))
    finally:
        headway.unregister_rule(Odd)


class MixesSamples(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(0)) * self.scale


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda out: out.mean(), LossError, "shape \\[B\\], got shape \\[\\]"),
        (lambda out: out.unsqueeze(1), LossError, "got shape \\[10, 1\\]"),
        (lambda out: out[:0], LossError, "at least one sample"),
        (lambda out: out.detach(), LossError, "without a graph"),
        (lambda out: torch.ones(3, requires_grad=True) * 2, LossError, "does not reach it"),
    ],
)
def test_bad_losses_are_refused_and_nothing_is_lost(spoil, error, message) -> None:
    model = mlp()
    meter = Meter(model, GMC())
    for fresh in (True, False):
        if not fresh:
            train(meter, model, 2)
        model(torch.randn(2, 6)).sum().backward()
        before, state = snapshot(model), copy.deepcopy(meter.state_dict())
        with pytest.raises(error, match=message):
            meter.backward(spoil(losses(model, *batch())))
        for got, want in zip(snapshot(model), before, strict=True):
            torch.testing.assert_close(got, want)
        assert meter.state_dict()["batches"] == state["batches"]
        assert meter.moments().updates == int(state["moments"][0]["updates"])


def test_a_model_without_trainable_parameters_is_refused() -> None:
    for model in (nn.ReLU(), mlp().requires_grad_(False)):
        with pytest.raises(ModelError, match="trainable parameters"):
            Meter(model, GMC())


def test_a_lazy_model_is_refused() -> None:
    with pytest.raises(ModelError, match="run the model once"):
        Meter(nn.LazyLinear(3), GMC())


@pytest.mark.parametrize("change", ["replaced", "frozen", "added"])
def test_a_changed_model_is_refused(change: str) -> None:
    model = mlp()
    meter = Meter(model, GMC())
    train(meter, model, 1)
    if change == "replaced":
        model[4] = nn.Linear(8, 4)
    elif change == "frozen":
        model[4].weight.requires_grad_(False)
    else:
        model.append(nn.Linear(4, 4))
    before = snapshot(model)
    with pytest.raises(ModelError, match="differ"):
        meter.backward(losses(model, *batch()))
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(snapshot(model), before, strict=True))
    assert meter.moments().updates == 1


def test_batch_norm_in_training_mode_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, affine=False), nn.Linear(8, 4))
    meter = Meter(model, GMC())
    with pytest.raises(RuleError, match=r"1 \(BatchNorm1d\).*GroupNorm.*eval"):
        model(torch.randn(5, 6))
    model[1].eval()
    meter.backward(losses(model, *batch()))


def test_a_custom_module_that_mixes_samples_is_refused() -> None:
    model = nn.Sequential(MixesSamples(), nn.Linear(6, 4))
    meter = Meter(model, GMC())
    with pytest.raises(RuleError, match=r"^0: .*treats samples apart"):
        meter.backward(losses(model, *batch()))
    assert all(p.grad is None for p in model.parameters())


def test_a_custom_module_that_draws_random_numbers_is_refused() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(x, 0.5) * self.scale

    model = nn.Sequential(Noisy(), nn.Linear(6, 4))
    with pytest.raises(RuleError, match="random"):
        Meter(model, GMC()).backward(losses(model, *batch()))


def test_parameters_used_outside_the_forward_are_reported() -> None:
    model = mlp()
    meter = Meter(model, GMC())
    penalty = sum(p.square().sum() for p in model.parameters())
    with pytest.raises(VerificationError, match=r"and 5 more: .*batch 1\..*a penalty on the parameters"):
        meter.backward(losses(model, *batch()) + penalty)
    assert all(p.grad is None for p in model.parameters())
    assert meter.moments().updates == 0


def test_a_forward_from_before_the_meter_is_reported() -> None:
    model = mlp()
    loss = losses(model, *batch())
    with pytest.raises(UnscoredGradientError, match="make the meter before the forward"):
        Meter(model, GMC()).backward(loss)
    assert all(p.grad is None for p in model.parameters())


def test_hidden_samples_are_reported_with_the_way_out() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.flatten(0, 1)).view(len(x), -1)

    model = Flat()
    meter = Meter(model, GMC(), check="never")  # with a check, the layout is found
    with pytest.raises(LayoutError, match=r"layer: expected 5 samples .*'flat'"):
        meter.backward(model(torch.randn(5, 3, 6)).sum(1))


def test_positions_that_look_like_samples_are_reported() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(9, 6), nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x + self.table(torch.arange(x.shape[1])))

    model = Positions()
    Meter(model, GMC())
    with pytest.raises(LayoutError, match=r"table.*'shared'"):
        model(torch.randn(5, 5, 6))


def test_bad_set_ups_are_refused() -> None:
    model = mlp()
    for make, error, message in (
        (lambda: Meter(model, []), SignalError, "at least one"),
        (lambda: Meter(model, [GMC(), GMC(beta=0.9)]), SignalError, "'gmc' twice"),
        (lambda: Meter(model, "gmc"), SignalError, r"such as headway.GMC\(\), got 'gmc'"),
        (lambda: Meter(model, ["gmc"]), SignalError, r"such as headway.GMC\(\), got 'gmc'"),
        (lambda: Meter(model, GMC), SignalError, r"got the class; call it: GMC\(\)"),
        (lambda: Meter(model, 3), SignalError, r"such as headway.GMC\(\), got 3"),
        (lambda: Meter(model, GMC(where="nothing*")), SignalError, r"there are: 0\.weight"),
        (lambda: Meter(model, GMC(), every=0), LossError, "at least 1, got 0"),
        (lambda: Meter(model, GMC(), reduction="max"), LossError, "'mean' or 'sum', got 'max'"),
        (lambda: Meter(model, GMC(), layout="sideways"), LayoutError, "got 'sideways'"),
        (lambda: GMC(beta=1.0), SignalError, r"\[0, 1\)"),
        (lambda: GMC(floor=0.0), SignalError, "above 0"),
        (lambda: GMC(unit="metre"), SignalError, "'metre'"),
        (lambda: Meter(model, GMC()).moments("dot"), SignalError, "'dot'"),
    ):
        with pytest.raises(error, match=message):
            make()


def test_score_of_a_batch_that_every_leaves_out_says_so() -> None:
    model = mlp()
    meter = Meter(model, GMC(), every=2)
    train(meter, model, 1)
    with pytest.raises(LossError, match="every=2"):
        meter.score(losses(model, *batch()))


def test_groups_must_match_the_losses() -> None:
    model = mlp()
    meter = Meter(model, DeltaLoss(groups=3))
    with pytest.raises(LossError, match="one group per sample"):
        meter.backward(losses(model, *batch()), groups=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(SignalError, match="from 0 to 2"):
        meter.backward(losses(model, *batch()))


def test_an_unused_parameter_scores_zero() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    model = Partly()
    scores = Meter(model, [NormAll(), NormAll(where="used.*", name="used")]).backward(losses(model, *batch()))
    torch.testing.assert_close(scores["norm_all"], scores["used"])
    assert model.idle.weight.grad is None


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_signal_whose_parameters_are_all_idle_scores_zero(accumulate: int) -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x: torch.Tensor, head: str) -> torch.Tensor:
            return getattr(self, head)(torch.tanh(self.body(x)))

    model = Heads()
    meter = Meter(model, NormAll(where="one.*"), accumulate=accumulate)
    for _ in range(2):
        assert meter.backward(model(batch()[0], "two").square().sum(1)).tolist() == [0.0] * 10
        assert meter.score(model(batch()[0], "two").square().sum(1)).tolist() == [0.0] * 10
    assert (meter.backward(model(batch()[0], "one").square().sum(1)) > 0).all()
    with pytest.raises(LossError, match="does not reach it"):
        meter.backward(torch.ones(3, requires_grad=True) * 2)
