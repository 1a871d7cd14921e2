"""A steady step with GMC against a plain step, in turn, in one process: forward, backward, fused Adam, zero_grad.

    python -m benchmarks.steady [--rounds 25] [--cases a b c d e g] [--threads 1 2] [--out FILE.json]

Time is that of the process, so that other programs on the machine count little on one thread. On several threads the
process's time includes what threads wait for each other; set OMP_WAIT_POLICY=passive, and run on an idle machine. The
first batches, which headway prepares and checks, are left out. The table has the median over the rounds and quartiles.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.common import Neighbours, describe, write_json
from benchmarks.cost.cases import CASES, Case, losses, sequences
from headway import GMC, Meter

GOALS = {"a": 1.7, "b": 1.7, "c": 1.2, "d": 1.25, "e": 1.12, "g": 1.4}
WARM = 6


def gpt2(width: int = 128, layers: int = 4, positions: int = 128, vocabulary: int = 128) -> nn.Module:
    """GPT-2 of transformers, without dropout, from tokens to logits."""
    from transformers import GPT2Config, GPT2LMHeadModel

    import headway.integrations.transformers  # noqa: F401  the rule of its Linear

    sizes: dict[str, Any] = {
        "n_positions": positions,
        "n_embd": width,
        "n_layer": layers,
        "n_head": 4,
        "vocab_size": vocabulary,
    }
    dropout: Any = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2LMHeadModel(GPT2Config(**sizes, **dropout, bos_token_id=0, eos_token_id=0))


GPT2 = Case("g", "GPT-2 of transformers, width 128, 4 layers, 128 positions", 8, gpt2, sequences(128, 128), 1.4, (8,))


def steps(case: Case) -> list[Callable[[Any], None]]:
    """A plain step and one with scores, each with a model of its own."""
    made: list[Callable[[Any], None]] = []
    for scored in (False, True):
        model = case.build()
        meter = Meter(model, GMC(), check="first") if scored else None
        optimizer = torch.optim.Adam(model.parameters(), fused=True)

        def step(data: Any, model: Any = model, meter: Any = meter, optimizer: Any = optimizer) -> None:
            out = model(data.x)
            each = losses(getattr(out, "logits", out), data.y)
            if meter is None:
                each.mean().backward()
            else:
                meter.backward(each)
            optimizer.step()
            optimizer.zero_grad()

        made.append(step)
    return made


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """The processor time of both, and the ratios of the rounds in which both take a turn on the same batches."""
    generator = torch.Generator().manual_seed(0)
    both, repeats = steps(case), 4 if case.key in "ab" else 1
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(-WARM, rounds):
        batches = [case.data(case.batch, generator) for _ in range(repeats)]
        for which in (0, 1) if number % 2 else (1, 0):
            start = time.process_time()
            for data in batches:
                both[which](data)
            if number >= 0:
                times[which].append((time.process_time() - start) / repeats)
    ratios = [own / plain for plain, own in zip(*times, strict=True)]
    quartiles = statistics.quantiles(ratios, n=4)
    return {"plain_ms": 1e3 * statistics.median(times[0]), "ratio": quartiles[1], "quartiles": quartiles[::2]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="a steady step with scores over a plain step")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--cases", nargs="+", default=list(GOALS), choices=list(GOALS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    neighbours, rows = Neighbours(), []
    for threads in options.threads:
        torch.set_num_threads(threads)
        for key in options.cases:
            case = GPT2 if key == "g" else CASES[key]
            found = {"case": key, "title": case.title, "threads": threads, **measure(case, options.rounds)}
            rows.append({**found, "goal": GOALS[key]})
            print(f"{key}  {threads} threads  {found['ratio']:.2f} {found['quartiles']} of {found['plain_ms']:.1f} ms")
    machine = dataclasses.asdict(describe(max(options.threads)))
    write_json(options.out, {"machine": machine, "busy_cores_of_others": neighbours.say(), "rows": rows})


if __name__ == "__main__":
    main()
