"""The check with random weights: when it looks, what it sees, and what it must not mind."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import headway
from headway import GMC, Meter, NormAll, register_rule, unregister_rule
from headway.errors import LayoutError, LossError, ModelError, RuleError, StateError, VerificationError
from headway.grads.persample import Dense, PerSample
from headway.grads.rule_sites import RuleContribution
from headway.grads.schedule import Schedule
from tests.ranks import join_pair, leaving_together

from ..models import batch, losses, mlp
from .oracle import is_exact, own_norms, without

# When it looks


def due(when: Any, situations: list[str]) -> list[int]:
    schedule = Schedule(when)
    found = []
    for number, situation in enumerate(situations, 1):
        if schedule.take(situation):
            found.append(number)
            schedule.done(situation, compared=True)
    return found


def test_one_situation_is_checked_at_powers_of_two_and_then_at_multiples_of_1024() -> None:
    powers = [2**k for k in range(11)]
    assert due("auto", ["a"] * 4100) == [*powers, 2048, 3072, 4096]


def test_every_situation_has_a_first_batch_and_a_schedule_of_its_own() -> None:
    # b comes at 3, 6, 9 and 12, as its 1st, 2nd, 3rd and 4th batch; the meter's own 1, 2, 4 and 8 are all a
    assert due("auto", ["a", "a", "b"] * 4) == [1, 2, 3, 4, 5, 6, 8, 11, 12]


def test_the_other_choices() -> None:
    situations = ["a", "a", "b", "b", "a", "a", "a"]
    assert due("always", situations) == [1, 2, 3, 4, 5, 6, 7]
    assert due("first", situations) == [1, 3]
    assert due("never", situations) == []
    assert due(3, situations) == [1, 3, 5, 6]  # a comes for the third time at 5
    for wrong in ("sometimes", 0, -1, 1.5, True, None):
        with pytest.raises(LossError, match="expected check to be one of 'auto'"):
            Schedule(wrong)


def test_a_check_that_could_not_be_made_is_made_up_for() -> None:
    schedule = Schedule("auto")
    found = []
    for number in range(1, 9):
        if schedule.take("a"):
            found.append(number)
            schedule.done("a", compared=number > 5)
    assert found == [1, 2, 3, 4, 5, 6, 7, 8]  # 6 is the first that was compared, 7 the second


def test_batches_that_can_never_be_checked_are_told() -> None:
    model = mlp()
    meter = Meter(model, NormAll())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(70):
            meter.backward(losses(model, *batch()) * torch.tensor([torch.inf, *[1.0] * 9]))
    assert ["64 batches in a row could not be checked" in str(one.message) for one in caught] == [True]


def test_the_check_leaves_no_trace() -> None:
    """The same scores, gradients, moments and random numbers with it and without it."""
    outcomes = []
    for check in ("always", "never"):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv1d(3, 4, 2), nn.Dropout(0.3), nn.Flatten(), nn.Linear(16, 4))
        hooked: list[int] = []
        model[3].weight.register_hook(lambda grad, hooked=hooked: hooked.append(1))
        meter = Meter(model, GMC(beta=0.9), check=check)
        x = torch.randn(6, 3, 5, requires_grad=True)
        for _ in range(3):
            scores = meter.backward(model(x).square().sum(1))
        moments = meter.moments().v.values()
        outcomes.append([scores, x.grad, *(p.grad for p in model.parameters()), *moments, torch.get_rng_state()])
        assert len(hooked) == 3
    for checked, unchecked in zip(*outcomes, strict=True):
        assert torch.equal(checked, unchecked)


# What it sees: planted faults


def corrupt(fault: Callable[[Tensor, torch.Size], Tensor]) -> Any:
    """Damage the gradients that rules give for weights and tables."""

    def block(self: RuleContribution, start: int, stop: int) -> dict[str, PerSample]:
        forms = dict(original(self, start, stop))
        for name, form in forms.items():
            parameter = self.site.engine.parameters[name]
            if parameter.dim() > 1 or len(forms) == 1:
                dense = form.dense().view(-1, *parameter.shape)
                forms[name] = Dense(fault(dense.clone(), parameter.shape))
        return forms

    original = RuleContribution.block
    return pytest.MonkeyPatch.context(), block


def of_the_largest(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor, torch.Size], Tensor]:
    """A fault of one sample: the one with the largest gradient."""

    def fault(grads: Tensor, shape: torch.Size) -> Tensor:
        largest = int(grads.flatten(1).norm(dim=1).argmax())
        grads[largest] = change(grads[largest].clone())
        return grads

    return fault


def swapped(grads: Tensor, shape: torch.Size) -> Tensor:
    largest, smallest = grads.flatten(1).norm(dim=1).argsort(descending=True)[[0, -1]].tolist()
    grads[[largest, smallest]] = grads[[smallest, largest]]
    return grads


def one_for_another(grads: Tensor, shape: torch.Size) -> Tensor:
    largest, smallest = grads.flatten(1).norm(dim=1).argsort(descending=True)[[0, -1]].tolist()
    grads[largest] = grads[smallest]
    return grads


def without_part(dim: int) -> Callable[[Tensor, torch.Size], Tensor]:
    """The largest row or column of every gradient is left out."""

    def fault(grads: Tensor, shape: torch.Size) -> Tensor:
        matrix = grads.flatten(2)
        matrix.select(dim, int(matrix.norm(dim=(0, 3 - dim)).argmax())).zero_()
        return grads

    return fault


FAULTS: dict[str, Callable[[Tensor, torch.Size], Tensor]] = {
    "a sample dropped": of_the_largest(torch.zeros_like),
    "a sample doubled": of_the_largest(lambda g: g * 2),
    "a sample scaled": of_the_largest(lambda g: g * 1.5),
    "a sample's sign": of_the_largest(lambda g: -g),
    "two samples swapped": swapped,
    "samples in reverse": lambda g, _: g.flip(0),
    "samples shifted": lambda g, _: g.roll(1, 0),
    "one sample for another": one_for_another,
    "the mean for each": lambda g, _: g.mean(0, keepdim=True).expand_as(g),
    "samples that leak": lambda g, _: g + g.mean(0),
    "all scaled": lambda g, _: g * 1.5,
    "an output dropped": without_part(1),
    "an input dropped": without_part(2),
    "transposed": lambda g, _: g.flatten(2).transpose(1, 2).reshape(g.shape),
    "absolute values": lambda g, _: g.abs(),
}


class Tokens(nn.Module):
    """A small language model: a table, positions and two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(7, width), nn.LayerNorm(width)
        self.layer, self.head = nn.Linear(width, width + 1), nn.Linear(width + 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        ids = (x.flatten(1).abs() * 3).long().clamp(max=6)
        return self.head(torch.tanh(self.layer(self.norm(self.table(ids))))).mean(1)


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "perceptron": lambda n: nn.Sequential(nn.Flatten(), nn.Linear(12, n), nn.Tanh(), nn.Linear(n, 3)),
    "positions": lambda n: nn.Sequential(nn.Linear(4, n), nn.Tanh(), nn.Linear(n, 3), nn.Flatten()),
    "convolution": lambda n: nn.Sequential(nn.Conv1d(3, n, 2), nn.Tanh(), nn.Flatten(), nn.Linear(3 * n, 3)),
    "tokens": Tokens,
}
PRECISIONS = ("float32", "float64", "bf16 autocast")


