"""An experiment that trains nothing: the method of a run says what happens to it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import time
from pathlib import Path

from headway.runs import Run, RunSpec
from headway.runs.experiments import Context, Stopped
from headway.runs.files import store_error

NAME, MODULE = "dummy", "tests.runs.dummy"
SLOW_MODULE, SLOW_FOLDER = "tests.runs.slow_dummy", "HEADWAY_TEST_SLOW_IMPORT"
"""The same experiment with an import that takes its time, and the variable that asks for it and names a folder."""
LARGE = 150_000
"""Bytes that the checkpoints of the method "large" have beside their state."""
WAITS = True
"""Whether the methods "wait" and "stubborn" wait, in this process."""


def spec_of(method: str = "good", seed: int = 0, steps: int = 3, folder: Path | None = None) -> RunSpec:
    """A run of `steps` steps; with a folder, it leaves a line in `folder/log` when it ends."""
    params = {"steps": steps, "folder": str(folder or "")}
    return RunSpec(experiment=NAME, condition="none", method=method, seed=seed, params=params)


def estimate(spec: RunSpec, context: Context) -> float:
    return 10.0 * int(str(spec.params["steps"]))


def run(run: Run, context: Context) -> None:
    """Hash on from step to step, so that any wrong resumption shows."""
    checkpoint = run.restore()
    step, state = (checkpoint.step, checkpoint.payload[:32]) if checkpoint else (0, str(run.spec.seed).encode())
    total = int(str(run.spec.params["steps"]))
    if run.spec.method == "die-abroad":
        emigrate(run)
    if run.spec.method in ("die-always", "die-abroad"):
        os.kill(os.getpid(), signal.SIGKILL)
    while step < total:
        if context.should_stop() and run.spec.method != "stubborn":
            raise Stopped("asked to")
        step, state = step + 1, hashlib.sha256(state).digest()
        run.log({"step": step, "value": state[0] / 256})
        room = bytes(LARGE if run.spec.method == "large" else 0)
        run.checkpoint(step, lambda file, state=state, room=room: file.write(state + room))
        run.progress(step, total, {"value": state[0] / 256})
        if context.report:
            context.report(step, total, {"value": state[0] / 256})
        if step >= 2:
            suffer(run, context)
    if run.spec.method == "unfinished":
        return
    leave_a_line(run)
    run.finish()


def suffer(run: Run, context: Context) -> None:
    """What happens after the second step and each later one."""
    match run.spec.method:
        case "fail":
            raise ValueError("two is too much")
        case "fail-first" if run.attempt == 1:
            raise ValueError("two is too much")
        case "hungry":
            eat()
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die-first" if run.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop-first" if run.attempt == 1:
            raise Stopped("because it felt like it")
        case "stop":
            raise Stopped("because it felt like it")
        case "full":
            error = OSError(errno.ENOSPC, "No space left on device")
            raise store_error("write", run.folder, error) from error
        case "wait-first" if run.attempt == 1:
            while not context.should_stop():
                time.sleep(0.005)
        case "wait" | "stubborn" if WAITS:
            while run.spec.method == "stubborn" or not context.should_stop():
                time.sleep(0.005)
        case "meet":
            meet(Path(str(run.spec.params["folder"])), run.spec.seed)


def emigrate(run: Run) -> None:
    """Let the lock look like that of another machine, of which nobody here can know whether its processes live."""
    path = run.folder / f"claim.{run.attempt}"
    path.write_text(json.dumps({**json.loads(path.read_text()), "machine": "abroad", "lease": 0.2}))


def eat() -> None:
    """Ask for more memory than this process may have."""
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, before[1]))
    try:
        bytearray(2**32)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def meet(folder: Path, seed: int) -> None:
    """Wait for the run with the other seed, 0 or 1, which thus has to be under way at the same time."""
    (folder / f"here-{seed}").touch()
    while not (folder / f"here-{1 - seed}").exists():
        time.sleep(0.005)


def leave_a_line(run: Run) -> None:
    folder = str(run.spec.params["folder"])
    if folder:
        log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, f"{run.run_id}\n".encode())
        os.close(log)
