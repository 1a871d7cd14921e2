"""Processes that are stopped for longer than their lease, run as a script: `python -m tests.runs.stalls KIND FOLDER`.

One process begins a run and stops itself (SIGSTOP) just before its n-th operation on the store, for every n at once,
each in a store of its own. Another process, which takes itself for another machine, waits for the lease, takes the runs
over and ends them. Then the stopped processes go on (SIGCONT). Whatever they were about to do, nothing may change.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.runs import RunStore, State, files, locks
from headway.runs.bucket import Bucket
from tests.runs.forks import WATCHED, fork, load_once, reference, spec_of, train, wait

LEASE = 0.3
OPERATIONS = ("put", "put_all", "put_file", "create", "get", "get_all", "get_file", "names", "remove")


def open_store(kind: str, folder: Path, number: int) -> RunStore:
    place = folder / f"store-{number}"
    return RunStore(place, LEASE) if kind == "folder" else RunStore(f"file://{place}", LEASE)


def be_another_machine(name: str) -> None:
    """Two machines are not to be had here; all that differs is what a lock says about its process."""
    locks._this_machine = lambda: name  # type: ignore[assignment]


def stop_at(kind: str, instant: int) -> None:
    """Have this process stop itself just before its n-th operation, with all of its threads."""
    left = instant

    def tick() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)

    def ticking(act: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            tick()
            return act(*arguments, **options)

        return wrapped

    if kind == "folder":
        os.fsync = ticking(os.fsync)
        files.SummingWriter.write = ticking(files.SummingWriter.write)  # type: ignore[method-assign]
        sys.addaudithook(lambda event, _: tick() if event in WATCHED else None)
    else:
        for name in OPERATIONS:
            setattr(Bucket, name, ticking(getattr(Bucket, name)))


def begin(kind: str, store: RunStore, instant: int) -> int:
    def work() -> None:
        be_another_machine("stalled")
        store.add(spec_of(0))
        lock, begun = type(store).lock, []

        def lock_then_stop(self: RunStore, *arguments: Any, **options: Any) -> Any:
            if not begun:
                begun.append(True)
                stop_at(kind, instant)
            return lock(self, *arguments, **options)

        type(store).lock = lock_then_stop  # type: ignore[method-assign]
        try:
            train(store, spec_of(0))
        except Exception as error:
            if type(error).__name__ != "LockLostError":
                raise
            os._exit(3)

    return fork(work)


def is_stopped(pid: int) -> bool | None:
    """Whether a process has stopped; None if it has ended."""
    done, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
    if not done:
        return False
    return True if os.WIFSTOPPED(status) else None


def stop_all(kind: str, folder: Path) -> tuple[dict[int, int], list[RunStore]]:
    """Processes that have stopped, each at another instant, until one has ended without stopping."""
    stopped: dict[int, int] = {}
    stores: list[RunStore] = []
    while True:
        instant = len(stores) + 1
        store = open_store(kind, folder, instant)
        pid = begin(kind, store, instant)
        stores.append(store)
        while (outcome := is_stopped(pid)) is False:
            time.sleep(0.002)  # what is waited for is another process
        if outcome is None:
            return stopped, stores
        stopped[instant] = pid


def take_over(stores: list[RunStore]) -> None:
    """End all runs as another machine would: those whose holder is silent, when its lease is over."""
    be_another_machine("successor")
    left = list(stores)
    while left:
        for store in left:
            train(store, spec_of(0))
        left = [store for store in left if store.record(spec_of(0).run_id).state is not State.DONE]
        time.sleep(LEASE / 10)


def seen(store: RunStore) -> tuple[Any, ...]:
    """All that a reader gets to see of a run."""
    run_id, other = spec_of(0).run_id, type(store)(*store.__reduce__()[1])
    record = other.record(run_id)
    assert record.status is not None
    parts = [other.read_file(run_id, name) for name in sorted(record.status.files)]
    return record.state, record.status.attempt, record.status.to_json(), parts, other.problems(run_id)


def every_instant(kind: str, folder: Path) -> None:
    expected = reference(folder)
    stopped, stores = stop_all(kind, folder)
    assert len(stopped) > 30, len(stopped)
    assert wait([fork(lambda: take_over(stores))]) == [0]
    before = [seen(store) for store in stores]
    for pid in stopped.values():
        os.kill(pid, signal.SIGCONT)
    codes = dict(zip(stopped, wait(stopped.values()), strict=True))
    assert set(codes.values()) <= {0, 3}, codes  # it has noticed, or there was nothing left to write
    for instant, (store, was) in enumerate(zip(stores, before, strict=True), start=1):
        now = seen(store)
        assert now == was, (instant, codes.get(instant), now, was)
        assert now[0] is State.DONE
        assert tuple(now[3]) == (expected[1], expected[0]), instant
        assert now[4] == []
    print(json.dumps({"instants": len(stopped), "noticed": sum(code == 3 for code in codes.values())}))


if __name__ == "__main__":
    load_once()
    every_instant(sys.argv[1], Path(sys.argv[2]))
