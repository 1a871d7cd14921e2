"""The `headway` command.

A subcommand is a module with `add_arguments(parser)` and `execute(options) -> exit code`. It is registered here
with a function that imports it, and it is imported only when it is used:

    @register("bench", "measure what scores cost")
    def _bench() -> CommandModule:
        from benchmarks.cost import command

        return command

Exit codes: 0 done, 1 an error that headway explains, 2 a wrong option, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headway.errors import HeadwayError, MissingExtraError, UsageError, did_you_mean


class CommandModule(Protocol):
    """What a subcommand is made of."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the subcommand."""
        ...

    def execute(self, options: argparse.Namespace) -> int:
        """Run it and return the exit code."""
        ...


Loader = Callable[[], CommandModule]


@dataclass(frozen=True)
class Command:
    """A subcommand: its name, what it does in a few words, and the function that imports it."""

    name: str
    summary: str
    load: Loader
    extra: str = ""
    """The extra that brings the packages that it imports, for the message when one is missing."""


COMMANDS: dict[str, Command] = {}


def register(name: str, summary: str, extra: str = "") -> Callable[[Loader], Loader]:
    """Add a subcommand.

    Raises:
        ValueError: the name is taken.
    """
    if name in COMMANDS:
        raise ValueError(f"expected a new name for a command, got {name!r} twice")

    def add(load: Loader) -> Loader:
        COMMANDS[name] = Command(name, summary, load, extra)
        return load

    return add


@register("bench", "measure what scores cost in time and memory")
def _bench() -> CommandModule:
    from benchmarks.cost import command

    return command


@register("run", "carry out the runs of an experiment; the same command resumes")
def _run() -> CommandModule:
    from headway.commands import run

    return run


@register("status", "show where the runs of a store stand")
def _status() -> CommandModule:
    from headway.commands import status

    return status


@register("fetch", "copy the runs of a store behind a URL to a folder", "remote")
def _fetch() -> CommandModule:
    from headway.commands import fetch as command

    return command


@register("demo", "the study in small: a few minutes on two cores, ending in a table and a report")
def _demo() -> CommandModule:
    from headway.commands import demo

    return _WithReport(demo)


class _WithReport:
    """A command that carries out runs, followed by a report on them.

    Experiments and analysis do not know each other, so they are joined here.

    Args:
        command: the command; its option `out` says where the runs are.
    """

    def __init__(self, command: CommandModule) -> None:
        """Do nothing yet."""
        self._command = command

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command, and one for the report."""
        self._command.add_arguments(parser)
        parser.add_argument(
            "--report", type=Path, default=Path("report"), metavar="DIR", help="where the report goes (%(default)s)"
        )

    def execute(self, options: argparse.Namespace) -> int:
        """Run the command; if all went well, write the report, or say why there is none."""
        options.compare = _compare
        code = self._command.execute(options)
        if code == 0:
            from headway.commands import report

            report.report_if_possible(options.out, options.report)
        return code


def _compare(areas: Sequence[float], uniform: Sequence[float]) -> tuple[float, float, float]:
    """A ratio and its interval, so that a command says what the report says."""
    from headway.analysis.stats import ratio

    found = ratio(areas, uniform)
    return found.value, found.low, found.high


@register("report", "write one page about the runs of a store, with tables and figures", "report")
def _report() -> CommandModule:
    from headway.commands import report

    return report


@register("watch", "show the runs of a store in a browser while they go on", "watch")
def _watch() -> CommandModule:
    from headway.commands import watch

    return watch


@register("play", "write a film of a trained agent", "rl")
def _play() -> CommandModule:
    from headway.commands import play

    return play


@register("figures", "draw every figure that the runs of a store allow", "report")
def _figures() -> CommandModule:
    from headway.commands import figures

    return figures


@register("claims", "judge the paper's claims by the runs of a store", "report")
def _claims() -> CommandModule:
    from headway.commands import claims

    return claims


@register("export", "write the metrics of a store's runs to one small file", "report")
def _export() -> CommandModule:
    from headway.commands import export

    return export


@register("verify", "run some of the results again and compare every number", "report")
def _verify() -> CommandModule:
    return _Verify()


class _Verify:
    """Results chosen and compared by the analysis, and run again by the experiments; neither knows the other."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command."""
        from headway.commands import verify

        verify.add_arguments(parser)

    def execute(self, options: argparse.Namespace) -> int:
        """Run the chosen ones again, and compare those that came to their end."""
        from headway.commands import verify
        from headway.commands.campaigns import INTERRUPTED
        from headway.commands.rerun import fingerprints, repeat
        from headway.runs.output import complain
        from headway.runs.provenance import code_fingerprint

        try:
            runs = verify.prepare(options)
            specs = [run.spec for run in runs]
            verify.check_data(runs, fingerprints(specs, options.data_dir))
        except UsageError as error:
            complain(f"headway verify: {error}")
            return 2
        made_with = code_fingerprint()  # now, because the files may change while the runs go on
        code = repeat(specs, options.out, options.data_dir, options.device, options.workers)
        if code == INTERRUPTED:
            return code
        return max(code, verify.compare(runs, options.out, made_with))


def make_parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser, with the options of those subcommands that are named in the arguments."""
    parser = argparse.ArgumentParser(
        prog="headway", description="Measures learning progress: a score for every training sample."
    )
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS.values():
        subparser = subparsers.add_parser(command.name, help=command.summary)
        if command.name in arguments:
            module = _load(command)
            subparser.set_defaults(execute=module.execute, parser=subparser)
            module.add_arguments(subparser)
    return parser


def _load(command: Command) -> CommandModule:
    """Import a subcommand.

    Raises:
        MissingExtraError: a package that it imports is not installed.
    """
    try:
        return command.load()
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if not command.extra or package in ("", "headway") or isinstance(error, MissingExtraError):
            raise
        raise MissingExtraError(package, command.extra) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: without the name of the program; None for those of the process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    _fill_streams()
    try:
        options = _parse(arguments)
        options.command_line = ["headway", *arguments]
        code: int = options.execute(options)
    except HeadwayError as error:
        from headway.runs.output import complain

        complain(f"headway: {error}")
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("headway: interrupted", file=sys.stderr)
        return 130
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; what no option is called is told by the command that it was meant for."""
    parser = make_parser(arguments)
    if not arguments:
        parser.print_help(sys.stderr)
        parser.exit(2)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        own: argparse.ArgumentParser = getattr(options, "parser", parser)
        known = [name for name in own._option_string_actions if name.startswith("--")]
        hint = did_you_mean(unknown[0].partition("=")[0], known)
        own.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return options


def _fill_streams() -> None:
    """Let a standard stream that is closed (`headway ... >&-`) lead nowhere.

    Otherwise the next file that is opened would get its number, and with it what is written to the stream.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end


def _version() -> str:
    from headway import __version__

    return f"headway {__version__}"
