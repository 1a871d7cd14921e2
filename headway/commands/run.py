"""The command `headway run`: carry out the runs of an experiment, of a campaign file, or single runs of a store."""

from __future__ import annotations

import argparse
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path

from headway.commands.campaign_file import read_campaign_file
from headway.commands.options import Place, RunOptions, Url, add_options, choose, given, named
from headway.data import load
from headway.errors import DataError, HeadwayError, MissingExtraError, UsageError
from headway.runs import RunRecord, RunSpec, RunStore, State
from headway.runs.campaign import Campaign, Plan, busy_text, make_plan, run_campaign
from headway.runs.experiments import WEIGHTS_FILE, Context, load_plugins, needed_datasets
from headway.runs.launchers import Launcher, LaunchOptions, cores, make_named_launcher
from headway.runs.progress import CampaignProgress, Outcome
from headway.runs.tensorboard import Mirror
from headway.runs.text import aligned, complain, count, dataset_of, duration, emit, label, length_of
from headway.study.requests import REQUESTS

FAILED, INTERRUPTED = 1, 130
_SHOWN_FAILURES = 10


@dataclass(frozen=True)
class SectionRuns:
    """Runs of one store that are to be carried out."""

    specs: Sequence[RunSpec]
    how: RunOptions  # where and how
    section: str = ""  # the section of a campaign file that they are; empty for those of a command line
    file: Path | None = None  # the campaign file

    def campaign(self, context: Context | None = None) -> Campaign:
        """The runs on their store."""
        return Campaign(self.specs, RunStore(self.how.out), context or Context(), self.how.retry_failed)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command: a subcommand for each experiment."""
    parser.description = "Carries out runs and keeps them in a store. The same command resumes, and skips what is done."
    add = parser.add_argument
    add("--campaign", type=Path, metavar="FILE", help="run a whole campaign file (TOML) instead")
    add("--section", action="extend", nargs="+", default=[], metavar="NAME", help="only these sections of the file")
    add("--lot", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    add_options(parser, RunOptions)
    experiments = parser.add_subparsers(title="experiments", metavar="EXPERIMENT")
    load_plugins()  # of installed packages: they may bring experiments
    for name in REQUESTS.names():
        request = REQUESTS.find(name)
        experiment = experiments.add_parser(name, help=request.summary, description=request.description)
        add_options(experiment, request)
        add_options(experiment, RunOptions)
        experiment.set_defaults(experiment=name, parser=experiment)


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Everything that can be known before is checked before the first run. A section that has trouble of its own, such as
    data that cannot be had, is reported and left out; the others are carried out.
    """
    values = given(RunOptions, options)
    how = RunOptions(**values | {name: tuple(values.get(name, ())) for name in ("only", "plugin")})
    busy = busy_text() if how.dry_run else ""
    troubled: list[str] = []
    plans: list[Plan] = []
    worst = 0
    try:
        work = _asked_for(options, how)
        missing: dict[int, str] = {}
        for number, each in enumerate(work):
            with _trouble_reported(each, troubled):
                missing[number] = _find_data(each)
        for number, why_no_estimate in missing.items():
            each = work[number]
            with _trouble_reported(each, troubled):
                if how.print_jobs:
                    _print_jobs(each)
                    continue
                if each.section:
                    emit(f"section {each.section}:")
                launcher = _launcher(how)
                campaign = each.campaign(_context(each))
                if how.dry_run:
                    plans.append(_dry_run(campaign, how, why_no_estimate))
                    continue
                _announce(campaign, each.how)
                mirror = Mirror(campaign.store, how.tensorboard, campaign.specs) if how.tensorboard else None
                with mirror or nullcontext():
                    progress = run_campaign(campaign, launcher, listen=mirror.notice if mirror else None)
                    if mirror and progress.is_complete():
                        mirror.catch_up()
                _show_studies(each)
                code = _conclude(progress, each.how.out)
                if code == INTERRUPTED:
                    return code
                worst = max(worst, code)
    except KeyboardInterrupt:
        complain("headway: stopped at once; the same command resumes from the last checkpoints")
        return INTERRUPTED
    if len(plans) > 1:
        emit(f"all sections: {_total(plans)}")
    if busy:
        complain(f"headway: {busy}")
    if len(work) > 1 and not (how.dry_run or how.print_jobs):
        emit(f"to see the results of all sections: headway report {shlex.quote(str(how.out))}")
    if troubled and len(work) > 1:
        complain(f"headway: {len(troubled)} of {len(work)} sections failed, see above: {', '.join(troubled)}")
    return max(worst, FAILED) if troubled else worst


@contextmanager
def _trouble_reported(work: SectionRuns, troubled: list[str]) -> Iterator[None]:
    """Report what is wrong with one section, so that the others go on; what is wrong with the command is raised."""
    try:
        yield
    except HeadwayError as error:
        if not work.section:
            raise
        if isinstance(error, UsageError):
            raise UsageError(f"{work.file}: {work.section}: {error}") from error
        troubled.append(work.section)
        complain(f"headway: section {work.section}: {error}")