@contextmanager
def precision(kind: str, model: nn.Module) -> Iterator[torch.dtype]:
    dtype = torch.float64 if kind == "float64" else torch.float32
    model.to(dtype)
    with torch.autocast("cpu", torch.bfloat16) if kind == "bf16 autocast" else nullcontext():
        yield dtype


def one_step(model: nn.Module, kind: str, seed: int, fault: str | None) -> None:
    meter = Meter(model, NormAll())
    meter._checker._random.manual_seed(seed)
    with precision(kind, model) as dtype:
        out = model(torch.randn(6, 3, 4, dtype=dtype))
    # pulls of different size and direction, so that no two samples are alike
    loss = (out.float() if kind == "bf16 autocast" else out).mul(torch.randn(6, out.shape[1], dtype=dtype)).sum(1)
    if fault is None:
        meter.backward(loss)
        return
    context, block = corrupt(FAULTS[fault])
    with context as patch:
        patch.setattr(RuleContribution, "block", block)
        with pytest.raises(VerificationError, match="under random weights"):
            meter.backward(loss)


@settings(max_examples=15)
@given(st.sampled_from(sorted(MODELS)), st.integers(2, 9), st.sampled_from(PRECISIONS), st.integers(0, 10**6))
def test_correct_rules_pass_and_every_planted_fault_fails(model: str, width: int, kind: str, seed: int) -> None:
    torch.manual_seed(seed)
    one_step(MODELS[model](width), kind, seed, None)
    for fault in FAULTS:
        one_step(MODELS[model](width), kind, seed, fault)


