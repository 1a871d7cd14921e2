"""The check with random weights: when it looks, and what it sees."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headway import GMC, Meter, NormAll
from headway.errors import LossError, VerificationError
from headway.grads.check_schedule import Schedule
from headway.grads.passes import Contribution
from headway.grads.persample import Dense, PerSample
from headway.grads.rule_sites import RuleSite
from tests.ranks import join_pair, leaving_together, run_ranks

from ..models import batch, losses, mlp

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
    assert due(3, situations) == [1, 3, 6]
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


@contextmanager
def corrupt(fault: Callable[[Tensor, torch.Size], Tensor]) -> Iterator[None]:
    """Damage the gradients that rules give for weights and tables."""
    original = RuleSite._of_samples

    def damaged(self: RuleSite, *given: Any) -> Contribution:
        whole = original(self, *given)

        def block(start: int, stop: int) -> dict[str, PerSample]:
            forms = dict(whole.block(start, stop))
            for name, form in forms.items():
                parameter = self.engine.parameters[name]
                if parameter.dim() > 1 or len(forms) == 1:
                    dense = form.dense().view(-1, *parameter.shape)
                    forms[name] = Dense(fault(dense.clone(), parameter.shape))
            return forms

        return replace(whole, block=block)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RuleSite, "_of_samples", damaged)
        yield


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
    with corrupt(FAULTS[fault]), pytest.raises(VerificationError, match="under random weights"):
        meter.backward(loss)


@pytest.mark.slow
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
        with corrupt(FAULTS[fault]) if fault else nullcontext():
            try:
                out = model(torch.randn(6, 3, 4))
                meter.backward(out.mul(torch.randn(out.shape)).sum(1))
            except VerificationError:
                found.append(fault)
        model.zero_grad()
    torch.save(found, Path(folder) / f"rank{rank}.pt")


@pytest.mark.slow
def test_two_ranks_find_every_planted_fault(tmp_path: Path) -> None:
    run_ranks(faulty_rank, str(tmp_path))
    for rank in range(2):
        assert torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) == list(FAULTS)
