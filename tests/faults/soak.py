"""The long form of the fault suite: `python -m tests.faults.soak [--seconds 60] [--runs 200] [--out FILE]`.

Four campaigns in which something is killed every few seconds, each compared byte for byte with the same runs carried
out in peace. The outcome is kept as JSON, and a page of the docs quotes it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from headway.experiments.base import Context
from headway.experiments.controlled import specs as controlled_specs
from headway.experiments.events import Ended, Event, Lost, Started
from headway.experiments.launchers import InProcess, Launcher
from headway.experiments.protocol import Protocol
from headway.experiments.runner import Campaign, run_campaign
from headway.experiments.tally import Tally
from headway.integrations.ray import RayLauncher
from headway.integrations.remote import RemoteStore
from headway.runs import RunSpec, RunStore, State
from tests.faults.campaigns import ROOT

MARKS = ("<!-- soak: begin -->", "<!-- soak: end -->")
FILES = ("metrics.parquet", "final.pt", "provenance.json")
CONTEXT = Context(keep_weights=True, checkpoint_seconds=0.0)
SMALL = {"hidden": "8", "batch_size": "256", "test_batches": "1"}


@dataclass
class Outcome:
    """How a campaign went.

    Attributes:
        what: what was done to it.
        runs: how many runs it had.
        kills: how many processes or nodes were killed.
        losses: how many times a run lost its worker.
        done: runs that are done in the end.
        identical: runs whose files are those of a campaign in peace, byte for byte.
        seconds: how long it took.
    """

    what: str
    runs: int
    kills: int = 0
    losses: int = 0
    done: int = 0
    identical: int = 0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return self.done == self.identical == self.runs and self.kills > 0


@dataclass
class Watch:
    """A display that keeps which processes work on runs, counts losses, and acts again and again from the first run on.

    Attributes:
        pids: the processes that work on runs, by run.
        losses: how many times a run lost its worker.
        act: what to do.
        every: seconds between two acts.
        until: seconds after which it acts no more.
    """

    pids: dict[str, int] = field(default_factory=dict)
    losses: int = 0
    act: Callable[[], object] = lambda: None
    every: float = math.inf
    until: float = 0.0
    _due: float = math.inf
    _end: float = math.inf

    def __call__(self, tally: Tally) -> Watch:
        self._tally = tally
        return self

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, event: Event) -> None:
        self._tally.apply(event)
        if isinstance(event, Started):
            self.pids[event.run_id] = event.pid
        elif isinstance(event, Lost | Ended):
            self.pids.pop(event.run_id, None)
            self.losses += isinstance(event, Lost)
        now = time.monotonic()
        if self._end == math.inf and self.pids:
            self._due, self._end = now + self.every, now + self.until
        if self._due <= now < self._end and self.pids:
            self.act()
            self._due = time.monotonic() + self.every


def tiny(number: int) -> list[RunSpec]:
    """Runs of the controlled study, a second or so each."""
    protocol, conditions, signals = Protocol.demo().override(SMALL), ["noise", "curriculum"], ["gmc", "delta_loss"]
    by_seed = [controlled_specs(["digits"], conditions, signals, [seed], protocol, 4) for seed in range(number)]
    return [spec for specs in by_seed for spec in specs][:number]


def compare(store: RunStore, peace: RunStore, specs: Sequence[RunSpec], outcome: Outcome) -> Outcome:
    """Count what is done, and what is the same as in peace."""
    for spec in specs:
        if store.record(spec.run_id).state is State.DONE:
            outcome.done += 1
            same = all(store.read_file(spec.run_id, name) == peace.read_file(spec.run_id, name) for name in FILES)
            outcome.identical += same and not store.problems(spec.run_id)
    return outcome


@contextmanager
def every(seconds: float, act: Callable[[], object], until: float, is_ready: Callable[[], bool]) -> Iterator[None]:
    """Do something again and again in a thread, for so long from when it is ready on."""
    over = threading.Event()

    def work() -> None:
        while not is_ready() and not over.wait(0.1):
            pass
        deadline = time.monotonic() + until
        while not over.wait(seconds) and time.monotonic() < deadline:
            act()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ray_workers(folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    """A worker of a Ray cluster is killed every three seconds."""
    outcome = Outcome("a Ray worker killed every 3 s, two workers", len(specs))
    store, chance = RunStore(folder / "ray"), random.Random(0)

    def kill() -> None:
        pids = list(watch.pids.values())
        outcome.kills += bool(pids) and _kill(chance.choice(pids))

    watch = Watch()
    with every(3.0, kill, seconds, lambda: bool(watch.pids)):
        _conduct(store, specs, RayLauncher(workers=2), watch)
    outcome.losses = watch.losses
    return compare(store, peace, specs, outcome)


def ray_nodes(folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    """A node of a Ray cluster is lost every ten seconds, with its worker, and another joins; the store has a URL."""
    from ray.cluster_utils import Cluster

    outcome = Outcome("a Ray node lost every 10 s and a new one joining, store behind a URL", len(specs))
    store = RemoteStore(f"file://{folder}/bucket/nodes")
    alert = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    small = {"object_store_memory": 100 * 2**20}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": alert, **small}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1, **small) for _ in range(2)]

    def lose() -> None:
        nodes.append(cluster.add_node(num_cpus=1, **small))
        gone = nodes.pop(0)
        workers = _children(gone.all_processes["raylet"][0].process.pid)
        cluster.remove_node(gone, allow_graceful=False)
        for pid in workers:
            _kill(pid)
        outcome.kills += 1

    watch = Watch(act=lose, every=10.0, until=seconds)
    try:
        _conduct(store, specs, RayLauncher(address=cluster.address), watch)
    finally:
        cluster.shutdown()
    outcome.losses = watch.losses
    return compare(store, peace, specs, outcome)


def whole_campaign(folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    """The campaign itself is killed with all of its processes, after a time that is drawn; then it is started again."""
    outcome = Outcome("the whole campaign killed at random instants, two workers", len(specs))
    store, chance = RunStore(folder / "local"), random.Random(1)
    deadline = time.monotonic() + seconds
    while True:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.soak", "--campaign", str(store.root), "--runs", str(len(specs))],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(chance.uniform(6, 16) if time.monotonic() < deadline else None)
            assert process.returncode == 0
            return compare(store, peace, specs, outcome)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            outcome.kills += 1
            if store.exists():
                outcome.losses += sum(record.state is State.INTERRUPTED for record in store.status())


def damaged_checkpoints(folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    """Runs are stopped after their second checkpoint, and the newest of each is damaged before they go on."""
    outcome = Outcome("every newest checkpoint damaged once", len(specs))
    store, chance = RunStore(folder / "damaged"), random.Random(2)
    for spec in specs:
        looks = iter(range(8))  # it stops in mid-epoch, which makes it write a checkpoint
        context = Context(
            keep_weights=True, checkpoint_seconds=0.0, should_stop=lambda looks=looks: next(looks, 9) >= 7
        )
        run_campaign(Campaign([spec], store, context), _Once(), Watch())
        newest = max((store.root / spec.run_id).glob("checkpoint.*"), key=lambda path: path.stat().st_mtime_ns)
        data = bytearray(newest.read_bytes())
        place = chance.randrange(len(data))
        data[place] ^= 1 << chance.randrange(8)
        newest.write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.3 else data)
        outcome.kills += 1
    _conduct(store, specs, InProcess(), Watch())
    return compare(store, peace, specs, outcome)


class _Once:
    """Attempts each run once, whatever comes of it."""

    def launch(self, job: Any, tell: Any, stop: Any) -> None:
        from headway.experiments.attempt import attempt

        for spec in job.specs:
            tell(attempt(job.store, spec, job.context, tell))


def _conduct(store: RunStore, specs: list[RunSpec], launcher: Launcher, watch: Watch) -> None:
    tally = run_campaign(Campaign(specs, store, CONTEXT), launcher, watch)
    for failure in tally.failures():
        print(f"  failed: {failure.run_id}: {failure.message}", flush=True)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def soak(runs: int, seconds: float) -> dict[str, Any]:
    """Carry out everything; return what came of it."""
    parts = (ray_workers, ray_nodes, whole_campaign, damaged_checkpoints)
    outcomes = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        specs, peace = tiny(runs), RunStore(Path(folder) / "peace")
        began = time.monotonic()
        _conduct(peace, specs, InProcess(), Watch())
        quiet = time.monotonic() - began
        print(f"{runs} runs in peace, in one process: {quiet:.0f} s", flush=True)
        for part in parts:
            share = specs if part is ray_workers else specs[: max(4, runs // 4)]
            began = time.monotonic()
            outcome = part(Path(folder), peace, share, seconds)
            outcome.seconds = round(time.monotonic() - began, 1)
            outcomes.append(outcome)
            print(row(asdict(outcome)), flush=True)
    return {
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "seconds_of_kills": seconds,
        "seconds_in_peace": round(quiet, 1),
        "is_good": all(outcome.is_good for outcome in outcomes),
        "parts": [asdict(outcome) for outcome in outcomes],
    }


def row(part: dict[str, Any]) -> str:
    """A line of the table in the docs."""
    numbers = (part[name] for name in ("runs", "kills", "losses", "done", "identical"))
    return f"| {part['what']} | {' | '.join(map(str, numbers))} | {part['seconds']:.0f} s |"


def table(result: dict[str, Any]) -> str:
    """What the docs quote."""
    lines = [
        f"Last soak: {result['date']}, {result['machine']}; {result['seconds_of_kills']:.0f} s of kills in each part, "
        f"{result['parts'][0]['runs']} runs in peace in {result['seconds_in_peace']:.0f} s.",
        "",
        "| what was done | runs | kills | runs hit | done | identical | time |",
        "|---|---|---|---|---|---|---|",
        *(row(part) for part in result["parts"]),
    ]
    return "\n".join(lines)


def quoted(text: str, result: dict[str, Any]) -> str:
    """A page of the docs with the table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    _, mark, after = rest.partition(MARKS[1])
    assert mark, f"expected a page with {MARKS[0]} and {MARKS[1]}"
    return f"{before}{MARKS[0]}\n{table(result)}\n{MARKS[1]}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description="the long form of the fault suite")
    parser.add_argument("--seconds", type=float, default=60.0, help="of kills, in each part")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", type=Path, help="where the outcome goes, as JSON")
    parser.add_argument("--docs", type=Path, help="the page that quotes it")
    parser.add_argument("--campaign", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.campaign:  # the campaign that is to be killed
        specs = tiny(options.runs)
        return 0 if run_campaign(Campaign(specs, RunStore(options.campaign), CONTEXT)).is_complete() else 1
    result = soak(options.runs, options.seconds)
    print(table(result))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    if options.docs:
        options.docs.write_text(quoted(options.docs.read_text("utf-8"), result), "utf-8")
    return 0 if result["is_good"] else 1


if __name__ == "__main__":
    sys.exit(main())
