"""GMC over two DDP ranks equals one process on the joined batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from headway import GMC, Meter
from headway.integrations.training import metered_loss
from tests.ranks import join_pair, leaving_together, run_ranks

SAMPLES, STEPS = 12, 4


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3)
    ).double()


def make_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(SAMPLES, 2, 5, 5, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (SAMPLES,), generator=generator)


def train(model: nn.Module, part: slice, accumulate: int = 1) -> list[torch.Tensor]:
    meter = Meter(model, GMC(beta=0.9), accumulate=accumulate)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scores = []
    for step in range(STEPS):
        x, y = (tensor[part] for tensor in make_batch(step))
        for i, (own, labels) in enumerate(zip(x.chunk(accumulate), y.chunk(accumulate), strict=True)):
            last = i == accumulate - 1
            if accumulate > 1 and not last:
                with model.no_sync():
                    losses = nn.functional.cross_entropy(model(own), labels, reduction="none")
                    scores.append(meter.backward(losses))
            else:
                losses = nn.functional.cross_entropy(model(own), labels, reduction="none")
                scores.append(meter.backward(losses))
        optimizer.step()
        optimizer.zero_grad()
    return scores


@leaving_together
def work(rank: int, folder: str, accumulate: int) -> None:
    join_pair(rank, folder)
    model = DistributedDataParallel(make_model())
    half = SAMPLES // 2
    scores = train(model, slice(rank * half, (rank + 1) * half), accumulate)
    torch.save((scores, model.module.state_dict()), Path(folder) / f"rank{rank}.pt")


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_ranks_equal_one_process(tmp_path: Path, accumulate: int) -> None:
    run_ranks(work, str(tmp_path), accumulate)
    single = make_model()
    expected = train(single, slice(0, SAMPLES))
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    for step, want in enumerate(expected):
        own = [torch.cat(scores[step * accumulate : (step + 1) * accumulate]) for scores, _ in ranks]
        torch.testing.assert_close(torch.cat(own), want, rtol=1e-9, atol=1e-12)
    for _, state in ranks:
        for name, tensor in single.state_dict().items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-9, atol=1e-12)


def add_up(model: nn.Module, part: slice) -> dict[str, torch.Tensor]:
    """The moments after some batches whose losses are added up, not averaged."""
    meter = Meter(model, GMC(beta=0.9), reduction="sum")
    for step in range(STEPS):
        x, y = (tensor[part] for tensor in make_batch(step))
        model.zero_grad()
        meter.backward(nn.functional.cross_entropy(model(x), y, reduction="none"))
    return dict(meter.moments().m)


@leaving_together
def work_unequally(rank: int, folder: str, first: int) -> None:
    join_pair(rank, folder)
    part = slice(0, first) if rank == 0 else slice(first, SAMPLES)
    torch.save(add_up(DistributedDataParallel(make_model()), part), Path(folder) / f"rank{rank}.pt")


@pytest.mark.slow
@pytest.mark.parametrize("first", [9, SAMPLES - 1])
def test_sums_over_unequal_batches_give_every_rank_the_moments_of_one_process(tmp_path: Path, first: int) -> None:
    run_ranks(work_unequally, str(tmp_path), first)
    expected = add_up(make_model(), slice(0, SAMPLES))
    for rank in range(2):
        moments = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)
        for name, want in expected.items():
            torch.testing.assert_close(moments[name], want, rtol=1e-9, atol=1e-12)


def accumulate_by_hand(model: nn.Module, part: slice, factors: Sequence[float]) -> dict[str, torch.Tensor]:
    """The moments after one step of micro-batches that are synchronised with the last of them."""
    meter = Meter(getattr(model, "module", model), GMC(beta=0.0))
    meter.wrapped_in(model)
    x, y = (tensor[part] for tensor in make_batch(0))
    chunks = zip(x.chunk(len(factors)), y.chunk(len(factors)), factors, strict=True)
    for number, (own, labels, factor) in enumerate(chunks):
        held = isinstance(model, DistributedDataParallel) and number < len(factors) - 1
        with model.no_sync() if held else nullcontext():
            losses = nn.functional.cross_entropy(model(own), labels, reduction="none")
            (metered_loss(meter, losses) * factor).backward()
    assert meter.moments().updates == 1
    return dict(meter.moments().m)


@leaving_together
def work_on_micro_batches(rank: int, folder: str, factors: Sequence[Sequence[float]]) -> None:
    join_pair(rank, folder)
    half = SAMPLES // 2
    part = slice(rank * half, (rank + 1) * half)
    moments = accumulate_by_hand(DistributedDataParallel(make_model()), part, factors[rank])
    torch.save(moments, Path(folder) / f"rank{rank}.pt")


@pytest.mark.slow
@pytest.mark.parametrize("factors", [((1 / 3,) * 3, (1 / 3,) * 3), ((1.5,), (0.5,)), ((0.2, 0.4), (0.9, 0.5))])
def test_micro_batches_of_a_framework_give_every_rank_the_mean_gradient(tmp_path: Path, factors) -> None:
    """Trainers multiply losses by factors of their own, which differ with the lengths of texts."""
    run_ranks(work_on_micro_batches, str(tmp_path), factors)
    model = make_model()
    x, y = make_batch(0)
    losses = nn.functional.cross_entropy(model(x), y, reduction="none")
    weights = torch.tensor([f for own in factors for f in own], dtype=torch.float64)
    losses.reshape(len(weights), -1).mean(1).mul(weights / weights.sum()).sum().backward()
    for rank in range(2):
        moments = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(moments[name], parameter.grad, rtol=1e-9, atol=1e-12)
