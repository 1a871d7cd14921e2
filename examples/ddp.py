"""Data-parallel training with a score for every sample: the meter under DistributedDataParallel.

    torchrun --nproc-per-node 2 examples/ddp.py          # two processes on this machine, on the CPU
    torchrun --nproc-per-node 4 examples/ddp.py --device cuda
    python examples/ddp.py                               # one process; the same numbers

Every process scores its own samples against the moments of the averaged gradient, so that any number of processes gives
the scores that one process gives on the joined batch, as long as all have batches of the same size. The loop is the one
of a single process; what is different is marked with (*).
"""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # now, as it keeps the group for ever if it is loaded once there is one; see leave
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import headway
from headway.data import load


def connect(device: str) -> tuple[int, int, torch.device]:
    """Join the other processes, if torchrun has started any; returns rank, number of processes and device."""
    if "RANK" not in os.environ:
        return 0, 1, torch.device(device)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    place = torch.device(device, int(os.environ["LOCAL_RANK"])) if device == "cuda" else torch.device(device)
    return dist.get_rank(), dist.get_world_size(), place


def leave() -> None:
    """(*) Part from the other processes.

    The threads of a group end with the last reference to it, and one that outlives the interpreter may abort the
    process. `DistributedDataParallel` refers to its group, and to itself.
    """
    if dist.is_initialized():
        gc.collect()
        dist.destroy_process_group()


def digits(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Images [N, 64] from 0 to 1, and labels [N]; a tenth of the labels are wrong."""
    split = load("digits").train
    images = torch.from_numpy(split.floats()).flatten(1).to(dtype)
    labels = torch.from_numpy(split.labels).clone()
    wrong = torch.arange(0, len(labels), 10)
    labels[wrong] = (labels[wrong] + 1) % 10
    return images, labels


def train(options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Train; returns the scores of the last joined batch [B], and the indices of its samples [B]."""
    rank, processes, device = connect(options.device)
    if options.batch % processes:
        raise SystemExit(f"expected a batch that {processes} processes can share evenly, got {options.batch}")
    images, labels = digits(getattr(torch, options.dtype))
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device, images.dtype)
    if processes > 1:
        model = DistributedDataParallel(model)  # (*)
    meter = headway.Meter(model, headway.GMC(beta=0.99))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    order = torch.Generator().manual_seed(0)
    for step in range(options.steps):
        joined = torch.randint(len(labels), (options.batch,), generator=order)
        own = joined.chunk(processes)[rank]  # (*)
        x, y = images[own].to(device), labels[own].to(device)
        losses = F.cross_entropy(model(x), y, reduction="none")
        scores = meter.backward(losses)  # averages the gradients over the processes, as DDP always does
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            means = mean_over(processes, torch.stack([losses.detach().mean(), scores.mean()]))
            if rank == 0:
                print(f"step {step}: loss {means[0]:.3f}, mean score {means[1]:.4g}", flush=True)
    return gather(scores.cpu(), processes), joined


def mean_over(processes: int, values: Tensor) -> Tensor:
    """(*) The mean over all processes; each has as many samples."""
    if processes > 1:
        dist.all_reduce(values)
    return values / processes


def gather(scores: Tensor, processes: int) -> Tensor:
    """(*) The scores of all processes, in the order of the joined batch."""
    if processes == 1:
        return scores
    parts = [torch.empty_like(scores) for _ in range(processes)]
    dist.all_gather(parts, scores)
    return torch.cat(parts)


def main() -> None:
    """Train, and say what the scores tell about the wrong labels."""
    parser = argparse.ArgumentParser(description="scores under DistributedDataParallel")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=256, help="samples of all processes together")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--out", type=Path, help="where to keep the last scores")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        scores, joined = train(options)
        if not dist.is_initialized() or dist.get_rank() == 0:
            wrong = joined % 10 == 0
            means = f"{scores[wrong].mean():.4g} for wrong labels, {scores[~wrong].mean():.4g} for right ones"
            print(f"mean score of the last batch: {means}")
            if options.out:
                torch.save(scores, options.out)
        if dist.is_initialized():
            dist.barrier()  # (*) one that leaves early may take the others down
    finally:
        leave()


if __name__ == "__main__":
    main()
