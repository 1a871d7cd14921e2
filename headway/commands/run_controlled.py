"""The command `headway run controlled`."""

from __future__ import annotations

import argparse
from collections.abc import Container
from functools import partial

from headway.commands.campaigns import add_campaign_arguments, conduct, whole
from headway.commands.options import Several
from headway.data import DATASETS
from headway.errors import ProtocolError, SpecError, UsageError
from headway.runs import RunSpec
from headway.runs.plan import check_said_once, parse_seeds, parse_settings, parse_sweeps
from headway.study.controlled import specs
from headway.study.environment import CONDITIONS
from headway.study.protocols.controlled import Protocol
from headway.study.signals import NAMES, SIX

LENGTHS = ("epochs", "epochs_curriculum_mnist")
"""The fields for the length of a run: the general one, and that of a special case."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "Compares signals that choose what a classifier learns from next."
    add = parser.add_argument
    several = partial(add, action=Several, nargs="+", metavar="NAME")
    several("--dataset", default=["digits"], help=f"out of {', '.join(DATASETS)}")
    several("--condition", default=list(CONDITIONS), help=f"out of {', '.join(CONDITIONS)}")
    several("--signal", default=list(SIX), help=f"out of {', '.join(NAMES)}")
    add("--seeds", default="0:3", metavar="SEEDS", help="0:20 for 0 to 19; 0,3,7; or 5 for seed 5 alone")
    add("--protocol", default="released", metavar="NAME", help="paper, released or demo")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of the protocol; repeatable")
    add("--sweep", action="append", default=[], metavar="FIELD=V1,V2,...", help="every value of a field; repeatable")
    add("--epochs", type=whole(1), metavar="N", help="length of each run, instead of the protocol's")
    add_campaign_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    return conduct(expand(options), options)


def expand(options: argparse.Namespace) -> list[RunSpec]:
    """The runs that the options ask for.

    Raises:
        UsageError: an option names what does not exist.
    """
    try:
        settings, seeds = parse_settings(options.set), parse_seeds(options.seeds)
        runs = len(options.dataset) * len(options.condition) * len(options.signal) * len(seeds)
        sweeps = parse_sweeps(options.sweep, runs)
        check_said_once("the length of runs", "--epochs", options.epochs, LENGTHS, {**settings, **sweeps[0]})
        protocol = Protocol.named(options.protocol).override(settings)
        return [
            spec
            for values in sweeps
            for own in [protocol.override(values)]
            for spec in specs(
                options.dataset,
                options.condition,
                options.signal,
                seeds,
                own,
                options.epochs or _length(own, {**settings, **values}),
            )
        ]
    except (ProtocolError, SpecError) as error:
        raise UsageError(str(error)) from error


def _length(protocol: Protocol, given: Container[str]) -> int | None:
    """The length of all runs if only the general field for it was given, which then also holds where another would."""
    return protocol.epochs if [name for name in LENGTHS if name in given] == ["epochs"] else None
