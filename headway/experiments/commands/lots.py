"""`headway run --campaign FILE`: the lots of a campaign file, one after another."""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Protocol

from headway.errors import UsageError, did_you_mean
from headway.experiments.commands.common import INTERRUPTED, add_campaign_arguments
from headway.experiments.commands.helping import Defaults
from headway.experiments.commands.output import emit
from headway.experiments.commands.several import Several
from headway.experiments.commands.sharing import without
from headway.experiments.lots import Lot, read_campaign_file
from headway.runs import RunSpec


class ExperimentCommand(Protocol):
    """The part of an experiment's command that a campaign file needs."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the experiment's options."""
        ...

    def expand(self, options: argparse.Namespace) -> list[RunSpec]:
        """The runs that the options ask for."""
        ...

    def execute(self, options: argparse.Namespace) -> int:
        """Carry out its runs and return the exit code."""
        ...


def execute(arguments: Sequence[str], experiments: Mapping[str, ExperimentCommand]) -> int:
    """Carry out the lots of a campaign file and return the worst of their exit codes.

    Args:
        arguments: what stands behind `--campaign` on the command line.
        experiments: the commands of the experiments by name.

    Raises:
        UsageError: something in the file makes no sense; no run is started then.
    """
    options = _parser().parse_args(arguments)
    lots = read_campaign_file(options.file).choose(options.lot)
    prepared = [(lot, *_prepare(lot, options, experiments, options.file)) for lot in lots]
    worst = 0
    for lot, command, own in prepared:
        own.command_line = ["headway", "run", "--campaign", *without(arguments, "--lot"), "--lot", lot.name]
        if not own.print_jobs:
            emit(f"lot {lot.name}:")
        code = command.execute(own)
        if code == INTERRUPTED:
            return code
        worst = max(worst, code)
    if len(prepared) > 1 and not (options.dry_run or options.print_jobs):
        emit(f"what all lots say: headway report {shlex.quote(str(options.out))}")
    return worst


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


def _prepare(
    lot: Lot, options: argparse.Namespace, experiments: Mapping[str, ExperimentCommand], path: Path
) -> tuple[ExperimentCommand, argparse.Namespace]:
    """The command of a lot, and its options: those of the lot, and those of the command line for where and how."""
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
    _expand(lot, command, own, path)
    return command, own
