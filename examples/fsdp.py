"""A language model that is sharded over processes (FSDP2), with a score for every sequence.

    torchrun --nproc-per-node 2 examples/fsdp.py --save CHECKPOINT    # two processes on this machine, on the CPU
    torchrun --nproc-per-node 4 examples/fsdp.py --resume CHECKPOINT --steps 400    # goes on with four
    python examples/fsdp.py                                           # one process, not sharded; the same numbers

Every process scores its own sequences. Moments lie beside the shards of the parameters; the weights of a layer's scores
are gathered for its backward pass alone. What is different from a loop in one process is marked with (*).
"""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import headway

TOKENS, LENGTH, WIDTH = 23, 12, 32


class Block(nn.Module):
    """Attention and a gated layer, each behind a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, WIDTH] to the same."""
        q, k, v = (part.unflatten(2, (2, -1)).transpose(1, 2) for part in self.mix(self.norms[0](x)).chunk(3, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        gate, value = self.up(self.norms[1](x)).chunk(2, 2)
        return x + self.down(F.silu(gate) * value)


class Model(nn.Module):
    """A small language model."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [B, T] to logits [B, T, TOKENS]."""
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sequences(step: int, number: int) -> Tensor:
    """Tokens [B, LENGTH + 1] that count up in steps of 1 to 3."""
    draw = torch.Generator().manual_seed(step)
    first, stride = torch.randint(TOKENS, (number, 1), generator=draw), torch.randint(1, 4, (number, 1), generator=draw)
    return (first + stride * torch.arange(LENGTH + 1)) % TOKENS


def shard(model: nn.Module, mixed: bool) -> None:
    """(*) Shard the blocks, and then what is left."""
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def train(options: argparse.Namespace, rank: int, processes: int) -> Tensor:
    """Train; returns the scores of the last joined batch [B]."""
    torch.manual_seed(0)
    model = Model()
    if processes > 1:
        shard(model, options.bfloat16)
    meter = headway.Meter(model, headway.GMC(beta=0.9, floor=0.1, unit="relative"))  # (*) after fully_shard
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    alone, done = processes == 1, 0
    if options.resume:
        state = {"model": model.state_dict(), "meter": meter.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=options.resume, no_dist=alone)  # (*) into any number of processes
        model.load_state_dict(state["model"])
        meter.load_state_dict(state["meter"])
        done = state["step"]
        if done >= options.steps:
            raise SystemExit(f"expected --steps above {done}, the step of the checkpoint, got {options.steps}")
    for step in range(done, options.steps):
        tokens = sequences(step, options.batch).chunk(processes)[rank]  # (*)
        losses = F.cross_entropy(model(tokens[:, :-1]).mT.float(), tokens[:, 1:], reduction="none").mean(1)
        scores = meter.backward(losses)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            means = torch.stack([losses.detach().mean(), scores.mean()]) / processes
            if not alone:
                dist.all_reduce(means)  # (*)
            if rank == 0:
                print(f"step {step}: loss {means[0]:.3f}, mean score {means[1]:.4g}", flush=True)
    if options.save:
        state = {"model": model.state_dict(), "meter": meter.state_dict(), "step": options.steps}
        dcp.save(state, checkpoint_id=options.save, no_dist=alone)  # (*) each process writes its shards
    if alone:
        return scores
    parts = [torch.empty_like(scores) for _ in range(processes)]
    dist.all_gather(parts, scores)
    return torch.cat(parts)


def main() -> None:
    """Train, alone or among others."""
    parser = argparse.ArgumentParser(description="scores of a model that is sharded by fully_shard")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64, help="sequences of all processes together")
    parser.add_argument("--bfloat16", action="store_true", help="gather parameters in bfloat16")
    parser.add_argument("--save", type=Path, help="where to write a checkpoint")
    parser.add_argument("--resume", type=Path, help="the checkpoint to go on from")
    parser.add_argument("--out", type=Path, help="where to keep the last scores")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if options.batch % processes:
        raise SystemExit(f"expected a batch that {processes} processes can share evenly, got {options.batch}")
    if processes > 1:
        dist.init_process_group("gloo")
    try:
        scores = train(options, rank, processes)
        if options.out and rank == 0:
            torch.save(scores, options.out)
        if processes > 1:
            dist.barrier()
    finally:
        if processes > 1:
            gc.collect()
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
