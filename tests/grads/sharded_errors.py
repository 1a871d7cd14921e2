"""What sharded models say to errors, to ranks that disagree and to states of another kind; and who runs all scenarios.

See `tests/grads/sharded.py` for what a scenario is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils._pytree import tree_map

from headway import GMC, Alignment, Cosine, Meter, NormAll, Reduction, Reference
from headway.errors import HeadwayError
from headway.signals.base import BaseSignal, Batch, Plan, Scope, Values
from tests.grads import sharded
from tests.grads.sharded import SAMPLES, VOCABULARY, Place, Results, batch, llama, losses_of, moments_of, step, whole
from tests.ranks import leaving_together


def errors(place: Place) -> Results:
    """What each rank is told where something is wrong on the first one alone, and that training goes on after it."""
    model = place.shard(llama())
    meter = Meter(model, [GMC(beta=0.5), NormAll()])
    found: Results = {}

    def attempt(name: str, loss: Callable[[Tensor], Tensor]) -> None:
        try:
            meter.backward(loss(batch(0)[place.part]))
        except HeadwayError as error:
            found[name] = f"{type(error).__name__}: {error}"
        assert all(parameter.grad is None for parameter in model.parameters())

    def shape(tokens: Tensor) -> Tensor:
        losses = losses_of(model, tokens)
        return losses.mean() if place.rank == 0 else losses

    def count(tokens: Tensor) -> Tensor:
        losses = losses_of(model, tokens)
        return losses[:-1] if place.rank == 0 else losses

    def mixed(tokens: Tensor) -> Tensor:
        losses = losses_of(model, tokens)
        return losses * losses.mean() if place.rank == 0 else losses

    attempt("shape", shape)
    attempt("count", count)
    attempt("mixed", mixed)
    return found | llama_after_errors(place, model, meter)


def llama_after_errors(place: Place, model: nn.Module | None = None, meter: Meter[Any] | None = None) -> Results:
    """Two steps after batches that could not be scored, or from the start."""
    model = llama() if model is None else model
    meter = Meter(model, [GMC(beta=0.5), NormAll()]) if meter is None else meter
    return {f"{n} {name}": score for n in range(2) for name, score in step(place, model, meter, n).items()}


def undone(place: Place) -> Results:
    """Gradients after micro-batches that failed and were repeated, against the same training without a failure.

    FSDP keeps what it has not yet averaged in other places for every one of these.
    """
    found: Results = {}
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")) if place.world == 4 else None
    synchronise = "set_requires_gradient_sync" if mesh is None else "set_requires_all_reduce"
    mixed = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for kind, options in {"plain": {}, "mixed": {"mp_policy": mixed}}.items():
        models = [place.shard(llama(torch.float32), mesh=mesh, **options) for _ in range(2)]
        meters = [Meter(model, GMC(beta=0.5), accumulate=3, check="always") for model in models]
        for number in range(3):
            for model, meter, fails in zip(models, meters, (True, False), strict=True):
                getattr(model, synchronise)(number == 2)
                if fails:
                    losses = losses_of(model, batch(number)[place.part])
                    with pytest.raises(HeadwayError):
                        meter.backward(losses.repeat(2) if place.rank == 0 else losses)
                meter.backward(losses_of(model, batch(number)[place.part]))
        pairs = zip(models[0].named_parameters(), models[1].parameters(), strict=True)
        found |= {f"{kind} {name}": torch.equal(whole(p.grad), whole(q.grad)) for (name, p), q in pairs}
        moments = zip(moments_of(meters[0]).items(), moments_of(meters[1]).values(), strict=True)
        found |= {f"{kind} {name}": torch.equal(one, other) for (name, one), other in moments}
    return found


class Branches(nn.Module):
    """Two layers of one size whose order, number and use can differ between ranks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.left = nn.Linear(8, 8)
        self.right = nn.Linear(8, 8)
        self.head = nn.Linear(8, VOCABULARY)
        self.way = "both"
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [B, T] to scores [B, T, V]."""
        x = self.embedding(tokens)
        if self.way == "swapped":
            right, left = self.right(x), self.left(x)
        elif self.way == "fewer":
            right, left = x, self.left(x)
        elif self.way == "more":
            left, right = self.left(self.left(x)), self.right(x)
        else:
            left, right = self.left(x), self.right(x)
        scores: Tensor = self.head(left if self.way == "unused" else torch.tanh(left) + torch.sin(right))
        return scores


def disagreements(place: Place) -> Results:
    """What each rank is told where the first one calls other layers than the others, in batches that no check sees."""
    model = Branches()
    model = fully_shard(model) if place.world > 1 else model
    meter = Meter(model, [GMC(beta=0.5), NormAll()], check="never")
    found: Results = {}
    step(place, model, meter, 0)
    for way in ("swapped", "fewer", "more", "unused") if place.world > 1 else ():
        model.way = way if place.rank == 0 else "both"
        for ask in (meter.backward, meter.score):
            try:
                ask(losses_of(model, batch(0)[place.part]))
            except HeadwayError as error:
                found[f"{way} {ask.__name__}"] = f"{type(error).__name__}: {error}"
            assert all(parameter.grad is None for parameter in model.parameters())
    model.way = "both"
    return found | {f"{n} {name}": score for n in (1, 2) for name, score in step(place, model, meter, n).items()}


class Loop(nn.Module):
    """A cell that runs as often as it is told."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.RNNCell(3, 5)
        self.head = nn.Linear(5, 1)
        self.times = 2
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        """Rows [B, 3] to one number each [B]."""
        hidden = x.new_zeros(len(x), 5)
        for _ in range(self.times):
            hidden = self.cell(x, hidden)
        number: Tensor = self.head(hidden).sum(1)
        return number


