"""The `headway` command.

A subcommand is a module with `add_arguments(parser)` and `execute(options) -> exit code`. It is registered here
with a function that imports it, and it is imported only when it is used:

    @register("bench", "measure what scores cost")
    def _bench() -> CommandModule:
        from headway.bench import command

        return command

Exit codes: 0 done, 1 an error that headway explains, 2 a wrong option, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.errors import HeadwayError


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


COMMANDS: dict[str, Command] = {}


def register(name: str, summary: str) -> Callable[[Loader], Loader]:
    """Add a subcommand.

    Raises:
        ValueError: the name is taken.
    """
    if name in COMMANDS:
        raise ValueError(f"expected a new name for a command, got {name!r} twice")

    def add(load: Loader) -> Loader:
        COMMANDS[name] = Command(name, summary, load)
        return load

    return add


@register("bench", "measure what scores cost in time and memory")
def _bench() -> CommandModule:
    from headway.bench import command

    return command


@register("run", "carry out the runs of an experiment; the same command resumes")
def _run() -> CommandModule:
    from headway.experiments.commands import run

    return run


@register("status", "show where the runs of a store stand")
def _status() -> CommandModule:
    from headway.experiments.commands import status

    return status


@register("demo", "the study in small: two minutes on two cores, ending in a table")
def _demo() -> CommandModule:
    from headway.experiments.commands import demo

    return demo


@register("figures", "draw every figure that the runs of a store allow")
def _figures() -> CommandModule:
    from headway.analysis.commands import figures

    return figures


@register("claims", "judge the paper's claims by the runs of a store")
def _claims() -> CommandModule:
    from headway.analysis.commands import claims

    return claims


@register("export", "write the metrics of a store's runs to one small file")
def _export() -> CommandModule:
    from headway.analysis.commands import export

    return export


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
            module = command.load()
            module.add_arguments(subparser)
            subparser.set_defaults(execute=module.execute)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: without the name of the program; None for those of the process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        options = make_parser(arguments).parse_args(arguments)
        code: int = options.execute(options)
    except HeadwayError as error:
        print(f"headway: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("headway: interrupted", file=sys.stderr)
        return 130
    return code


def _version() -> str:
    from headway import __version__

    return f"headway {__version__}"