@leaving_together
def faulty_rank(rank: int, folder: str) -> None:
    join_pair(rank, folder)
    torch.manual_seed(rank)
    model = DistributedDataParallel(MODELS["positions"](5))
    meter = Meter(model, NormAll(), check="always")
    found = []
    for fault in (None, *FAULTS):
        context, block = corrupt(FAULTS[fault]) if fault else (nullcontext(), None)
        with context as patch:
            if fault:
                patch.setattr(RuleContribution, "block", block)
            try:
                out = model(torch.randn(6, 3, 4))
                meter.backward(out.mul(torch.randn(out.shape)).sum(1))
            except VerificationError:
                found.append(fault)
        model.zero_grad()
    torch.save(found, Path(folder) / f"rank{rank}.pt")


def test_two_ranks_find_every_planted_fault(tmp_path: Path) -> None:
    mp.spawn(faulty_rank, (str(tmp_path),), nprocs=2)
    for rank in range(2):
        assert torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) == list(FAULTS)


# What was silently wrong


def scaled(model: nn.Module, **options: Any) -> nn.Module:
    model[0].register_forward_hook(lambda module, args, output: output * 1.5, **options)
    return model


@pytest.mark.parametrize("simultaneous", [True, False])
def test_a_hook_that_changes_an_output(simultaneous: bool) -> None:
    torch.manual_seed(0)
    model = scaled(nn.Sequential(nn.Linear(5, 4), nn.Tanh()).double())
    x = torch.randn(6, 3, 5, dtype=torch.float64)

    def loss() -> Tensor:
        return model(x).square().sum((1, 2))

    expected = own_norms(model, loss)
    loss().mean().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    scores = Meter(model, NormAll(), simultaneous=simultaneous).backward(loss())
    assert is_exact(scores, expected)
    for parameter, grad in zip(model.parameters(), plain, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


@pytest.mark.parametrize("simultaneous", [True, False])
def test_a_hook_that_comes_before_the_meters_is_noticed(simultaneous: bool) -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh())
    meter = Meter(model, NormAll(), simultaneous=simultaneous)
    scaled(model, prepend=True)
    with pytest.raises((RuleError, VerificationError), match="hook"):
        meter.backward(model(torch.randn(6, 3, 5)).square().sum((1, 2)))


class Doubling(nn.Module):
    """A module without a rule, with a hook on its input or its output."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.scale)


@pytest.mark.parametrize("before", [True, False])
def test_hooks_on_a_module_without_a_rule(before: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 5), Doubling()).double()
    if before:
        model[1].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        model[1].register_forward_hook(lambda module, args, output: output * 1.5)
    meter = Meter(model, NormAll())
    if not before:
        model[1].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        model[1].register_forward_hook(lambda module, args, output: output * 1.5)
    x = torch.randn(6, 5, dtype=torch.float64)
    expected = without(meter, lambda: model(x).square().sum(1))
    assert is_exact(meter.backward(model(x).square().sum(1)), expected)


class Encoder(nn.Module):
    """A class token in front of a block that is compiled later."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(torch.cat([self.token.expand(len(x), -1, -1), x], 1))[:, 0])


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo looks at it
def test_a_compiled_block_beside_a_parameter_that_is_used_directly() -> None:
    torch.manual_seed(0)
    model, plain = Encoder(), Encoder()
    plain.load_state_dict(model.state_dict())
    meter = Meter(model, NormAll())
    model.block.compile(backend="aot_eager")
    for samples in (5, 5, 5, 4, 4, 6):
        x = torch.randn(samples, 4, 8)
        scores = meter.backward(model(x).square().sum(1))
        assert is_exact(scores, own_norms(plain, lambda x=x: plain(x).square().sum(1)), 1e-5)


@pytest.mark.parametrize("kind", ["detached", "without gradients"])
def test_a_compiled_parameter_without_a_gradient(kind: str) -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.idle, self.b = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            with torch.no_grad() if kind == "without gradients" else nullcontext():
                extra = self.idle(h)
            return self.b(h.tanh() + extra.detach())

    torch.manual_seed(0)
    model = Idle()
    meter = Meter(model, NormAll())
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        assert meter.backward(compiled(torch.randn(5, 6)).square().sum(1)).shape == (5,)


class Reentrant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.idle = nn.Linear(6, 6), nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(checkpoint(lambda y: torch.tanh(self.a(y)), x, use_reentrant=True))


