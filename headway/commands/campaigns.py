"""What all `headway run` commands share: their options, the dry run, the campaign and its last words."""

from __future__ import annotations

import argparse
import math
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.commands.datasets import find_data
from headway.commands.jobs import DEFAULT_OUT, add_sharing_arguments, choose, print_jobs
from headway.errors import UsageError
from headway.runs import RunRecord, RunSpec, State
from headway.runs.address import Place, Url, open_store, parse_new_folder, parse_place
from headway.runs.campaign import Campaign, default_workers, left_over, run_campaign
from headway.runs.context import WEIGHTS_FILE, Context
from headway.runs.launchers import Request, cores, known_launchers, make_named_launcher
from headway.runs.output import complain, emit
from headway.runs.plan import Estimator, Plan, look_up, make_plan
from headway.runs.progress import CampaignProgress, Outcome
from headway.runs.stopping import STALL_SECONDS
from headway.runs.tensorboard import Mirror, mirrored
from headway.runs.text import aligned, count, dataset_of, duration, label, length_of

FAILED, INTERRUPTED = 1, 130
_SHOWN_FAILURES = 10


def add_campaign_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where and how runs are carried out."""
    add = parser.add_argument
    add("--out", type=parse_place, default=DEFAULT_OUT, metavar="DIR", help="the run store: a folder or a URL")
    add("--workers", type=whole(0), metavar="N", help="processes; 0 runs in this one (default: one per core)")
    add("--launcher", default="local", metavar="NAME", help=f"who carries out the runs: {', '.join(known_launchers())}")
    add("--address", metavar="HOST:PORT", help="of the cluster (default: the one at hand, or one of this machine)")
    add("--cpus-per-run", type=above_zero, metavar="X", help="cores that a run gets on a cluster")
    add("--gpus-per-run", type=above_zero, metavar="X", help="GPUs that a run gets on a cluster; 0.25 shares one")
    add("--runs-per-gpu", type=whole(1), metavar="N", help="runs that share a GPU; with --device cuda")
    add("--data-dir", type=Path, metavar="DIR", help="where datasets are looked for first")
    add("--device", default="cpu", metavar="NAME", help="where tensors live, such as cpu or cuda:0")
    add("--keep-weights", action="store_true", help="keep the final weights with each run")
    add(
        "--checkpoint-seconds",
        type=above_zero,
        default=10.0,
        metavar="S",
        help="the least time between two checkpoints",
    )
    add(
        "--stall-seconds",
        type=above_zero,
        default=STALL_SECONDS,
        metavar="S",
        help="say that a run stands still after so long without progress",
    )
    add("--tensorboard", type=parse_new_folder, metavar="DIR", help="also write the metrics for TensorBoard")
    add("--retry-failed", action="store_true", help="run again what has failed before")
    add("--dry-run", action="store_true", help="only list the runs, and guess how long they take")
    add_sharing_arguments(parser)


def whole(least: int) -> Callable[[str], int]:
    """A reader of whole numbers for argparse."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
        return number

    return read


