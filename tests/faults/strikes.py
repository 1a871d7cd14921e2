"""Two campaigns of real training runs on one store, to which everything is done that signals can do.

`python -m tests.faults.strikes STORE SPECS LEASE` is one of the campaigns: the specs are lines of JSON in a file. The
variable `MACHINE` lets it and its workers take themselves for another machine than the other campaign, so that a
process that stands still loses its runs when its lease is over.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headway.runs import RunSpec, RunStore, State, locks
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.experiments import Context
from headway.runs.processes import LocalProcesses

ROOT = Path(__file__).parents[2]
MACHINE = "HEADWAY_TEST_MACHINE"
LEASE = 4.0
CAMPAIGNS = 2
CONTEXT = Context(keep_weights=True, checkpoint_seconds=0.5)
MOST_ROUNDS = 50
LOOK_SECONDS = 5.0

if __name__ in ("__main__", "__mp_main__") and MACHINE in os.environ:
    locks._this_machine = lambda: os.environ[MACHINE]  # type: ignore[assignment]


@dataclass
class Strikes:
    """Campaigns in process groups of their own, and what is done to them.

    Args:
        place: the store.
        specs: the file of the runs.
        log: where the campaigns write to.
        chance: what is done, and when.
    """

    place: str
    specs: Path
    log: Path
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    slowest_stop: float = 0.0
    _campaigns: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _continue_at: list[tuple[float, int]] = field(default_factory=list)

    def start(self, number: int) -> None:
        """Start a campaign; the same number is the same machine."""
        words = [sys.executable, "-m", "tests.faults.strikes", self.place, str(self.specs), str(LEASE)]
        environment = {**os.environ, MACHINE: f"machine-{number}", "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as file:
            self._campaigns[number] = subprocess.Popen(
                words, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def strike(self) -> None:
        """Do something to one of the campaigns that are under way."""
        number = self.chance.choice(list(self._campaigns))
        campaign = self._campaigns[number]
        workers = workers_of(campaign.pid)
        what = self.chance.choices(
            ["kill a worker", "stop a worker", "stop a campaign", "kill a campaign", "SIGTERM", "Ctrl-C"],
            [6, 8, 2, 1, 1, 1],
        )[0]
        if what.endswith("a worker") and not workers:
            return
        self.done[what] += 1
        pause = self.chance.uniform(1, 3) * LEASE
        match what:
            case "kill a worker":
                send(self.chance.choice(workers), signal.SIGKILL)
            case "stop a worker":
                self._stop(self.chance.choice(workers), pause)
            case "stop a campaign":
                for pid in (campaign.pid, *workers):
                    self._stop(pid, pause)
            case "kill a campaign":
                os.killpg(campaign.pid, signal.SIGKILL)
                campaign.wait()
            case _:
                began = time.monotonic()
                if self.chance.random() < 0.5 and workers:  # whatever its workers do
                    self._stop(self.chance.choice(workers), pause)
                send(campaign.pid, signal.SIGCONT)
                if what == "SIGTERM":
                    send(campaign.pid, signal.SIGTERM)
                else:
                    os.killpg(campaign.pid, signal.SIGINT)
                campaign.wait()
                self.slowest_stop = max(self.slowest_stop, time.monotonic() - began)

    def look_after(self) -> None:
        """Let those go on whose pause is over, and start campaigns again that have ended."""
        now = time.monotonic()
        for when, pid in [entry for entry in self._continue_at if entry[0] <= now]:
            self._continue_at.remove((when, pid))
            send(pid, signal.SIGCONT)
        for number, campaign in list(self._campaigns.items()):
            if campaign.poll() is not None:
                self.start(number)

    def end(self) -> None:
        """Let everybody go on and come to an end in peace."""
        for _, pid in self._continue_at:
            send(pid, signal.SIGCONT)
        for campaign in self._campaigns.values():
            campaign.wait()

    def _stop(self, pid: int, pause: float) -> None:
        if send(pid, signal.SIGSTOP):
            self._continue_at.append((time.monotonic() + pause, pid))


def strike(place: str, specs: Path, log: Path, seconds: float, seed: int) -> Strikes:
    """Strikes campaigns for so long, or until all runs are done; then let the rest be done in peace."""
    strikes = Strikes(place, specs, log, random.Random(seed))
    for number in range(CAMPAIGNS):
        strikes.start(number)
    store, wanted = RunStore(place, LEASE), [RunSpec.from_json(line) for line in specs.read_text().splitlines()]
    deadline, due, look = time.monotonic() + seconds, 0.0, 0.0
    while (now := time.monotonic()) < deadline:
        if now >= look:
            if all_done(store, wanted):
                break
            look = time.monotonic() + LOOK_SECONDS
        strikes.look_after()
        if now >= due:
            strikes.strike()
            due = time.monotonic() + strikes.chance.uniform(0.5, 4.0)
        time.sleep(0.1)
    strikes.end()
    for _ in range(MOST_ROUNDS):
        if all_done(store, wanted):
            break
        strikes.start(0)
        strikes.end()
    return strikes


def all_done(store: RunStore, specs: list[RunSpec]) -> bool:
    if not store.exists():
        return False
    states = {record.run_id: record.state for record in store.status()}
    return all(states.get(spec.run_id) is State.DONE for spec in specs)


def workers_of(pid: int) -> list[int]:
    """The worker processes of a campaign."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in read(file).split():
            found += [int(child)] if "spawn_main" in read(Path(f"/proc/{child}/cmdline")) else []
    return found


def read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # the process is gone
        return ""


def send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def s3_server() -> Iterator[str]:
    """A bucket on a server of this machine, for processes that are started meanwhile too."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {"FSSPEC_S3_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    settings |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        from fsspec.config import conf, set_conf_env

        set_conf_env(conf)
        boto3.client("s3", endpoint_url=settings["FSSPEC_S3_ENDPOINT_URL"]).create_bucket(Bucket="bucket")
        yield "s3://bucket"
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()


def main() -> int:
    place, specs, lease = sys.argv[1:]
    wanted = [RunSpec.from_json(line) for line in Path(specs).read_text().splitlines()]
    campaign = Campaign(wanted, RunStore(place, float(lease)), CONTEXT, retry_failed=True)
    return 0 if run_campaign(campaign, LocalProcesses(1, stall_seconds=LEASE)).is_complete() else 1


if __name__ == "__main__":
    sys.exit(main())