# What is asked for


def _asked_for(options: argparse.Namespace, how: RunOptions) -> list[SectionRuns]:
    """The runs that the options mean."""
    load_plugins(how.plugin)
    experiment: str | None = getattr(options, "experiment", None)
    if options.lot:
        complain("headway run: --lot is called --section now")
    names = [*options.section, *options.lot]
    if options.campaign is not None and experiment is None:
        return _of_file(options.campaign, names, how)
    if experiment is not None and options.campaign is None and not names:
        request = REQUESTS.find(experiment)
        return [SectionRuns(choose(request.read(given(request, options)).specs(), how), how)]
    if how.only and experiment is None and not names:
        stored = named(how.only, {record.run_id: record for record in RunStore(how.out).status()})
        for record in stored:
            if record.spec is None:
                raise UsageError(f"expected a run that can be read, got {record.run_id}: {record.reason}")
        return [SectionRuns([record.spec for record in stored if record.spec], how)]
    got = "both" if experiment else "--section alone" if names else "neither"
    known = ", ".join(REQUESTS.names())
    raise UsageError(f"expected an experiment out of {known}, or --campaign FILE, got {got}")


def _of_file(path: Path, names: Sequence[str], how: RunOptions) -> list[SectionRuns]:
    """The runs of a campaign file; with `--only` those sections alone that have such runs."""
    file = read_campaign_file(path)
    how = replace(how, plugin=tuple(dict.fromkeys((*file.plugins, *how.plugin))))
    every = replace(how, only=())
    found = {section.name: choose(section.specs(), every) for section in file.choose(names)}
    named(how.only, {spec.run_id: spec for specs in found.values() for spec in specs})
    work = []
    for name, specs in found.items():
        chosen = [spec for spec in specs if spec.run_id in how.only] if how.only else specs
        if chosen or not how.only:
            work.append(SectionRuns(chosen, replace(how, out=how.out / name), name, path))
    return work


def _find_data(work: SectionRuns) -> str:
    """Have the data of the runs that are left on this machine; a dry run or printed jobs only look for them.

    Returns what is not there, in words.
    """
    how = work.how
    download = not (how.dry_run or how.print_jobs)
    campaign = work.campaign()
    largest: dict[str, int] = {}
    for spec, record in zip(campaign.specs, campaign.look_up(), strict=True):
        if campaign.end_of(record):
            continue
        for name in needed_datasets([spec]):
            largest[name] = max(largest.get(name, 0), int(str(spec.protocol.get("batch_size", 0))))
    missing = []
    for name, batch in largest.items():
        try:
            images = len(load(name, how.data_dir, download=download).train.labels)
        except DataError:
            if download:
                raise
            missing.append(name)
            continue
        if batch > images:
            raise UsageError(f"batch_size: expected at most the {images} images of {name}, got {batch}")
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not on this machine yet" if missing else ""


# How it is carried out


def _launcher(how: RunOptions) -> Launcher:
    def count_gpus() -> int:
        import torch

        return torch.accelerator.device_count() if torch.accelerator.is_available() else 0

    names = {each.name for each in fields(LaunchOptions)} - {"count_gpus"}
    request = LaunchOptions(**{name: getattr(how, name) for name in names}, count_gpus=count_gpus)
    return make_named_launcher(how.launcher, request)


def _context(work: SectionRuns) -> Context:
    how = work.how
    if how.launcher == "local":
        _check_device(how.device)
    return Context(
        how.data_dir,
        how.device,
        how.keep_weights,
        how.checkpoint_seconds,
        threads=_threads(len(work.specs), how),
        plugins=how.plugin,
    )


