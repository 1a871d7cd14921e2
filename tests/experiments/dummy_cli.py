"""A command that runs the dummy experiment, as `headway run` runs the real ones: METHOD ... -- OPTIONS."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from headway.experiments.campaign import parse_seeds
from headway.experiments.commands.common import add_campaign_arguments, conduct
from headway.experiments.registry import register_experiment
from tests.experiments import dummy


def main(arguments: list[str]) -> int:
    register_experiment(dummy.NAME, dummy.MODULE)
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", nargs="+", default=["good"])
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--folder", type=Path)
    add_campaign_arguments(parser)
    options = parser.parse_args(arguments)
    seeds = parse_seeds(options.seeds)
    return conduct([dummy.spec_of(m, seed, folder=options.folder) for m in options.method for seed in seeds], options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
