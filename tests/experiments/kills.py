"""Carries out runs in child processes and kills them at random instants; a program of its own, for one thread.

python -m tests.experiments.kills FOLDER KILLS SEED
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from headway.experiments import controlled
from headway.experiments.base import Context
from headway.runs import RunStore, State

from .test_controlled import one


def attempt(folder: Path, seconds: float | None) -> float:
    """Carry out the run in a child; kill it after some seconds. Returns how long the child lived."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        store = RunStore(folder)
        run = store.claim(one("gmc", epochs=12))
        if run is not None:
            with run:
                controlled.run(run, Context(keep_weights=True, checkpoint_seconds=0.0))
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return time.monotonic() - start


def main(folder: Path, kills: int, seed: int) -> None:
    """One run in peace, and one that is killed again and again until it is done."""
    torch.set_num_threads(1)
    whole = attempt(folder / "whole", None)
    chance = random.Random(seed)
    spec = one("gmc", epochs=12)
    survived = 0
    for _ in range(kills):
        if (folder / "killed").exists() and RunStore(folder / "killed").record(spec.run_id).state is State.DONE:
            break
        attempt(folder / "killed", chance.uniform(0.0, 0.35 * whole))
        survived += 1
    attempt(folder / "killed", None)
    print(survived)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