def _threads(runs: int, how: RunOptions) -> int:
    """The cores that each run may use: those that it asked for on a cluster, or those that its workers leave here."""
    if how.launcher != "local":
        return max(1, int(how.cpus_per_run or 1))
    return max(1, cores() // max(1, how.workers_for(runs)))


def _check_device(name: str) -> None:
    """Check that there is such a device, before any run fails for want of it."""
    if name == "cpu":
        return
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for the device
        raise UsageError(f"expected a device of this machine, got {name!r} ({str(error).splitlines()[0]})") from error


# What is said about it


def _print_jobs(work: SectionRuns) -> None:
    """Add runs to the store, and print a command for each that is to be carried out, one a line.

    Failed runs are among them with `--retry-failed`, since otherwise their jobs would only say that they have failed.
    """
    how, campaign = work.how, work.campaign()
    campaign.store.add_all(campaign.specs)
    records = campaign.look_up()
    done, failed = _over(campaign, records)
    over = {State.DONE, State.FAILED} if failed else {State.DONE}
    for spec, record in zip(campaign.specs, records, strict=True):
        if record.state not in over:
            emit(f"{how.job(spec.run_id)}  # {label(spec)}")
    left = count(len(records) - done - failed, "command")
    hint = f", {failed} failed, for which --retry-failed prints commands too" if failed else ""
    complain(f"headway: {left}; {done} of {count(len(records), 'run')} done before{hint}")


def _over(campaign: Campaign, records: Sequence[RunRecord]) -> tuple[int, int]:
    """How many runs are done, and how many have failed that are not to be run again."""
    states = Counter(record.state for record in records)
    return states[State.DONE], 0 if campaign.retry_failed else states[State.FAILED]


def _dry_run(campaign: Campaign, how: RunOptions, why_no_estimate: str) -> Plan:
    """List the runs, and say how long those that are left would take."""
    left = sum(record.state is not State.DONE for record in campaign.look_up())
    plan = make_plan(campaign, how.workers_for(left), with_estimate=not why_no_estimate)
    rows = [("run", "dataset", "condition", "method", "seed", "length", "state")]
    for spec, record in zip(campaign.specs, plan.records, strict=True):
        names = (dataset_of(spec), spec.condition, spec.method, str(spec.seed), length_of(spec))
        rows.append((spec.run_id, *names, record.state.value))
    emit(aligned(rows))
    emit(_total([plan], why_no_estimate and f"no estimate of the time: {why_no_estimate}"))
    return plan


def _total(plans: Sequence[Plan], no_estimate: str = "") -> str:
    """The runs of sections that are carried out one after the other, by state, and how long they take together."""
    records = [record for plan in plans for record in plan.records]
    states = Counter(record.state.value for record in records)
    counts = ", ".join(f"{number} {state}" for state, number in states.items())
    seconds = sum(plan.total_seconds() for plan in plans)
    unknown = sum(plan.is_unknown for plan in plans)
    guess = f"about {duration(seconds)} with {count(max(1, *(plan.workers for plan in plans)), 'worker')}"
    kinds, tried = (sum(plan.kinds[place] for plan in plans) for place in (0, 1))
    guess += f", by trying {tried} of {kinds} kinds of runs" if tried < kinds else ""
    guess += f", without {count(unknown, 'section')} of unknown length" if unknown else ""
    return f"{count(len(records), 'run')}: {counts}; {no_estimate or guess}"


def _announce(campaign: Campaign, how: RunOptions) -> None:
    """Say what is about to happen."""
    records = campaign.look_up()
    done, failed = _over(campaign, records)
    left = len(records) - done - failed
    before = "".join(f", {number} {word} before" for number, word in ((done, "done"), (failed, "failed")) if number)
    workers = how.workers_for(left)
    by = f"with {count(workers, 'worker')}" if workers else "in this process"
    if how.launcher != "local":
        by = f"by {how.launcher}" + (f" at {how.address}" if how.address else "")
    emit(f"{count(len(records), 'run')} in {how.out}{before}; {left} to go {by}")
    files = [record.status.files for record in records if record.state is State.DONE and record.status]
    bare = sum(WEIGHTS_FILE not in names for names in files)
    if how.keep_weights and bare:
        emit(
            f"--keep-weights: {count(bare, 'run')} done earlier without it, so their weights were not kept; use "
            f"another --out to run them again"
        )


def _show_studies(work: SectionRuns) -> None:
    """Show how the methods of the arena or of the mixture study did so far, where their runs are in a folder."""
    if not isinstance(work.how.out, Path):
        return
    try:
        from headway.analysis.results import STUDIES, load_results, studies_of

        if any(spec.experiment not in STUDIES for spec in work.specs):
            return
        studies = studies_of(load_results(work.how.out))
    except MissingExtraError as error:
        emit(f"No table: {error}")
        return
    for study in studies:
        emit(f"\n{study.short.text()}\n")
        if study.conclusion:
            emit(f"{textwrap.fill(study.conclusion, 80)}\n")


def _conclude(progress: CampaignProgress, out: Place) -> int:
    """Say how a campaign ended and what to do next; return the exit code."""
    done, before = progress.count(Outcome.DONE), progress.count(Outcome.DONE, here=False)
    failures = progress.failures()
    ends = f"{done} done" + (f" ({before} before)" if before else "")
    ends += f", {len(failures)} failed" if failures else ""
    emit(f"{count(len(progress.specs), 'run')} in {out}: {ends}")
    if failures:
        lines = [f"headway: {len(failures)} of {count(len(progress.specs), 'run')} failed:"]
        for end in failures[:_SHOWN_FAILURES]:
            when = "" if end.here else " (before)"
            lines.append(f"  {end.run_id} {label(progress.specs[end.run_id])}{when}: {end.message}")
        if len(failures) > _SHOWN_FAILURES:
            lines.append(f"  and {len(failures) - _SHOWN_FAILURES} more")
        lines.append(f"see why: headway status {shlex.quote(str(out))} --failed")
        lines.append("run them again: the same command with --retry-failed")
        complain("\n".join(lines))
    if not progress.is_complete():
        left = len(progress.specs) - done - len(failures)
        complain(f"headway: interrupted, {count(left, 'run')} left; the same command resumes")
        return INTERRUPTED
    fetch = f"headway fetch {shlex.quote(out)} FOLDER; headway report FOLDER" if isinstance(out, Url) else ""
    emit(f"to see the results: {fetch or f'headway report {shlex.quote(str(out))}'}")
    return FAILED if failures else 0
