"""The long form of the fault suite: `python -m tests.faults.soak [--minutes 30] [--seconds 60] [--runs 200]`.

Campaigns in which something is killed or stopped every few seconds, each compared byte for byte with the same runs
carried out in peace. The outcome is kept as JSON, and a page of the docs quotes it. When something is not as it should
be, the stores stay where they are, each with a log of what happened, and a line says where.

The two parts in which processes are stopped last as long as asked on a machine of any speed: their runs have as many
epochs as the time of one run tells.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.common import quoted
from headway.runs import RunSpec, RunStore, State
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.experiments import Context
from headway.runs.launchers import InProcess, Launcher
from headway.runs.provenance import code_fingerprint
from headway.runs.ray import RayLauncher
from headway.runs.text import last_line
from headway.study.controlled import specs as controlled_specs
from headway.study.protocols.classification import Protocol
from tests.faults.campaigns import ROOT
from tests.faults.strikes import CAMPAIGNS, LEASE, s3_server, strike
from tests.faults.strikes import CONTEXT as STALLED_CONTEXT
from tests.faults.watching import Watch, every

FILES = ("metrics.parquet", "final.pt", "provenance.json")
CONTEXT = Context(keep_weights=True, checkpoint_seconds=0.0)
EPOCHS = 6
TIMED_EPOCHS = 200
STALLED_SHARE = 0.3
"""The part of the time in which a worker of the stalled parts trains; else it is stopped, being started or killed."""
SMALL = {"hidden": "8", "batch_size": "256", "test_batches": "1"}


@dataclass
class Outcome:
    """How a campaign went.

    Attributes:
        what: what was done to it.
        runs: how many runs it had.
        kills: how many processes or nodes were killed.
        losses: how many times that hit a run: it lost its worker, or found its newest checkpoint damaged.
        done: runs that are done in the end.
        identical: runs whose files are those of a campaign in peace, byte for byte.
        seconds: how long it took.
        date: when.
        code: the fingerprint of the code that it was done with.
        messages: what went wrong, in words.
    """

    what: str
    runs: int
    kills: int = 0
    losses: int = 0
    done: int = 0
    identical: int = 0
    seconds: float = 0.0
    date: str = ""
    code: str = ""
    messages: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether every run is as in peace although some were hit: kills that hit nothing prove nothing."""
        return self.done == self.identical == self.runs and self.kills > 0 and self.losses > 0


def tiny(number: int, epochs: int = EPOCHS) -> list[RunSpec]:
    """Runs of the controlled study, a second or less each unless they have more epochs."""
    protocol, conditions, signals = Protocol.demo().override(SMALL), ["noise", "curriculum"], ["gmc", "delta_loss"]
    by_seed = [controlled_specs(["digits"], conditions, signals, [seed], protocol, epochs) for seed in range(number)]
    return [spec for specs in by_seed for spec in specs][:number]


def epochs_that_take(seconds: float, folder: Path) -> int:
    """How many epochs a run needs to take so long in one process of this machine."""
    taken = []
    for name, epochs in (("warm-up", 1), ("timed", TIMED_EPOCHS)):
        began = time.monotonic()
        _conduct(RunStore(folder / name), tiny(1, epochs), InProcess(), Watch(), STALLED_CONTEXT)
        taken.append(time.monotonic() - began)
    return max(EPOCHS, round(seconds * TIMED_EPOCHS / taken[1]))


def compare(store: RunStore, peace: RunStore, specs: Sequence[RunSpec], outcome: Outcome) -> Outcome:
    """Count what is done, and what is the same as in peace."""
    for spec in specs:
        record = store.record(spec.run_id)
        if record.state is not State.DONE:
            why = (record.status.error if record.status else "") or record.reason
            outcome.messages.append(f"{spec.run_id}: {record.state} {last_line(why)}".strip())
            continue
        outcome.done += 1
        names = [name for name in FILES if store.read_file(spec.run_id, name) != peace.read_file(spec.run_id, name)]
        problems = [*(f"another {name} than in peace" for name in names), *store.problems(spec.run_id)]
        outcome.identical += not problems
        outcome.messages += [f"{spec.run_id}: {problem}" for problem in problems]
    return outcome