def loops(place: Place) -> Results:
    """Ranks may call a layer different numbers of times, where its calls are added up before they are reduced."""
    alone, x = Loop(), torch.randn(SAMPLES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    norms = []
    for sample in range(SAMPLES):
        alone.times = 2 + sample // (SAMPLES // 2)
        grads = torch.autograd.grad(alone(x[sample : sample + 1]).square().sum(), list(alone.parameters()))
        norms.append(torch.cat([grad.flatten() for grad in grads]).abs().sum())
    if place.world == 1:
        return {"scores": torch.stack(norms)}
    model = fully_shard(Loop())
    meter = Meter(model, NormAll(), check="always")
    model.times = 2 + place.rank
    return {"scores": place.join(meter.backward(model(x[place.part]).square()))}


@dataclass(frozen=True, kw_only=True)
class Failing(BaseSignal):
    """A signal of a user's own that fails on the last rank, where and when it is told."""

    name: str = "failing"
    fails: list[str] = field(default_factory=list)
    rank: int = 0

    def init(self, scope: Scope) -> None:
        """See `Signal.init`."""
        self._fail("init")

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """A norm of each parameter, after a sum over the ranks."""
        self._fail("reductions")
        scope.parts.total(batch.losses.sum())
        return {"norm": {name: Reduction("l1") for name in scope.parameters}}

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """Their sum, between two sums over the ranks."""
        self._fail("before")
        length = scope.length(scope.parameters.values(), batch.losses)
        self._fail("scores")
        self._fail("swallowed")
        other = "shape" in self.fails and self.rank == 1
        try:
            scope.parts.total(batch.losses.sum().double().expand(3) if other else batch.losses.sum())
        except HeadwayError:
            if "swallowed" not in self.fails:
                raise
        return torch.stack(list(values["norm"].values())).sum(0) + 0 * length

    def observe(self, scope: Scope, batch: Batch) -> None:
        """See `Signal.observe`."""
        self._fail("observe")

    def _fail(self, where: str) -> None:
        if where in self.fails and self.rank == 1:
            raise ZeroDivisionError(where)


def own_signals(place: Place) -> Results:
    """What each rank is told where a user's own signal fails on one of them, and that training goes on after it."""
    model = place.shard(llama())
    failing = Failing(rank=place.rank)
    kinds = [failing, Cosine(beta=0.5), GMC(beta=0.5, floor=0.1, unit="relative")]
    found: Results = {}

    def attempt(where: str, act: Callable[[], object]) -> None:
        failing.fails[:] = [where]
        try:
            act()
        except (HeadwayError, ZeroDivisionError) as error:
            found[where] = f"{type(error).__name__}: {error}"
        failing.fails.clear()

    if place.world > 1:
        attempt("init", lambda: Meter(model, kinds))
    meter = Meter(model, kinds)
    for where in ("reductions", "before", "scores", "swallowed", "observe", "shape") if place.world > 1 else ():
        attempt(where, lambda: meter.backward(losses_of(model, batch(0)[place.part])))
        assert all(parameter.grad is None for parameter in model.parameters())
    return found | {f"{n} {name}": score for n in range(3) for name, score in step(place, model, meter, n).items()}


def other_states(place: Place) -> Results:
    """What loading says to states of another kind, or that are damaged on one rank."""
    reference = Reference()
    model, whole_model = place.shard(llama()), llama()
    meter, alone = (Meter(one, [GMC(beta=0.5), Alignment(reference)]) for one in (model, whole_model))
    reference.set({name: torch.ones(p.shape) for name, p in whole_model.named_parameters()})
    meter.backward(losses_of(model, batch(0)[place.part]))
    state, before = meter.state_dict(), alone.state_dict()
    found: Results = {}

    def attempt(name: str, act: Callable[[], object]) -> None:
        try:
            act()
        except HeadwayError as error:
            found[name] = f"{type(error).__name__}: {error}"

    attempt("moments", lambda: alone.load_state_dict(state))
    attempt("memory", lambda: alone.load_state_dict({**state, "moments": before["moments"]}))
    found["same"] = torch.equal(alone.state_dict()["moments"][0]["updates"], before["moments"][0]["updates"])
    other = fully_shard(llama(), mesh=init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard")))
    attempt("mesh", lambda: Meter(other, [GMC(beta=0.5), Alignment(reference)]).load_state_dict(state))
    attempt("rank", lambda: meter.load_state_dict({**state, "batches": -1} if place.rank == 1 else state))
    gathered = tree_map(lambda one: whole(one) if isinstance(one, Tensor) else one, state)
    alone.load_state_dict(gathered)
    meter.load_state_dict(gathered)
    names = moments_of(meter)
    found["round"] = all(torch.equal(one, names[name]) for name, one in moments_of(alone).items())
    memory = meter.state_dict()["memory"]["alignment"]
    found["memory round"] = all(bool((whole(one) == 1).all()) for one in memory.values())
    return found


def number_refused(place: Place) -> Results:
    """Parameters that stay gathered over some of the processes after the forward pass."""
    try:
        Meter(place.shard(llama(), reshard_after_forward=2), GMC())
    except HeadwayError as error:
        return {"message": str(error)}
    return {}


SCENARIOS: Mapping[int, Sequence[Callable[[Place], Results]]] = {
    2: (*sharded.SCENARIOS[2], errors, undone, disagreements, loops, own_signals, other_states),
    4: (*sharded.SCENARIOS[4], number_refused, undone),
}


@leaving_together
def work(rank: int, world: int, folder: str) -> None:
    """Run all scenarios on one of some processes."""
    meet = f"file://{folder}/rendezvous{world}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world, timeout=timedelta(minutes=10))
    place = Place(rank, world, folder)
    warnings.filterwarnings("error", module="headway|torch.distributed.fsdp")
    results = {scenario.__name__: scenario(place) for scenario in SCENARIOS[world]}
    torch.save(results, Path(folder) / f"{world} {rank}.pt")
