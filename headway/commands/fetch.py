"""The command `headway fetch`: copy the runs of a store behind a URL to a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from headway.commands.options import Url, parse_place
from headway.errors import UsageError
from headway.runs import RunRecord, RunStore
from headway.runs.text import count, emit, label
from headway.runs.url_storage import fetch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Copies runs to a folder, for reports and figures. What is there already is not copied again, and a run that "
        "has gone on there is left alone."
    )
    parser.add_argument("url", type=parse_place, metavar="URL", help="the run store, such as s3://bucket/runs")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs"), metavar="DIR", help="where to (runs)")


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not isinstance(options.url, Url):
        raise UsageError(
            f"expected a URL such as s3://bucket/runs, got {options.url} on this machine, which can be used as it is: "
            f"headway report {options.url}"
        )
    copied = fetch(RunStore(options.url), RunStore(options.folder), _tell)
    emit(f"{count(copied, 'run')} copied from {options.url} to {options.folder}")
    return 0


def _tell(record: RunRecord, is_new: bool) -> None:
    if is_new:
        emit(f"{record.run_id} {label(record.spec) if record.spec else ''}: {record.state.value}")
