"""What a campaign costs beside its runs: `python benchmarks/campaign.py [--runs 1000] [--listed 10000] [--out FILE]`.

Carries out runs of one step through the local launcher, lists a store with many runs, and compares the times with what
the project promises: 20 runs per second on two cores, and 10,000 runs listed in under 3 s. `--ray` measures the same
runs on a Ray cluster of this machine as well. Processor time is given beside the clock's, because a busy machine
stretches only the latter. The exit code is 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.common import quoted, write_json
from headway.analysis.table import Table
from headway.runs import Run, RunSpec, RunStore
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.display import PlainDisplay
from headway.runs.experiments import Context, register_experiment
from headway.runs.launchers import Launcher
from headway.runs.processes import LocalProcesses
from headway.study.protocols.classification import Protocol

NAME = "campaign-benchmark"
LEAST_PER_SECOND = 20.0
MOST_SECONDS = 3.0
STATUS = "import sys; from headway.commands.main import main; sys.exit(main(sys.argv[1:]))"
"""The command `headway`, as the installed script has it."""


def run(run: Run, context: Context) -> None:
    """One step: a row of metrics and a checkpoint."""
    run.restore()
    run.log({"step": 1, "loss": 0.5, "draw_share": [0.25, 0.25, 0.25, 0.25]})
    run.checkpoint(1, lambda file: file.write(bytes(1000)))
    run.progress(1, 1, {"loss": 0.5})
    run.finish()


def estimate(spec: RunSpec, context: Context) -> float:
    """Nothing to speak of."""
    return 0.01


def one_step_runs(number: int) -> list[RunSpec]:
    """Runs with as many settings as those of the controlled study."""
    protocol = Protocol.released().to_dict()
    return [RunSpec(experiment=NAME, method="none", seed=seed, protocol=protocol) for seed in range(number)]


def carry_out(launcher: Launcher, number: int, root: str | None) -> dict[str, float]:
    """Seconds of a campaign, from its first file to the last."""
    with tempfile.TemporaryDirectory(dir=root) as folder, Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        campaign = Campaign(one_step_runs(number), RunStore(Path(folder) / "runs"))
        tally, seconds = timed(lambda: run_campaign(campaign, launcher, lambda tally: PlainDisplay(tally, nowhere)))
        assert tally.is_complete()
        assert not tally.failures()
    return {"runs": number, "seconds": seconds, "runs_per_second": number / seconds}


def listing(number: int, root: str | None) -> dict[str, float]:
    """Seconds that `headway status` takes for a store of runs, nine of ten of them done; medians of five.

    The clock runs from the command's start to its end, with the imports and every line that it prints.
    """
    with tempfile.TemporaryDirectory(dir=root) as folder:
        store = RunStore(Path(folder) / "runs")
        make_store(store, number)
        command = [sys.executable, "-c", STATUS, "status", str(store.root)]
        times, work = [], []
        for _ in range(5):
            before = processor_seconds()
            result, seconds = timed(lambda: subprocess.run(command, capture_output=True, text=True, check=True))
            assert result.stdout.splitlines()[-1].startswith(f"{number} run"), result.stdout[-200:]
            times.append(seconds)
            work.append(processor_seconds() - before)
    return {"runs": number, "seconds": sorted(times)[2], "processor_seconds": sorted(work)[2]}


def processor_seconds() -> float:
    """Processor time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def make_store(store: RunStore, number: int) -> None:
    """A store as a study leaves it; without syncing, since nothing here has to last."""
    from headway.study.controlled import specs as controlled_specs  # imports torch, which no worker needs

    sync, os.fsync = os.fsync, lambda fd: None
    try:
        signals, conditions = ["gmc", "uniform", "curiosity", "norm_all", "norm_last"], ["noise", "curriculum"]
        seeds = range(-(-number // (len(signals) * len(conditions))))
        specs = controlled_specs(["mnist"], conditions, signals, seeds, Protocol.released())[:number]
        store.add_all(specs)
        for index, spec in enumerate(specs):
            if index % 10 and (claimed := store.lock(spec)):
                claimed.restore()
                claimed.log({"epoch": 1, "test_loss_mean": 0.5})
                claimed.progress(100, 100, {"test": 0.5})
                claimed.save("provenance.json", lambda file: file.write(b"{}"))
                claimed.finish()
    finally:
        os.fsync = sync


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and the seconds that it takes."""
    start = time.perf_counter()
    return act(), time.perf_counter() - start


def table(found: dict[str, Any]) -> str:
    """What the docs quote."""
    local, listing = found["local"], found["listing"]
    busy = f"load {found['load']:.1f} from other work" if found["load"] > found["cores"] + 1 else "otherwise idle"
    rows = [
        (
            f"{local['runs']:.0f} one-step runs, local launcher, {found['workers']} workers",
            f"{local['runs_per_second']:.0f} runs/s",
            f"at least {LEAST_PER_SECOND:.0f}",
        )
    ]
    if "ray" in found:
        pace = found["ray"]["runs_per_second"]
        rows.append(("the same on a Ray cluster of this machine, with its start", f"{pace:.0f} runs/s", ""))
    seconds = f"{listing['seconds']:.2f} s, {listing['processor_seconds']:.2f} s of them at work"
    rows.append((f"`headway status` of {listing['runs']:.0f} runs", seconds, f"under {MOST_SECONDS:.0f} s"))
    measured = f"Measured on {found['date']}: {found['cores']} cores, Python {found['python']}, {busy}."
    return f"{measured}\n\n{Table(('what', 'measured', 'promised'), rows).markdown()}"


def broken_promises(found: dict[str, Any]) -> list[str]:
    """What was measured to be worse than promised, in words."""
    pace, seconds = found["local"]["runs_per_second"], found["listing"]["seconds"]
    broken = []
    if pace < LEAST_PER_SECOND:
        broken.append(f"expected at least {LEAST_PER_SECOND:.0f} runs/s with the local launcher, got {pace:.1f}")
    if seconds >= MOST_SECONDS:
        broken.append(f"expected the listing in under {MOST_SECONDS:.0f} s, got {seconds:.2f} s")
    return broken


def main() -> int:
    """Measure, print, and compare with the promises; return the exit code."""
    parser = argparse.ArgumentParser(description="what a campaign costs beside its runs")
    parser.add_argument("--runs", type=int, default=1_000, help="one-step runs to carry out")
    parser.add_argument("--workers", type=int, default=2, help="local processes")
    parser.add_argument("--listed", type=int, default=10_000, help="runs of the store that is listed")
    parser.add_argument("--ray", action="store_true", help="carry out the runs on a Ray cluster of this machine too")
    parser.add_argument("--root", help="where to make the temporary stores (default: the system's choice)")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--docs", type=Path, help="the page that quotes them")
    options = parser.parse_args()
    register_experiment(NAME, Path(__file__).stem)  # workers of every launcher find scripts beside this one
    found: dict[str, Any] = {"date": date.today().isoformat(), "python": platform.python_version()}
    found |= {"cores": os.cpu_count() or 1, "workers": options.workers, "load": os.getloadavg()[0]}
    found["local"] = carry_out(LocalProcesses(options.workers), options.runs, options.root)
    pace = found["local"]["runs_per_second"]
    print(f"local, {options.workers} workers: {pace:.0f} runs/s (at least {LEAST_PER_SECOND:.0f})")
    if options.ray:
        from headway.runs.ray import RayLauncher

        found["ray"] = carry_out(RayLauncher(workers=options.workers), options.runs, options.root)
        print(f"Ray, {options.workers} workers: {found['ray']['runs_per_second']:.0f} runs/s, with the cluster's start")
    found["listing"] = listing(options.listed, options.root)
    seconds, own = found["listing"]["seconds"], found["listing"]["processor_seconds"]
    print(f"status of {options.listed} runs: {seconds:.2f} s, {own:.2f} s of them at work (under {MOST_SECONDS:.0f} s)")
    if options.docs:
        options.docs.write_text(quoted(options.docs.read_text("utf-8"), "campaign", table(found)), "utf-8")
    write_json(options.out, found)
    broken = broken_promises(found)
    for problem in broken:
        print(problem, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
