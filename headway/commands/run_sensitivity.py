"""The command `headway run sensitivity`: how far GMC depends on its constants."""

from __future__ import annotations

import argparse
from copy import copy

from headway.commands import run_controlled as controlled
from headway.commands.campaigns import conduct
from headway.runs import RunSpec
from headway.runs.plan import parse_settings

SWEEPS = ["beta=0.9,0.99,0.999,0.9999", "floor=1e-8,1e-5,1e-3,1e-1"]
"""The grid: decay rates, and floors in the unit of a sample's own gradient."""
SETTINGS = {"floor_unit": "sample", "bias_correction": "true"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command: those of `headway run controlled`, with other defaults."""
    controlled.add_arguments(parser)
    parser.description = f"GMC over a grid, {' by '.join(SWEEPS)}; --sweep replaces it."
    parser.set_defaults(signal=["gmc"], seeds="0:2")


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    return conduct(expand(options), options)


def expand(options: argparse.Namespace) -> list[RunSpec]:
    """The runs that the options ask for.

    Raises:
        UsageError: an option names what does not exist.
    """
    full = copy(options)
    full.sweep = options.sweep or SWEEPS
    full.set = [f"{name}={value}" for name, value in {**SETTINGS, **parse_settings(options.set)}.items()]
    return controlled.expand(full)
