"""What the tests of the run store share."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from headway.runs import Run, RunRecord, RunSpec, RunStore


def spec_of(seed: int, **changes: Any) -> RunSpec:
    return RunSpec(experiment="controlled", condition="noise", method="gmc", seed=seed, **changes)


def lock(store: RunStore, spec: RunSpec) -> Run:
    run = store.lock(spec)
    assert run is not None
    return run


def checkpointed(store: RunStore, spec: RunSpec, *steps: int) -> Run:
    """Lock a run, and log and checkpoint some steps."""
    run = lock(store, spec)
    run.restore()
    for step in steps:
        run.log({"step": step, "loss": 1 / step, "arms": [step, 0.5]})
        run.checkpoint(step, lambda file, step=step: file.write(b"state %d" % step))
    return run


def finish(store: RunStore, spec: RunSpec, rows: int = 3) -> None:
    checkpointed(store, spec, *range(1, rows + 1)).finish()


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def one(store: RunStore) -> RunRecord:
    (record,) = store.status()
    return record


def names(folder: Path) -> list[str]:
    """What is in a run's folder, but for the staging folder of a process that holds the run."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".attempt-"))


def failing(code: int) -> Callable[..., NoReturn]:
    """Return a function that fails as the system does with this error number."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return fail


full_disk = failing(errno.ENOSPC)
