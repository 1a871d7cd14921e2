"""Crashes and races of real processes, run as a script of its own: `python -m tests.runs.forks TASK FOLDER`.

It forks its workers, which is quick and safe here, because this process has no other threads; the one that
runs the tests may have some. It loads pyarrow, and pandas, which pyarrow loads where it is installed, so that the
workers need not, but leaves their use to them, and compares files as bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from headway.runs import RunSpec, RunStore, State, files

STEPS = 4
WATCHED = {"open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.scandir", "os.listdir"}


def spec_of(seed: int) -> RunSpec:
    return RunSpec(experiment="crash", method="none", seed=seed)


def train(store: RunStore, spec: RunSpec, done: Callable[[], object] = lambda: None) -> None:
    """Run a run whose state is a chain of hashes, so that any wrong resumption shows."""
    run = store.lock(spec)
    if run is None:
        return
    with run:
        checkpoint = run.restore()
        step, state = (checkpoint.step, checkpoint.payload) if checkpoint else (0, b"start")
        while step < STEPS:
            step, state = step + 1, hashlib.sha256(state).digest()
            run.log({"step": step, "value": state[0] / 256, "arms": list(state[:3])})
            run.progress(step, STEPS, {"value": state[0]})
            run.checkpoint(step, lambda file, state=state: file.write(state))
        run.save("final", lambda file: file.write(state))
        done()
        run.finish()


def fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a new process, and return the process's id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(pids: Iterable[int]) -> list[int]:
    """Return how the processes ended: 0 is well, -9 is killed."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def kill_at(instant: int) -> None:
    """Have this process kill itself just before its n-th operation on files, or in the middle of a write."""
    left = instant

    def tick(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sync, write = os.fsync, files.SummingWriter.write

    def ticking_sync(descriptor: int) -> None:
        tick()
        sync(descriptor)

    def torn_write(self: files.SummingWriter, data: bytes) -> int:
        if isinstance(self._target, files.SummingWriter):  # which is torn itself
            return write(self, data)
        half = len(data) // 2
        written = write(self, data[:half])
        self._target.flush()  # type: ignore[attr-defined]
        tick()
        return written + write(self, data[half:])

    os.fsync = ticking_sync  # type: ignore[assignment]
    files.SummingWriter.write = torn_write  # type: ignore[method-assign]
    sys.addaudithook(lambda event, args: tick() if event in WATCHED else None)


def results(store: RunStore, spec: RunSpec) -> tuple[bytes, bytes]:
    folder = store.root / spec.run_id
    return (folder / "metrics.parquet").read_bytes(), (folder / "final").read_bytes()


def check(store: RunStore, spec: RunSpec) -> int:
    """Assert that a store is readable and consistent after a crash; return how many steps it has kept."""
    for record in store.status() if (store.root / "store.json").exists() else []:
        assert record.state in (State.PENDING, State.INTERRUPTED, State.DONE), record
        if record.state is not State.DONE:
            assert store.problems(record.run_id) == []
            return len(store.metrics(record.run_id).get("step", []))
    return 0


def reference(folder: Path) -> tuple[bytes, bytes]:
    store = RunStore(folder / "reference")
    assert wait([fork(lambda: train(store, spec_of(0)))]) == [0]
    return results(store, spec_of(0))


def every_instant(folder: Path) -> None:
    """Kill a run before each of its operations on files in turn; then let it resume and end."""
    expected = reference(folder)
    instant, kept, spec = 0, set(), spec_of(0)
    while True:
        instant += 1
        store = RunStore(folder / f"store-{instant}")
        code = wait([fork(lambda: (kill_at(instant), train(store, spec)))])[0]  # noqa: B023
        kept.add(check(store, spec))
        assert wait([fork(lambda: train(store, spec))]) == [0]  # noqa: B023
        assert results(store, spec) == expected, instant
        left = {path.name for path in (store.root / spec.run_id).iterdir() if not path.name.startswith("claim.")}
        assert left == {"spec.json", "status.json", "metrics.parquet", "final"}, (instant, left)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert instant > 60
    assert kept >= set(range(STEPS + 1)), kept
    print(f"{instant} instants")


def random_instants(folder: Path) -> None:
    """Kill a run at random times until it has ended, and start it again each time; many runs."""
    start = time.monotonic()
    expected, rng, kills, spec = reference(folder), random.Random(0), 0, spec_of(0)
    limit = time.monotonic() - start
    for number in range(25):
        store, kept, attempts = RunStore(folder / f"store-{number}"), 0, 0
        while not is_done(store, spec):
            attempts += 1
            pid = fork(lambda: train(store, spec))  # noqa: B023
            time.sleep(rng.uniform(0, limit * attempts / 4))  # a random instant; later ones let it end
            os.kill(pid, signal.SIGKILL)
            kills += wait([pid]) != [0]
            if not is_done(store, spec):
                kept, before = check(store, spec), kept
                assert kept >= before  # what was checkpointed is never lost
        assert results(store, spec) == expected
    print(f"{kills} kills")


def is_done(store: RunStore, spec: RunSpec) -> bool:
    return (store.root / spec.run_id).is_dir() and store.record(spec.run_id).state is State.DONE


def race(folder: Path, prepare: Callable[[RunStore, list[RunSpec]], object]) -> None:
    """Let four processes run the same fifty specs; each spec must be run exactly once."""
    store, specs = RunStore(folder / "store"), [spec_of(seed) for seed in range(50)]
    prepare(store, specs)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ready, go = os.pipe()

    def work() -> None:
        os.close(go)
        os.read(ready, 1)  # returns when the starter closes its end
        mine = RunStore(store.root)
        for spec in specs:
            train(mine, spec, lambda: os.write(log, f"{spec.run_id}\n".encode()))  # noqa: B023

    pids = [fork(work) for _ in range(4)]
    os.close(go)
    assert wait(pids) == [0] * 4
    lines = (folder / "log").read_text().splitlines()
    assert sorted(lines) == sorted(spec.run_id for spec in specs)
    assert [record.state for record in store.status()] == [State.DONE] * 50
    print(f"{len(lines)} runs")


def lock_and_die(store: RunStore, specs: list[RunSpec]) -> None:
    """Leave a lock of a dead process on every run."""

    def work() -> None:
        runs = [store.lock(spec) for spec in specs]
        assert all(runs)
        os.kill(os.getpid(), signal.SIGKILL)

    assert wait([fork(work)]) == [-signal.SIGKILL]
    assert {record.state for record in store.status()} == {State.INTERRUPTED}


def readers(folder: Path) -> None:
    """List a store while a process writes to it: nothing is ever seen half-written."""
    store, specs = RunStore(folder / "store"), [spec_of(seed) for seed in range(20)]
    store.add_all(specs)

    def write() -> None:
        for spec in specs:
            train(store, spec)

    started: set[str] = set()
    pid, seen = fork(write), 0
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        for record in store.status():
            assert record.state in (State.PENDING, State.RUNNING, State.DONE), record
            assert record.state is not State.PENDING or record.run_id not in started
            if record.state is not State.PENDING:
                started.add(record.run_id)
            if record.state is State.RUNNING:
                steps = store.metrics(record.run_id).get("step", [])
                assert steps == list(range(1, len(steps) + 1))
                seen += 1
    assert {record.state for record in store.status()} == {State.DONE}
    print(f"{seen} running runs seen")


TASKS: dict[str, Callable[[Path], object]] = {
    "every-instant": every_instant,
    "random-instants": random_instants,
    "race": lambda folder: race(folder, lambda store, specs: None),
    "race-for-added": lambda folder: race(folder, lambda store, specs: store.add_all(specs)),
    "race-for-stale": lambda folder: race(folder, lock_and_die),
    "readers": readers,
}


def load_once() -> None:
    """Load what every worker would have to load."""
    importlib.import_module("pyarrow.parquet")
    with contextlib.suppress(ImportError):
        importlib.import_module("pandas")


if __name__ == "__main__":
    load_once()
    TASKS[sys.argv[1]](Path(sys.argv[2]))
