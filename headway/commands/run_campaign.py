"""`headway run --campaign FILE`: the lots of a campaign file, one after another."""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from headway.commands.campaigns import (
    FAILED,
    INTERRUPTED,
    Prepared,
    add_campaign_arguments,
    carry_out,
    prepare,
)
from headway.commands.help_text import Defaults
from headway.commands.jobs import choose, without
from headway.commands.options import Several
from headway.errors import HeadwayError, UsageError, did_you_mean
from headway.runs import RunSpec
from headway.runs.campaign_file import Lot, read_campaign_file
from headway.runs.output import complain, emit

Result = TypeVar("Result")


class ExperimentCommand(Protocol):
    """The part of an experiment's command that a campaign file needs."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the experiment's options."""
        ...

    def expand(self, options: argparse.Namespace) -> list[RunSpec]:
        """The runs that the options ask for."""
        ...


def execute(arguments: Sequence[str], experiments: Mapping[str, ExperimentCommand]) -> int:
    """Carry out the lots of a campaign file and return the worst of their exit codes.

    Everything that can be known before is checked before the first run. A lot that has trouble of its own, such as
    data that cannot be had, is told and left out; the others are carried out.

    Args:
        arguments: what stands behind `--campaign` on the command line.
        experiments: the commands of the experiments by name.

    Raises:
        UsageError: something in the file makes no sense; no run is started then.
    """
    options = _parser().parse_args(arguments)
    lots = read_campaign_file(options.file).choose(options.lot)
    planned = _plan([_make(lot, options, experiments) for lot in lots], options)
    words = without(arguments, "--lot")
    words = [str(options.file.absolute()) if Path(word) == options.file else word for word in words]
    for plan in planned:
        plan.own.command_line = ["headway", "run", "--campaign", *words, "--lot", plan.lot.name]
    troubles = _Troubles()
    prepared = [(plan.lot, ready) for plan in planned if (ready := troubles.in_lot(plan.lot, plan.prepare)) is not None]
    worst = 0
    for lot, ready in prepared:
        if not options.print_jobs:
            emit(f"lot {lot.name}:")
        code = troubles.in_lot(lot, partial(carry_out, ready))
        if code == INTERRUPTED:
            return code
        worst = max(worst, code or 0)
    if len(planned) > 1 and not (options.dry_run or options.print_jobs):
        emit(f"what all lots say: headway report {shlex.quote(str(options.out))}")
    troubles.sum_up(len(planned))
    return max(worst, FAILED) if troubles.lots else worst


@dataclass(frozen=True)
class _Plan:
    """A lot with its own options, and the runs that these mean."""

    lot: Lot
    own: argparse.Namespace
    specs: list[RunSpec]
    path: Path

    def prepare(self) -> Prepared:
        """Have everything that its runs need."""
        try:
            return prepare(self.specs, self.own)
        except UsageError as error:
            raise UsageError(f"{self.path}: {self.lot.name}: {error}") from error


class _Troubles:
    """Tells what goes wrong with single lots, and remembers which they are."""

    def __init__(self) -> None:
        """Begin without any."""
        self.lots: list[str] = []

    def in_lot(self, lot: Lot, act: Callable[[], Result]) -> Result | None:
        """Do something for a lot; None if that failed, which is told.

        Raises:
            UsageError: the command makes no sense, for any lot.
        """
        try:
            return act()
        except UsageError:
            raise
        except HeadwayError as error:
            self.lots.append(lot.name)
            complain(f"headway: lot {lot.name}: {error}")
            return None

    def sum_up(self, total: int) -> None:
        """Say at the end which lots are not complete, since the reasons may stand far above."""
        if self.lots and total > 1:
            names = ", ".join(self.lots)
            complain(f"headway: {len(self.lots)} of {total} lots had trouble, see above: {names}")


def _plan(plans: list[_Plan], options: argparse.Namespace) -> list[_Plan]:
    """The lots that have runs among those of `--only`, each with its own; all of them without this option.

    Raises:
        UsageError: no lot has a run of such an id.
    """
    if not options.only:
        return plans
    ids = [{spec.run_id for spec in choose(plan.specs, options.shard, None)} for plan in plans]
    for run_id in options.only:
        if not any(run_id in known for known in ids):
            total = sum(map(len, ids))
            raise UsageError(f"expected the id of one of the {total} runs that the options mean, got {run_id!r}")
    for plan, known in zip(plans, ids, strict=True):
        plan.own.only = [run_id for run_id in options.only if run_id in known]
    return [plan for plan in plans if plan.own.only]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headway run --campaign",
        description="Carries out the lots of a campaign file, each in a folder of its own.",
        formatter_class=Defaults,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a campaign file (TOML)")
    parser.add_argument("--lot", action=Several, nargs="+", default=[], metavar="NAME", help="only these lots")
    add_campaign_arguments(parser)
    return parser


def lot_specs(lot: Lot, experiments: Mapping[str, ExperimentCommand], path: Path) -> list[RunSpec]:
    """The runs of a lot.

    Args:
        lot: the lot.
        experiments: the commands of the experiments by name.
        path: the campaign file, for messages.

    Raises:
        UsageError: something in it makes no sense.
    """
    command, _, own = _parse(lot, experiments, path)
    return _expand(lot, command, own, path)


def _expand(lot: Lot, command: ExperimentCommand, own: argparse.Namespace, path: Path) -> list[RunSpec]:
    """The runs of a lot whose options are read."""
    try:
        return command.expand(own)
    except UsageError as error:
        raise UsageError(f"{path}: {lot.name}: {error}") from error


def _parse(
    lot: Lot, experiments: Mapping[str, ExperimentCommand], path: Path
) -> tuple[ExperimentCommand, argparse.Namespace, argparse.Namespace]:
    """The command of a lot, its options without the lot's, and with them."""
    if lot.experiment not in experiments:
        hint = did_you_mean(lot.experiment, experiments)
        known = ", ".join(experiments)
        raise UsageError(f"{path}: {lot.name}: expected an experiment out of {known}, got {lot.experiment!r}{hint}")
    command = experiments[lot.experiment]
    parser = argparse.ArgumentParser(prog=f"{path}: {lot.name}", allow_abbrev=False, add_help=False)
    command.add_arguments(parser)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            own, unknown = parser.parse_known_args(list(lot.arguments))
    except SystemExit as error:
        raise UsageError(complaint.getvalue().splitlines()[-1].replace("error: ", "")) from error
    plain = parser.parse_args([])
    if unknown:
        name = unknown[0].partition("=")[0].removeprefix("--").replace("-", "_")
        raise UsageError(
            f"{path}: {lot.name}: expected options of headway run {lot.experiment}, got {name!r}"
            f"{did_you_mean(name, vars(plain))}"
        )
    return command, plain, own


def _make(lot: Lot, options: argparse.Namespace, experiments: Mapping[str, ExperimentCommand]) -> _Plan:
    """A lot's runs, and its options: those of the lot, and those of the command line for where and how."""
    path: Path = options.file
    command, plain, own = _parse(lot, experiments, path)
    for name in set(vars(options)) & set(vars(own)):
        if getattr(own, name) != getattr(plain, name):
            raise UsageError(
                f"{path}: {lot.name}: expected what to run, got {name}; where and how to run is for the command line"
            )
    common = copy(options)
    common.out = options.out / lot.name
    for name in ("file", "lot"):
        delattr(common, name)
    for name, value in vars(common).items():
        setattr(own, name, value)
    return _Plan(lot, own, _expand(lot, command, own, path), path)
