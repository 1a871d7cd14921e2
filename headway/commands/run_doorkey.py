"""The command `headway run doorkey`."""

from __future__ import annotations

import argparse
from functools import partial

from headway.commands.campaigns import add_campaign_arguments, conduct, whole
from headway.commands.options import Several
from headway.errors import ProtocolError, SpecError, UsageError
from headway.rl.methods import METHODS
from headway.runs import RunSpec
from headway.runs.plan import check_said_once, parse_seeds, parse_settings, parse_sweeps
from headway.study.doorkey import CONDITIONS, PAPER_METHODS, specs
from headway.study.protocols.doorkey import ExplorationProtocol


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "Compares intrinsic rewards of an agent that explores a grid with a key, a door and noise."
    add = parser.add_argument
    several = partial(add, action=Several, nargs="+", metavar="NAME")
    several(
        "--method",
        default=list(PAPER_METHODS),
        help=f"out of {', '.join(METHODS)}, or PREDICTOR+SCORER, such as icm+gmc_hard",
    )
    several("--noise", default=list(CONDITIONS), help=f"out of {', '.join(CONDITIONS)}")
    add("--seeds", default="0:3", metavar="SEEDS", help="0:20 for 0 to 19; 0,3,7; or 5 for seed 5 alone")
    add("--preset", default="released", metavar="NAME", help="released, paper, fast or quick")
    add("--env", metavar="ID", help="the environment, instead of the preset's")
    add("--steps", type=whole(1), metavar="N", help="length of each run in steps, up to whole rollouts")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of the preset; repeatable")
    add("--sweep", action="append", default=[], metavar="FIELD=V1,V2,...", help="every value of a field; repeatable")
    add_campaign_arguments(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    return conduct(expand(options), options)


def expand(options: argparse.Namespace) -> list[RunSpec]:
    """The runs that the options ask for.

    Raises:
        UsageError: an option names what does not exist, or what does not go together.
    """
    try:
        settings, seeds = parse_settings(options.set), parse_seeds(options.seeds)
        sweeps = parse_sweeps(options.sweep, len(options.method) * len(options.noise) * len(seeds))
        given = {**settings, **sweeps[0]}
        check_said_once("the length of runs", "--steps", options.steps, ["steps"], given)
        check_said_once("the environment", "--env", options.env, ["env_id"], given)
        protocol = ExplorationProtocol.named(options.preset).override(settings)
        return [
            spec
            for values in sweeps
            for spec in specs(
                options.method,
                options.noise,
                seeds,
                protocol.override(values),
                options.preset,
                options.env,
                options.steps,
            )
        ]
    except (ProtocolError, SpecError) as error:
        raise UsageError(str(error)) from error
