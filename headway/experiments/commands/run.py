"""The command `headway run`: carry out the runs of an experiment."""

from __future__ import annotations

import argparse
import sys

from headway.errors import UsageError
from headway.experiments.commands import controlled

EXPERIMENTS = {"controlled": (controlled, "curricula over labelled images, with and without noise")}
"""The experiments that can be run, each with its module of options and a few words."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command: a subcommand for each experiment."""
    parser.description = "Carries out runs and keeps them in a store. The same command resumes, and skips what is done."
    experiments = parser.add_subparsers(title="experiments", metavar="EXPERIMENT", required=True)
    for name, (module, summary) in EXPERIMENTS.items():
        experiment = experiments.add_parser(name, help=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        module.add_arguments(experiment)
        experiment.set_defaults(execute_experiment=module.execute)


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        code: int = options.execute_experiment(options)
    except UsageError as error:
        print(f"headway run: {error}", file=sys.stderr)
        return 2
    return code
