"""GMC over two DDP ranks equals one process on the joined batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from headway import GMC, Meter

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


def work(rank: int, folder: str, accumulate: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    model = DistributedDataParallel(make_model())
    half = SAMPLES // 2
    scores = train(model, slice(rank * half, (rank + 1) * half), accumulate)
    torch.save((scores, model.module.state_dict()), Path(folder) / f"rank{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_ranks_equal_one_process(tmp_path: Path, accumulate: int) -> None:
    mp.spawn(work, (str(tmp_path), accumulate), nprocs=2)
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


def work_unequally(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    part = slice(0, 9) if rank == 0 else slice(9, SAMPLES)
    torch.save(add_up(DistributedDataParallel(make_model()), part), Path(folder) / f"rank{rank}.pt")
    dist.destroy_process_group()


def test_sums_over_unequal_batches_give_every_rank_the_moments_of_one_process(tmp_path: Path) -> None:
    mp.spawn(work_unequally, (str(tmp_path),), nprocs=2)
    expected = add_up(make_model(), slice(0, SAMPLES))
    for rank in range(2):
        moments = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)
        for name, want in expected.items():
            torch.testing.assert_close(moments[name], want, rtol=1e-9, atol=1e-12)
