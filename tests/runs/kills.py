"""Carries out runs in child processes and kills them at random instants; a program of its own, for one thread.

python -m tests.runs.kills FOLDER KILLS SEED [controlled | doorkey | arena]
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from headway.runs import RunSpec, RunStore, State
from headway.runs.experiments import Context, find_experiment


def spec_of(experiment: str) -> RunSpec:
    """The run of an experiment that is killed."""
    if experiment == "doorkey":
        from tests.study import test_doorkey

        return test_doorkey.one(rollouts=12)
    if experiment == "arena":
        from tests.study import test_arena

        return test_arena.one(rollouts=12)
    from tests.study import test_controlled

    return test_controlled.one("gmc", epochs=12)


def attempt(folder: Path, spec: RunSpec, seconds: float | None) -> float:
    """Carry out the run in a child; kill it after some seconds. Returns how long the child lived."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        run = RunStore(folder).lock(spec)
        if run is not None:
            with run:
                find_experiment(spec.experiment).run(run, Context(keep_weights=True, checkpoint_seconds=0.0))
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return time.monotonic() - start


def main(folder: Path, kills: int, seed: int, experiment: str = "controlled") -> None:
    """One run in peace, and one that is killed again and again until it is done."""
    torch.set_num_threads(1)
    spec = spec_of(experiment)
    whole = attempt(folder / "whole", spec, None)
    chance = random.Random(seed)
    survived = 0
    for _ in range(kills):
        if (folder / "killed").exists() and RunStore(folder / "killed").record(spec.run_id).state is State.DONE:
            break
        attempt(folder / "killed", spec, chance.uniform(0.0, 0.35 * whole))
        survived += 1
    attempt(folder / "killed", spec, None)
    print(survived)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