def above_zero(text: str) -> float:
    """A reader of numbers above zero for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number


@dataclass(frozen=True)
class Prepared:
    """The runs that a command is to carry out, with their data at hand.

    Attributes:
        specs: the runs.
        options: how they are carried out, by the options of `add_campaign_arguments`.
        why_no_estimate: why a dry run cannot guess how long the runs take; empty if it can.
    """

    specs: Sequence[RunSpec]
    options: argparse.Namespace
    why_no_estimate: str


def conduct(specs: Sequence[RunSpec], options: argparse.Namespace) -> int:
    """Prepare runs and carry them out, or only list them; return the exit code."""
    return carry_out(prepare(specs, options))


def prepare(specs: Sequence[RunSpec], options: argparse.Namespace) -> Prepared:
    """Choose a command's runs, and have the data of those that are not over on this machine.

    What runs nothing, a dry run or printed jobs, only looks for the data.

    Args:
        specs: all runs that the options mean.
        options: the parsed options.

    Raises:
        UsageError: there is no run of an id, or a batch would be larger than its dataset.
        HeadwayError: a dataset cannot be had, or the store cannot be read.
    """
    chosen = choose(specs, options.shard, options.only)
    left = left_over(Campaign(chosen, open_store(options.out), retry_failed=options.retry_failed))
    missing = find_data(left, options.data_dir, download=not (options.dry_run or options.print_jobs))
    return Prepared(chosen, options, missing)


def carry_out(prepared: Prepared) -> int:
    """Carry out runs that are prepared, or only list them; return the exit code.

    Raises:
        UsageError: there is no such device.
        HeadwayError: something is wrong that concerns every run.
    """
    specs, options = prepared.specs, prepared.options
    store = open_store(options.out)
    if options.print_jobs:
        return print_jobs(specs, store, options.command_line)
    launcher = make_named_launcher(options.launcher, _request(options))
    device = options.device if options.launcher != "local" else _device(options.device)
    threads = _threads(len(specs), options)
    context = Context(options.data_dir, device, options.keep_weights, options.checkpoint_seconds, threads=threads)
    campaign = Campaign(specs, store, context, options.retry_failed)
    if options.dry_run:
        return _rehearse(campaign, options.workers, prepared.why_no_estimate)
    _first_words(campaign, options)
    mirror = Mirror(campaign.store, options.tensorboard) if options.tensorboard else None
    try:
        tally = run_campaign(campaign, launcher, mirrored(mirror) if mirror else None)
        if mirror and tally.is_complete():
            mirror.catch_up(campaign.specs)
    except KeyboardInterrupt:
        complain("headway: stopped at once; the same command resumes from the last checkpoints")
        return INTERRUPTED
    return _last_words(tally, options.out)


def _request(options: argparse.Namespace) -> Request:
    names = ("workers", "device", "address", "cpus_per_run", "gpus_per_run", "runs_per_gpu", "stall_seconds")
    return Request(**{name: getattr(options, name) for name in names}, count_gpus=_count_gpus)


def _count_gpus() -> int:
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def _threads(runs: int, options: argparse.Namespace) -> int:
    """The cores that each run may use: those that it asked for on a cluster, or those that its workers leave here."""
    if options.launcher != "local":
        return max(1, int(options.cpus_per_run or 1))
    workers = default_workers(runs) if options.workers is None else options.workers
    return max(1, cores() // max(1, workers))


def _device(name: str) -> str:
    """Check that there is such a device, before any run fails for want of it."""
    if name == "cpu":
        return name
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for the device
        raise UsageError(f"expected a device of this machine, got {name!r} ({str(error).splitlines()[0]})") from error
    return name


def _rehearse(campaign: Campaign, workers: int | None, why_no_estimate: str) -> int:
    records = look_up(campaign.store, campaign.specs)
    left = sum(record.state is not State.DONE for record in records)
    workers = default_workers(left) if workers is None else workers
    estimate = None if why_no_estimate else Estimator(campaign.context)
    plan = make_plan(records, campaign.specs, workers, campaign.retry_failed, estimate)
    _print_plan(plan, campaign.specs, why_no_estimate)
    return 0


def _print_plan(plan: Plan, specs: Sequence[RunSpec], why_no_estimate: str) -> None:
    rows = [("run", "dataset", "condition", "method", "seed", "length", "state")]
    for spec, record in zip(specs, plan.records, strict=True):
        names = (dataset_of(spec), spec.condition, spec.method, str(spec.seed), length_of(spec))
        rows.append((spec.run_id, *names, record.state.value))
    emit(aligned(rows))
    states = Counter(record.state.value for record in plan.records)
    counts = ", ".join(f"{number} {state}" for state, number in states.items())
    time = why_no_estimate and f"no estimate of the time: {why_no_estimate}"
    guess = f"about {duration(plan.total_seconds())} with {count(max(1, plan.workers), 'worker')}"
    emit(f"{count(len(specs), 'run')}: {counts}; {time or guess}")


def _first_words(campaign: Campaign, options: argparse.Namespace) -> None:
    """Say what is about to happen."""
    records = look_up(campaign.store, campaign.specs)
    over = Counter(record.state for record in records)
    done, failed = over[State.DONE], 0 if campaign.retry_failed else over[State.FAILED]
    left = len(records) - done - failed
    before = "".join(f", {number} {word} before" for number, word in ((done, "done"), (failed, "failed")) if number)
    emit(f"{count(len(records), 'run')} in {options.out}{before}; {left} to go {_how(options, left)}")
    if options.keep_weights and (bare := sum(map(_has_no_weights, records))):
        emit(f"--keep-weights: {count(bare, 'run')} done before without it; only with another --out are weights kept")


def _has_no_weights(record: RunRecord) -> bool:
    return record.state is State.DONE and record.status is not None and WEIGHTS_FILE not in record.status.files


def _how(options: argparse.Namespace, left: int) -> str:
    """Who carries out the runs, in words."""
    if options.launcher != "local":
        return f"by {options.launcher}" + (f" at {options.address}" if options.address else "")
    workers = default_workers(left) if options.workers is None else options.workers
    return f"with {count(workers, 'worker')}" if workers else "in this process"


def _last_words(tally: CampaignProgress, out: Place) -> int:
    """Say how a campaign ended and what to do next; return the exit code."""
    done, before = tally.count(Outcome.DONE), tally.count(Outcome.DONE, here=False)
    failures = tally.failures()
    parts = [f"{done} done" + (f" ({before} before)" if before else ""), f"{len(failures)} failed" if failures else ""]
    emit(f"{count(len(tally.specs), 'run')} in {out}: {', '.join(filter(None, parts))}")
    if failures:
        _complain(tally, out)
    if not tally.is_complete():
        left = len(tally.specs) - done - len(failures)
        complain(f"headway: interrupted, {count(left, 'run')} left; the same command resumes")
        return INTERRUPTED
    fetch = f"headway fetch {shlex.quote(out)} FOLDER; headway report FOLDER" if isinstance(out, Url) else ""
    emit(f"what they say: {fetch or f'headway report {shlex.quote(str(out))}'}")
    return FAILED if failures else 0


def _complain(tally: CampaignProgress, out: Place) -> None:
    failures = tally.failures()
    lines = [f"headway: {len(failures)} of {count(len(tally.specs), 'run')} failed:"]
    for end in failures[:_SHOWN_FAILURES]:
        when = "" if end.here else " (before)"
        lines.append(f"  {end.run_id} {label(tally.specs[end.run_id])}{when}: {end.message}")
    if len(failures) > _SHOWN_FAILURES:
        lines.append(f"  and {len(failures) - _SHOWN_FAILURES} more")
    lines.append(f"see why: headway status {shlex.quote(str(out))} --failed")
    lines.append("run them again: the same command with --retry-failed")
    complain("\n".join(lines))
