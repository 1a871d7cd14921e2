"""The host never waits for an accelerator in the hot path.

There is no accelerator here. Two stand-ins take its place: a guard that refuses every operation whose result the host
has to see, on the path that accelerators take; and the meta device, whose tensors have no numbers to wait for.
"""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import headway
from headway import GMC, Meter
from headway.grads.routed import Routing
from headway.selection import Actor, ActorConfig
from headway.signals import Signal
from headway.signals.losses import _shifted_in
from tests.grads.zoo import CASES, Case, weighted_loss

WAITING = {
    "_local_scalar_dense",  # item(), float(), bool(), if tensor: ...
    "_unique2",
    "bincount",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
LOOKS_AT_INDICES = {
    "embedding, one index": "samples-first",
    "gpt with position embedding": {"wpe": "shared", "pos*": "shared"},
    "checkpoint of a method": {"pos*": "shared"},
}
"""Models that look up a plain list of numbers: headway looks whether these are positions, unless it is told."""


class Guard(TorchDispatchMode):
    """Refuses operations that make the host wait for their result, after as many as are allowed."""

    def __init__(self, allowed: float = 0) -> None:
        super().__init__()
        self.waits, self.allowed = 0, allowed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        by_mask = name in INDEXING and any(isinstance(i, Tensor) and i.dtype is torch.bool for i in args[1])
        on_host = name == "equal" and args[0].dtype is torch.uint8  # states of random generators
        if (name in WAITING and not on_host) or by_mask or _is_waiting_copy(name, args, kwargs or {}):
            self.waits += 1
            if self.waits > self.allowed:
                raise AssertionError(f"the host waits for {name}")
        return func(*args, **(kwargs or {}))


def _is_waiting_copy(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether something goes from the host to a device while the host stands by."""
    if name != "_to_copy" or kwargs.get("non_blocking"):
        return False
    return args[0].device.type == "cpu" and kwargs.get("device", args[0].device).type != "cpu"


def signals() -> list[Signal]:
    """One of each kind."""
    return [
        GMC(beta=0.9),
        GMC(beta=(0.9, 0.99), unit="batch", name="gmc2"),
        headway.DotProduct(beta=0.9, over="tensor"),
        headway.Cosine(beta=0.9),
        headway.Projection(beta=0.9),
        headway.NormAll(),
        headway.NormLast(),
        headway.Curiosity(),
        headway.Uniform(),
        headway.GroupGMC(groups=3, beta=0.9),
        headway.DeltaLoss(groups=3, window=2, name="windows"),
        headway.DeltaLoss(groups=3, window=None, name="epochs"),
    ]


def as_on_an_accelerator(meter: Meter) -> None:
    for moments in meter._moments.values():
        moments._on_host = False


def test_the_guard_notices() -> None:
    x = torch.randn(3)
    for wait in (x.sum().item, lambda: bool(x.sum() > 0), lambda: x[x > 0], lambda: x.nonzero()):
        with pytest.raises(AssertionError, match="the host waits for"), Guard():
            wait()
    with pytest.raises(AssertionError, match="the host waits for _to_copy"), Guard():
        x.to("meta")


@pytest.mark.filterwarnings("ignore:decay rates")
def test_no_signal_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))
    meter = Meter(model, signals())
    as_on_an_accelerator(meter)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=True)
    batches = [(torch.randn(8, 6), torch.randint(0, 3, (8,)), torch.randint(0, 3, (8,))) for _ in range(5)]
    for index, (x, y, groups) in enumerate(batches):
        step = Guard() if index == 2 else _nothing()  # batches 1, 2 and 4 are checked
        if index:
            monkeypatch.setattr("headway.signals.groups.check_groups", lambda batch, groups: None)
            meter._signals = {name: _unchecked(signal) for name, signal in meter._signals.items()}
        with step:
            losses = F.cross_entropy(model(x), y, reduction="none")
            scores = meter.backward(losses, groups=groups)
            optimizer.step()
            optimizer.zero_grad()
    assert all(value.shape == (8,) for value in scores.values())


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _unchecked(signal: Signal) -> Signal:
    """The signal without its look at the groups, which an accelerator does by itself (see the meta device below)."""
    if isinstance(signal, headway.DeltaLoss):
        object.__setattr__(signal, "validate", lambda batch: None)
    return signal


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_layer_waits(case: Case) -> None:
    """Unless the model does so by itself."""
    torch.manual_seed(0)
    model = case.model().train(case.train)
    layout = LOOKS_AT_INDICES.get(case.name, case.layout)
    with Guard(allowed=float("inf")) as plain:
        losses = (case.loss or weighted_loss)(
            model(*case.inputs(case.samples), **case.kwargs(case.samples)), case.samples
        )
        losses.mean().backward()
    with Meter(model, GMC(beta=0.9), layout=layout) as meter:
        as_on_an_accelerator(meter)
        for index in range(3):
            inputs, options = case.inputs(case.samples), case.kwargs(case.samples)
            with Guard(plain.waits) if index == 2 else _nothing():
                losses = (case.loss or weighted_loss)(model(*inputs, **options), case.samples)
                meter.backward(losses)


@pytest.mark.parametrize(
    "act",
    [
        lambda: headway.segments(torch.tensor([0, 0, 1])),
        lambda: Routing(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2, 2).counts(),
        lambda: Routing(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2, 2).parts,
    ],
    ids=["segments", "tokens of experts", "experts and samples"],
)
def test_what_the_docs_say_to_wait_does(act: Callable[[], object]) -> None:
    with Guard(allowed=float("inf")) as guard:
        act()
    assert guard.waits


@pytest.mark.filterwarnings("ignore:decay rates")
def test_a_device_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.is_autocast_enabled", lambda device: False)  # which does not know this device
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 5), nn.LayerNorm(5)).to("meta")
    meter = Meter(model, signals(), check="never")  # which needs numbers
    for _ in range(3):
        losses = model(torch.empty(8, 2, 5, 5, device="meta")).square().sum(1)
        groups = torch.zeros(8, dtype=torch.int64, device="meta")
        scores = meter.backward(losses, groups=groups)
        assert {value.device.type for value in scores.values()} == {"meta"}
        assert {value.dtype for value in scores.values()} == {torch.float32}
    meter.end_epoch()
    assert meter.moments("gmc").m["0.weight"].device.type == "meta"
    with pytest.raises(RuntimeError, match="meta"):
        float(scores["gmc"][0])  # so that a wait would have been noticed


def test_the_actor_does_not_wait_for_what_it_sends_to_a_device() -> None:
    actor = Actor(ActorConfig(4, "network"), torch.Generator().manual_seed(0), device="meta")
    for _ in range(2):
        with Guard():
            arms = actor.draw(8)
        actor.learn(torch.empty(8, device="meta"))
    assert arms.device.type == "meta"


def test_the_actor_does_not_wait() -> None:
    """Its one look, for NaN, is on the host alone."""
    actor = Actor(ActorConfig(4, "network"), torch.Generator().manual_seed(0))
    actor.draw(8)
    actor.learn(torch.rand(8))
    with Guard():
        arms = actor.draw(8)
    scores = torch.rand(8)
    with pytest.MonkeyPatch.context() as patch, Guard():
        patch.setattr("headway.selection.actor.math.isfinite", lambda value: True)
        patch.setattr("builtins.float", lambda value: value)
        actor.learn(scores)
    assert arms.shape == (8,)


@settings(max_examples=60)
@given(st.data())
def test_windows_without_data_dependent_shapes_are_windows(data: st.DataObject) -> None:
    groups, kept = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    expected = [deque([0.0] * kept, maxlen=kept) for _ in range(groups)]
    recent = torch.zeros(groups, kept)
    for _ in range(data.draw(st.integers(1, 3))):
        batch = data.draw(st.lists(st.tuples(st.integers(0, groups - 1), st.floats(0, 9, width=32), st.booleans())))
        for group, loss, is_finite in batch:
            if is_finite:
                expected[group].append(loss)
        if not batch:
            continue
        own, losses = (
            torch.tensor([g for g, _, _ in batch]),
            torch.tensor([x if ok else torch.nan for _, x, ok in batch]),
        )
        member = (own == torch.arange(groups).unsqueeze(1)) & losses.isfinite()
        recent = _shifted_in(recent, losses, member)
    assert recent.tolist() == [list(row) for row in expected]


@pytest.mark.slow
def test_importing_headway_computes_nothing() -> None:
    """Torch chooses its instructions at its first operation, and a run must be able to say which before that."""
    program = """
import os
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Refuse(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"computed at import: {func}")

with Refuse():
    import headway.selection, headway.study.controlled, headway.telemetry
    import headway.commands.run
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