def test_reentrant_checkpoints_are_checked_too() -> None:
    torch.manual_seed(0)
    model, other = Reentrant().double(), nn.Linear(4, 4).double()
    x = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    meter = Meter(model, NormAll())
    z = F.normalize(other(model(x)), dim=1)
    with pytest.raises(VerificationError, match="contrastive"):
        meter.backward(F.cross_entropy(z @ z.T, torch.arange(8), reduction="none"))
    x.grad = other.weight.grad = None
    scores = meter.backward(other(model(x)).square().sum(1))
    expected = []
    for i in range(8):
        model.zero_grad()
        own = x[i : i + 1].detach().requires_grad_()
        with meter._engine.paused():
            other(model(own)).square().sum().backward()
        expected.append(sum(p.grad.abs().sum() for p in model.parameters() if p.grad is not None))
    assert is_exact(scores, torch.stack(expected))
    per_sample = other(model(x)).square().sum(1).mean()
    filled = x.grad.clone()
    x.grad = None
    with meter._engine.paused():
        per_sample.backward()
    torch.testing.assert_close(filled, x.grad)  # the check has left nothing in it


def test_samples_that_change_places_are_refused() -> None:
    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x: Tensor, length: Tensor) -> Tensor:
            order = length.argsort(descending=True)
            return self.layer(x[order])[order.argsort()]

    model = Sorted()
    meter = Meter(model, NormAll())
    with pytest.raises(VerificationError, match="samples change their places"):
        meter.backward(model(torch.randn(6, 6), torch.tensor([9, 3, 5, 2, 7, 1])).square().sum(1))
    assert model.layer.weight.grad is None


class Depth(nn.Module):
    """Leaves itself out at random, and drops some of its weights."""

    def __init__(self, leave: float = 0.0, drop: float = 0.0) -> None:
        super().__init__()
        self.scale, self.leave, self.drop = nn.Parameter(torch.randn(6)), leave, drop

    def forward(self, x: Tensor) -> Tensor:
        if torch.rand(()) < self.leave:
            return x
        return torch.tanh(x * F.dropout(self.scale, self.drop))


class Outer(nn.Module):
    """The same in a module with children, whose operations are followed."""

    def __init__(self, **options: float) -> None:
        super().__init__()
        self.layer, self.inner = nn.Linear(6, 6), Depth(**options)

    def forward(self, x: Tensor) -> Tensor:
        return Depth.forward(self.inner, self.layer(x))


@pytest.mark.parametrize("options", [{"leave": 0.3}, {"drop": 0.3}], ids=["depth", "weights"])
@pytest.mark.parametrize(
    "make", [lambda **o: nn.Sequential(nn.Linear(6, 6), Depth(**o)), Outer], ids=["leaf", "direct"]
)
def test_replays_draw_the_random_numbers_of_the_forward(make: Callable[..., nn.Module], options: Any) -> None:
    torch.manual_seed(1)
    model = make(**options).double()
    meter = Meter(model, NormAll(), check="never")
    for _ in range(20):
        x = torch.randn(5, 6, dtype=torch.float64)
        expected = without(meter, lambda x=x: model(x).square().sum(1))
        assert is_exact(meter.backward(model(x).square().sum(1)), expected)


def test_random_numbers_for_each_sample_are_refused_when_they_begin_to_count() -> None:
    class Noisy(nn.Module):
        sigma = 0.0

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.randn(6))

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x * self.scale + self.sigma * torch.randn_like(x))

    model = nn.Sequential(nn.Linear(6, 6), Noisy())
    meter = Meter(model, NormAll(), check="never")
    meter.backward(model(torch.randn(5, 6)).square().sum(1))
    model[1].sigma = 0.1
    with pytest.raises(RuleError, match="random numbers for each sample"):
        meter.backward(model(torch.randn(5, 6)).square().sum(1))


def test_a_batch_that_does_not_tell_two_readings_apart_decides_nothing() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.randn(4))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return torch.tanh(x * self.scale) * mask

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.masked = nn.Linear(4, 4), Masked()

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.masked(self.layer(x), mask)

    torch.manual_seed(0)
    model = Net().double()
    meter = Meter(model, NormAll(), check="never")
    masks = [torch.ones(5, 1), torch.rand(5, 1), torch.ones(5, 1), torch.rand(5, 1)]  # of positions, for all samples
    for mask in masks:
        x = torch.randn(5, 5, 4, dtype=torch.float64)
        expected = without(meter, lambda x=x, mask=mask: model(x, mask.double()).square().sum((1, 2)))
        assert is_exact(meter.backward(model(x, mask.double()).square().sum((1, 2))), expected)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("how", ["post-accumulate hook", "hook of the accumulator"])
