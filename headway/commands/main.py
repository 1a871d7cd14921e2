"""The `headway` command.

A subcommand is a module with `add_arguments(parser)` and `execute(options) -> exit code`. `COMMANDS` names it, and it
is imported only when it is used.

Exit codes: 0 done, 1 an error that headway explains, 2 a wrong option, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from headway.errors import HeadwayError, MissingExtraError, UsageError, did_you_mean


@dataclass(frozen=True)
class Command:
    """A subcommand."""

    summary: str  # what it does, in a few words
    module: str  # where it is
    extra: str = "experiments"  # brings the packages that it imports, for the message when one is missing

    def load(self) -> ModuleType:
        """Import it; a package that is missing is named, with the extra that brings it."""
        try:
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            package = (error.name or "").split(".")[0]
            if package == "benchmarks":
                raise UsageError(
                    "expected the repository of headway, which has the benchmarks, got an installed package alone; "
                    "clone the repository and run headway bench in its folder"
                ) from error
            if package in ("", "headway"):
                raise
            raise MissingExtraError(package, self.extra) from error
        except MissingExtraError as error:  # of a part that this command shares with others
            raise MissingExtraError(error.package, self.extra) from error


COMMANDS = {
    "bench": Command("measure what scores cost in time and memory", "benchmarks.cost.command", "bench"),
    "run": Command("carry out the runs of an experiment; the same command resumes", "headway.commands.run"),
    "status": Command("show where the runs of a store stand", "headway.commands.status"),
    "fetch": Command("copy the runs of a store behind a URL to a folder", "headway.commands.fetch", "remote"),
    "demo": Command(
        "the study in small: a few minutes on two cores, ending in a table and a report",
        "headway.commands.demo",
        "experiments,report",
    ),
    "report": Command(
        "write one page about the runs of a store, with tables and figures", "headway.commands.report", "report"
    ),
    "watch": Command("show the runs of a store in a browser while they go on", "headway.commands.watch", "watch"),
    "play": Command("write a film of a trained agent", "headway.commands.play", "rl"),
    "figures": Command("draw every figure that the runs of a store allow", "headway.commands.figures", "report"),
    "claims": Command("judge the paper's claims by the runs of a store", "headway.commands.claims", "report"),
    "export": Command("write the metrics of a store's runs to one small file", "headway.commands.export", "report"),
    "verify": Command(
        "run some of the results again and compare every number", "headway.commands.verify", "experiments,report"
    ),
}
"""The subcommands by name, in the order of the help."""


def make_parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser, with the options of the subcommand that the arguments begin with."""
    from headway import __version__

    parser = argparse.ArgumentParser(
        prog="headway", description="Measures learning progress: a score for every training sample."
    )
    parser.add_argument("--version", action="version", version=f"headway {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.summary)
        if name in arguments[:1]:
            module = command.load()
            subparser.set_defaults(execute=module.execute, parser=subparser)
            module.add_arguments(subparser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; without arguments, that of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed (`headway ... >&-`): the next file would get its number, and its text
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
    try:
        options = _parse(arguments)
        code: int = options.execute(options)
    except HeadwayError as error:
        from headway.runs.text import complain

        complain(f"headway: {error}")
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("headway: interrupted", file=sys.stderr)
        return 130
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; what no option is called is told by the command that it was meant for."""
    arguments = _in_full(arguments)
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


def _in_full(arguments: Sequence[str]) -> list[str]:
    """The arguments with the command's whole name for its beginning, and with `--help` for the command `help`."""
    if arguments[:1] == ["help"]:
        return [*_in_full(arguments[1:]), "--help"]
    if not arguments or arguments[0].startswith("-") or arguments[0] in COMMANDS:
        return list(arguments)
    found = [name for name in COMMANDS if arguments[0] and name.startswith(arguments[0])]
    if len(found) != 1:
        hint = f"; did you mean {' or '.join(found)}?" if found else did_you_mean(arguments[0], COMMANDS)
        make_parser().error(f"expected a command out of {', '.join(COMMANDS)}, got {arguments[0]!r}{hint}")
    return [*found, *arguments[1:]]