def ray_workers(folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    """A worker of a Ray cluster is killed every three seconds."""
    outcome = Outcome("a Ray worker killed every 3 s, two workers", len(specs))
    store, chance = RunStore(folder / "ray"), random.Random(0)

    def kill() -> None:
        deadline = time.monotonic() + 3.0
        while time.monotonic() < deadline:  # between two tiny runs there is nobody to kill for a moment
            pids = list(watch.pids.values())
            if pids and _kill(victim := chance.choice(pids)):
                outcome.kills += 1
                watch.note(f"killed {victim}")
                return
            time.sleep(0.01)
        watch.note("nobody to kill")

    watch = Watch(folder / "ray.log")
    with every(3.0, kill, seconds, lambda: bool(watch.pids)):
        _conduct(store, specs, RayLauncher(workers=2), watch)
    outcome.losses = watch.losses
    return compare(store, peace, specs, outcome)


def ray_nodes(folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    """A node of a Ray cluster is lost every five seconds, with its worker, and another joins; the store has a URL."""
    from ray.cluster_utils import Cluster

    outcome = Outcome("a Ray node lost every 5 s and a new one joining, store behind a URL", len(specs))
    store = RunStore(f"file://{folder}/bucket/nodes")
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

    watch = Watch(folder / "nodes.log", act=lose, every=5.0, until=seconds)
    try:
        _conduct(store, specs, RayLauncher(address=cluster.address), watch)
    finally:
        cluster.shutdown()
    outcome.losses = watch.losses
    return compare(store, peace, specs, outcome)


def whole_campaign(folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    """The campaign itself is killed with all of its processes, at an instant that is drawn, and started again."""
    outcome = Outcome("the whole campaign killed at random instants, two workers", len(specs))
    store, chance = RunStore(folder / "local"), random.Random(1)
    hits: set[tuple[str, int]] = set()
    deadline = math.inf
    while True:
        process = _start_campaign(store, len(specs), folder / "local.log")
        while process.poll() is None and not _under_way(store, State.RUNNING):
            time.sleep(0.05)
        deadline = min(deadline, time.monotonic() + seconds)
        try:
            process.wait(chance.uniform(0, 3) if time.monotonic() < deadline else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            outcome.kills += 1
            hits |= _under_way(store, State.RUNNING, State.INTERRUPTED)  # the system may not have noticed yet
            continue
        outcome.losses = len(hits)
        if process.returncode:
            outcome.messages.append(f"the campaign ended with exit code {process.returncode}")
        return compare(store, peace, specs, outcome)


def _start_campaign(store: RunStore, runs: int, log: Path) -> subprocess.Popen[bytes]:
    """Start this module as a campaign in a process group of its own."""
    command = [sys.executable, "-m", "tests.faults.soak", "--campaign", str(store.root), "--runs", str(runs)]
    with log.open("ab") as file:
        return subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)


def _under_way(store: RunStore, *states: State) -> set[tuple[str, int]]:
    """The runs in certain states, each with the number of its attempt."""
    records = store.status() if store.exists() else []
    return {(record.run_id, record.status.attempt) for record in records if record.status and record.state in states}


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
    _conduct(store, specs, InProcess(), Watch(folder / "damaged.log"))
    noted = (record.status.note for record in store.status() if record.status)
    outcome.losses = sum("resumed from" in note or "started from" in note for note in noted)
    return compare(store, peace, specs, outcome)


def stalled_folder(folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    """Processes of two campaigns are killed, stopped for one to three leases, asked to end; the store is a folder."""
    return _stalled("a folder", str(folder / "stalled"), folder, peace, specs, seconds)


def stalled_url(folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    """The same behind a URL of S3."""
    with s3_server() as url:
        return _stalled("a store behind a URL (S3)", f"{url}/runs", folder, peace, specs, seconds)


def _stalled(what: str, place: str, folder: Path, peace: RunStore, specs: list[RunSpec], seconds: float) -> Outcome:
    names = folder / "specs.jsonl"
    names.write_text("".join(json.dumps(spec.to_dict()) + "\n" for spec in specs))
    strikes = strike(place, names, folder / f"{what.split()[1]}.log", seconds, seed=len(what))
    signals = ", ".join(f"{number} x {name}" for name, number in sorted(strikes.done.items()))
    outcome = Outcome(
        f"two campaigns on {what}, lease {LEASE:.0f} s: {signals}", len(specs), sum(strikes.done.values())
    )
    outcome.messages.append(f"slowest end after SIGTERM or Ctrl-C: {strikes.slowest_stop:.1f} s")
    store = RunStore(place, LEASE)
    outcome.losses = sum(record.status.attempt - 1 for record in store.status() if record.status)
    return compare(store, peace, specs, outcome)


class _Once:
    """Attempts each run once, whatever comes of it."""

    def launch(self, job: Any, notify: Any, stop: Any) -> None:
        from headway.runs.attempt import attempt

        for spec in job.specs:
            notify(attempt(job.store, spec, job.context, notify))


def _conduct(
    store: RunStore, specs: list[RunSpec], launcher: Launcher, watch: Watch, context: Context = CONTEXT
) -> None:
    run_campaign(Campaign(specs, store, context), launcher, watch)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


HALVES = ("stalled_folder", "stalled_url")
"""The parts that share `--minutes`."""
PARTS = {
    part.__name__: part
    for part in (stalled_folder, stalled_url, ray_workers, ray_nodes, whole_campaign, damaged_checkpoints)
}


def _in_peace(folder: Path, specs: list[RunSpec], context: Context = CONTEXT) -> RunStore:
    """Carry runs out in this process, with nothing done to them."""
    store, began = RunStore(folder), time.monotonic()
    _conduct(store, specs, InProcess(), Watch(), context)
    epochs = specs[0].params["epochs"]
    print(f"{len(specs)} runs of {epochs} epochs in peace: {time.monotonic() - began:.0f} s", flush=True)
    return store


def soak(
    runs: int, seconds: float, minutes: float, parts: Sequence[str] = tuple(PARTS), keep: bool = False
) -> dict[str, Any]:
    """Carry out everything; return what came of it. The folder with the stores is kept unless all is well.

    Args:
        runs: how many: for the stalled parts together, and for each of the Ray parts; the others have a quarter.
        seconds: of kills in each of the other parts.
        minutes: of the stalled parts together.
        parts: what is done.
        keep: keep the folder in any case.
    """
    folder = Path(tempfile.mkdtemp(prefix="headway-soak-"))
    outcomes: list[Outcome] = []
    code = code_fingerprint()  # now, because the files may change meanwhile
    half, half_seconds = max(1, runs // len(HALVES)), minutes * 60 / len(HALVES)
    if set(parts) & set(HALVES):
        epochs = epochs_that_take(STALLED_SHARE * CAMPAIGNS * half_seconds / half, folder)
        long = tiny(half, epochs)
        long_peace = _in_peace(folder / "long-peace", long, STALLED_CONTEXT)
    if set(parts) - set(HALVES):
        short = tiny(runs)
        short_peace = _in_peace(folder / "peace", short)
    for name in parts:
        began = time.monotonic()
        if name in HALVES:
            outcome = PARTS[name](folder, long_peace, long, half_seconds)
        else:
            share = short if name.startswith("ray") else short[: max(4, runs // 4)]
            outcome = PARTS[name](folder, short_peace, share, seconds)
        outcome.seconds, outcome.date = round(time.monotonic() - began, 1), date.today().isoformat()
        outcome.code = code
        outcomes.append(outcome)
        print("\n  ".join([row(asdict(outcome)), *outcome.messages]), flush=True)
    if keep or not all(outcome.is_good for outcome in outcomes):
        print(f"stores and logs are kept in {folder}", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "parts": {name: asdict(outcome) for name, outcome in zip(parts, outcomes, strict=True)},
    }


def merged(before: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """A result with the parts of an earlier one that it does not have itself."""
    parts = {**before.get("parts", {}), **result["parts"]}
    return {**result, "parts": {name: parts[name] for name in PARTS if name in parts}}


def row(part: dict[str, Any]) -> str:
    """A line of the table in the docs."""
    cells = [part["what"], *(part[name] for name in ("runs", "kills", "losses", "done", "identical"))]
    return f"| {' | '.join(map(str, cells))} | {part['seconds']:.0f} s | {part['date']}, {part['code']} |"


def table(result: dict[str, Any]) -> str:
    """What the docs quote."""
    lines = [
        f"Measured by `make soak`: {result['machine']}.",
        "",
        "| what was done | runs | strikes | runs hit | done | identical | time | measured on, code |",
        "|---|---|---|---|---|---|---|---|",
        *(row(part) for part in result["parts"].values()),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="the long form of the fault suite")
    parser.add_argument("--minutes", type=float, default=30.0, help="of the two stalled parts together")
    parser.add_argument("--seconds", type=float, default=60.0, help="of kills, in each other part")
    parser.add_argument("--runs", type=int, default=200, help="of the two stalled parts together, and of each Ray part")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only some parts")
    parser.add_argument("--keep", action="store_true", help="keep the stores and logs also when all is well")
    parser.add_argument("--out", type=Path, help="where the outcome goes, as JSON")
    parser.add_argument("--docs", type=Path, help="the page that quotes it")
    parser.add_argument("--campaign", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.campaign:  # the campaign that is to be killed
        specs = tiny(options.runs)
        return 0 if run_campaign(Campaign(specs, RunStore(options.campaign), CONTEXT)).is_complete() else 1
    result = soak(options.runs, options.seconds, options.minutes, options.parts, options.keep)
    is_good = all(Outcome(**part).is_good for part in result["parts"].values())
    if not is_good:
        return 1  # what went wrong is not quoted
    if options.out:
        before = json.loads(options.out.read_text()) if options.out.exists() else {}
        result = merged(before if isinstance(before.get("parts"), dict) else {}, result)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    if options.docs:
        options.docs.write_text(quoted(options.docs.read_text("utf-8"), "soak", table(result)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
