"""The command `headway run`: carry out the runs of an experiment."""

from __future__ import annotations

import argparse
from typing import NoReturn

from headway.commands import run_ablation as ablation
from headway.commands import run_campaign as lots
from headway.commands import run_controlled as controlled
from headway.commands import run_doorkey as doorkey
from headway.commands import run_sensitivity as sensitivity
from headway.commands.help_text import Defaults
from headway.errors import UsageError
from headway.runs.output import complain

EXPERIMENTS = {
    "controlled": (controlled, "curricula over labelled images, with and without noise"),
    "ablation": (ablation, "the same for GMC and its variants"),
    "sensitivity": (sensitivity, "the same for GMC over a grid of its constants"),
    "doorkey": (doorkey, "exploration of a grid world, with and without noise at its door"),
}
"""The experiments that can be run, each with its module of options and a few words."""


COMMANDS = {name: module for name, (module, _) in EXPERIMENTS.items()}
"""The same without the words."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command: a subcommand for each experiment."""
    _explain_order(parser)
    parser.description = "Carries out runs and keeps them in a store. The same command resumes, and skips what is done."
    parser.add_argument(
        "--campaign",
        nargs=argparse.REMAINDER,
        metavar="FILE ...",
        help="run a whole campaign file instead; its own options follow it (--campaign FILE --help)",
    )
    experiments = parser.add_subparsers(title="experiments", metavar="EXPERIMENT")
    for name, (module, summary) in EXPERIMENTS.items():
        experiment = experiments.add_parser(name, help=summary, formatter_class=Defaults)
        module.add_arguments(experiment)
        experiment.set_defaults(execute_experiment=module.execute, parser=experiment)


def _explain_order(parser: argparse.ArgumentParser) -> None:
    """Let the parser say where options belong when it takes the value of a misplaced one for an experiment."""
    complain = parser.error

    def error(message: str) -> NoReturn:
        hint = "; options follow the EXPERIMENT, or the FILE of --campaign" if "argument EXPERIMENT" in message else ""
        complain(message + hint)

    parser.error = error  # type: ignore[method-assign]


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        if options.campaign is not None:
            return lots.execute(options.campaign, COMMANDS)
        if not hasattr(options, "execute_experiment"):
            raise UsageError(f"expected an experiment out of {', '.join(EXPERIMENTS)}, or --campaign FILE, got neither")
        code: int = options.execute_experiment(options)
    except UsageError as error:
        complain(f"headway run: {error}")
        return 2
    return code
