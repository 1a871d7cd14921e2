"""The command `headway watch`: the runs of a store in a browser, while they go on."""

from __future__ import annotations

import argparse
from pathlib import Path

from headway.commands.report import require
from headway.errors import StoreError
from headway.runs.address import parse_folder
from headway.runs.text import emit

HOST, PORT = "127.0.0.1", 8787


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Serves a page that follows the runs of a store, and telemetry that lies with them. It only reads."
    )
    add = parser.add_argument
    what = "a run store, or a folder of exported runs"
    add("store", type=parse_folder, nargs="?", default=Path("runs"), metavar="RUNS", help=what)
    add("--host", default=HOST, help="the address to listen at (%(default)s: this machine only)")
    add("--port", type=_port, default=PORT, help="the port (%(default)s); 0 for any that is free")
    add("--open", action="store_true", help="open the page in a browser")


def execute(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C, and return the exit code."""
    require()
    from headway.analysis.report.sources import telemetry_files
    from headway.analysis.report.writing import holds_runs
    from headway.analysis.watch import serve

    if not holds_runs(options.store) and telemetry_files(options.store):
        raise StoreError(
            f"expected runs to follow at {options.store}, got telemetry alone; headway report {options.store} draws it"
        )
    serve(options.store, options.host, options.port, open_browser=options.open, say=emit)
    return 0


def _port(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 65536:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return number
