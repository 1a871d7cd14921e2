"""What the Gymnasium wrapper adds to a step: processor time, on one core.

    python benchmarks/wrapper.py [--method icm icm+gmc rnd] [--steps 2048] [--rounds 3] [--out FILE.json]

Two environments of CartPole take turns with and without the wrapper; rewards are looked at every 512 steps. Processor
time does not count what other programs use, so that it can be measured on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch

from headway.integrations.gymnasium import IntrinsicRewardWrapper


def milliseconds(method: str | None, steps: int) -> float:
    """Per step, with the training of the predictor."""
    env = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    if method is not None:
        env = IntrinsicRewardWrapper(env, method)
    env.reset(seed=0)
    infos = []
    start = time.process_time()
    for step in range(steps):
        infos.append(env.step(np.array([step % 2, 1 - step % 2]))[-1])
        if len(infos) == 512:
            if method is not None:
                np.stack([each["scaled_intrinsic_reward"] for each in infos])
            infos = []
    return (time.process_time() - start) / steps * 1000


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description="what the Gymnasium wrapper adds to a step")
    parser.add_argument("--method", nargs="+", default=["icm", "icm+gmc", "rnd"])
    parser.add_argument("--steps", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    added = {}
    for method in options.method:
        rounds = [
            milliseconds(method, options.steps) - milliseconds(None, options.steps) for _ in range(options.rounds)
        ]
        added[method] = round(statistics.median(rounds), 3)
        print(f"{method:8} {added[method]:.3f} ms")
    if options.out:
        options.out.write_text(json.dumps({"milliseconds": added}, indent=1) + "\n")
    return added


if __name__ == "__main__":
    main()