def test_an_optimizer_that_steps_inside_the_backward(how: str, accumulate: int) -> None:
    model, plain = mlp(), mlp()
    model_steps = [torch.optim.SGD([p], 0.1) for p in model.parameters()]
    accumulators = []
    for parameter, optimizer in zip(model.parameters(), model_steps, strict=True):

        def take(*_: Any, parameter: Tensor = parameter, optimizer: Any = optimizer) -> None:
            optimizer.step()
            parameter.grad = None

        if how == "post-accumulate hook":
            parameter.register_post_accumulate_grad_hook(take)
        else:
            accumulators.append(parameter.expand_as(parameter).grad_fn.next_functions[0][0])
            accumulators[-1].register_hook(take)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    a, b = (Meter(net, GMC(beta=0.9), accumulate=accumulate) for net in (model, plain))
    for step in range(6):
        got = a.backward(losses(model, *batch(seed=step)))
        want = b.backward(losses(plain, *batch(seed=step)))
        optimizer.step()
        if how == "post-accumulate hook" and accumulate == 1:
            torch.testing.assert_close(got, want)
            optimizer.zero_grad()
    assert a.moments().updates == (6 if how == "post-accumulate hook" else 5) // accumulate
    assert float(got.min()) > 0


# What must not be refused


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


class NearIdentity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.u, self.v = nn.Linear(6, 6), nn.Parameter(torch.randn(6, 1)), nn.Parameter(torch.randn(1, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ (torch.eye(6, dtype=x.dtype) + self.u @ self.v)


class BiasTable(nn.Module):
    """Attention with a bias for every distance, looked up by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(4, 4), nn.Parameter(torch.randn(6, 11))

    def forward(self, x: Tensor) -> Tensor:
        q = self.layer(x.view(len(x), 6, 1).expand(-1, -1, 4))
        places = torch.arange(6)
        distance = places[:, None] - places[None] + 5
        weights = (q @ q.mT + self.table.gather(1, distance)).softmax(-1)
        return (weights @ q).flatten(1)


@pytest.mark.parametrize("make", [Spectral, NearIdentity, BiasTable])
@pytest.mark.parametrize("samples", [6, 5])
def test_as_many_samples_as_a_matrix_has_rows(make: Callable[[], nn.Module], samples: int) -> None:
    torch.manual_seed(0)
    model = make().double().eval()  # spectral_norm turns its vectors in training mode
    meter = Meter(model, NormAll())
    for _ in range(2):
        x = torch.randn(samples, 6, dtype=torch.float64)
        expected = without(meter, lambda x=x: model(x).square().sum(1))
        assert is_exact(meter.backward(model(x).square().sum(1)), expected)


def test_a_convolution_over_what_all_samples_share() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places, self.layer = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 1)
            self.register_buffer("grid", torch.randn(1, 2, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.places(self.grid)

    torch.manual_seed(0)
    model = Positions().double()
    meter = Meter(model, NormAll(), layout={"places": "shared"})
    x = torch.randn(6, 4, 3, 3, dtype=torch.float64)
    expected = without(meter, lambda: model(x).square().sum((1, 2, 3)))
    assert is_exact(meter.backward(model(x).square().sum((1, 2, 3))), expected)


@pytest.mark.parametrize("verify", [False, True])
def test_a_double_model_with_a_part_in_single_precision(verify: bool) -> None:
    class Cast(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x.float() * 1.1).double()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), Cast(), nn.Linear(20, 20), Cast(), nn.Linear(20, 4)).double()
    meter = Meter(model, NormAll(), verify=verify, check="always")
    for seed in range(3):
        meter.backward(losses(model, *batch(40, torch.float64, seed)))


def test_hooks_that_clip_gradients_are_not_mistaken_for_an_error() -> None:
    model = mlp()
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    Meter(model, NormAll(), simultaneous=False).backward(losses(model, *batch()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distance", [0.0, 1e-6, 1e-4])
def test_gradients_that_cancel_are_no_alarm(distance: float, dtype: torch.dtype) -> None:
    """A student that is a copy of its teacher: what is left of every gradient is rounding."""
    student, teacher = mlp(dtype), mlp(dtype).requires_grad_(False)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(distance * torch.randn_like(parameter))
    meter = Meter(student, NormAll(), check="always")
    for seed in range(5):
        x, _ = batch(16, dtype, seed)
        own, other = student(x).log_softmax(1), teacher(x).log_softmax(1)
        meter.backward(F.kl_div(own, other, log_target=True, reduction="none").sum(1))


def test_a_parameter_whose_gradient_is_zero_by_nature_may_be_the_only_one() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return (self.q(x) @ self.k(x).mT).softmax(-1) @ self.v(x)

    torch.manual_seed(0)
    model = Attention()
    meter = Meter(model, NormAll(where="k.bias"), check="always")
    for _ in range(5):
        meter.backward(model(torch.randn(6, 5, 8)).square().sum((1, 2)))


class Once(torch.autograd.Function):
    """A function whose backward can run once: it frees what it has kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x.detach()
        return x.square()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x = ctx.x
        del ctx.x
        return 2 * x * grad


def test_a_graph_that_can_run_once_is_trained_and_told() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(Once.apply(self.a(x)))

    model = Net()
    meter = Meter(model, NormAll())
    with pytest.warns(UserWarning, match="cannot check the scores of this model: its graph allows only one"):
        meter.backward(model(batch()[0]).square().sum(1))
    assert model.a.weight.grad is not None
    for _ in range(3):  # warnings are errors here
        meter.backward(model(batch()[0]).square().sum(1))


@pytest.mark.parametrize("closure", [True, False])
def test_a_reentrant_checkpoint_of_another_module_gets_the_gradient_of_training(closure: bool) -> None:
    torch.manual_seed(0)
    model, head = nn.Sequential(nn.Linear(6, 5), nn.Tanh()).double(), nn.Linear(5, 3).double()
    x = batch(dtype=torch.float64)[0]
    part = (lambda h: head(h)) if closure else head
    checkpoint(part, model(x), use_reentrant=True).square().sum(1).mean().backward()
    expected = head.weight.grad.clone()
    head.zero_grad()
    Meter(model, NormAll()).backward(checkpoint(part, model(x), use_reentrant=True).square().sum(1))
    torch.testing.assert_close(head.weight.grad, expected)


def test_after_an_error_the_next_batch_is_checked() -> None:
    model = mlp()
    meter = Meter(model, NormAll(), check="first")
    for seed in range(3):
        loss = losses(model, *batch(seed=seed))
        with pytest.raises(VerificationError):
            meter.backward(loss + loss.mean())
    meter.backward(losses(model, *batch()))
    assert not meter._engine.checking


@leaving_together
def static_rank(rank: int, folder: str) -> None:
    join_pair(rank, folder)
    torch.manual_seed(0)
    net = nn.Linear(4, 3).double()
    model = DistributedDataParallel(net, static_graph=True)
    meter = Meter(model, NormAll(), check="always")
    torch.manual_seed(rank)
    grads = []
    for _ in range(3):
        net.zero_grad()
        meter.backward(model(torch.randn(6, 4, dtype=torch.float64)).square().sum(1))
        grads.append(net.weight.grad.clone())
    torch.save(grads, Path(folder) / f"rank{rank}.pt")


def test_a_static_graph_is_still_averaged_over_ranks(tmp_path: Path) -> None:
    mp.spawn(static_rank, (str(tmp_path),), nprocs=2)
    one, other = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    for own, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(own, theirs)


@pytest.mark.parametrize("options", [{"verify": True}, {}])
def test_what_would_break_a_static_graph_is_refused(options: dict[str, bool], tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        net = nn.Linear(4, 3)
        model = DistributedDataParallel(net, static_graph=True)
        meter = Meter(model, NormAll(), **options)
        loss = model(torch.randn(6, 4)).square().sum(1)
        with pytest.raises(ModelError, match="static_graph=True"):
            meter.backward(loss) if options else meter.score(loss)
    finally:
        torch.distributed.destroy_process_group()


# Clear errors


def test_complex_parameters_are_refused_by_name() -> None:
    model = nn.Linear(3, 3, dtype=torch.complex64)
    with pytest.raises(ModelError, match=r"weight: expected a real parameter, got torch\.complex64"):
        Meter(model, GMC())


def test_something_else_than_a_tensor_is_refused() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(LossError, match="expected a tensor of losses, one per sample, got ndarray"):
        Meter(mlp(), GMC()).backward(numpy.ones(3))


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
