"""A command that runs the dummy experiment, as `headway run` runs the real ones: METHOD ... -- OPTIONS."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from headway.commands.campaigns import add_campaign_arguments, conduct
from headway.errors import HeadwayError
from headway.runs.experiments import register_experiment
from headway.runs.plan import parse_seeds
from headway.runs.ray import cluster
from tests.runs import dummy


def main(arguments: list[str]) -> int:
    register_experiment(dummy.NAME, dummy.SLOW_MODULE if dummy.SLOW_FOLDER in os.environ else dummy.MODULE)
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", nargs="+", default=["good"])
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--patience", type=float, default=cluster.PATIENCE)
    add_campaign_arguments(parser)
    options = parser.parse_args(arguments)
    cluster.PATIENCE = options.patience
    options.command_line = [sys.executable, "-m", "tests.runs.dummy_cli", *arguments]
    seeds = parse_seeds(options.seeds)
    specs = [dummy.spec_of(m, seed, options.steps, options.folder) for m in options.method for seed in seeds]
    try:
        return conduct(specs, options)
    except HeadwayError as error:
        print(f"headway: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
