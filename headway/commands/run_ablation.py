"""The command `headway run ablation`: which part of GMC does the work."""

from __future__ import annotations

import argparse

from headway.commands import run_controlled as controlled

expand, execute = controlled.expand, controlled.execute


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command: those of `headway run controlled`, with other defaults."""
    controlled.add_arguments(parser)
    parser.description = "GMC beside its variants, which take the absolute value or the norm elsewhere."
    parser.set_defaults(signal=["uniform", "gmc", "dot", "cosine", "projection"], condition=["curriculum"])
