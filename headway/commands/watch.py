"""The command `headway watch`: the runs of a store in a browser, while they go on."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from headway.commands.options import add_runs_argument, number
from headway.commands.report import require
from headway.errors import StoreError
from headway.runs.text import emit

HOST, PORT = "127.0.0.1", 8787


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Serves a page that follows the runs of a store, and telemetry that lies with them. It only reads."
    )
    port = number(int, lambda found: 0 <= found < 65536, "a port from 0 to 65535")
    add = parser.add_argument
    add_runs_argument(parser, "a run store, or a folder of exported runs")
    add("--host", default=HOST, help="the address to listen at (%(default)s: this machine only)")
    add("--port", type=port, default=PORT, help="the port (%(default)s); 0 for any that is free")
    add("--open", action="store_true", help="open the page in a browser")


def execute(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C, and return the exit code."""
    require(extra="watch")
    from headway.analysis.report import holds_runs, telemetry_files
    from headway.analysis.watch import serve

    wait_for_files(options.path)
    if not holds_runs(options.path) and telemetry_files(options.path):
        raise StoreError(
            f"expected runs to follow at {options.path}, got telemetry alone; headway report {options.path} draws it"
        )
    serve(options.path, options.host, options.port, open_browser=options.open, say=emit)
    return 0


def wait_for_files(store: Path, pause: Callable[[float], object] = time.sleep) -> None:
    """Wait until there is something at a path: a store that has not been made yet, or a campaign's empty folder."""

    def is_there() -> bool:
        return store.is_file() or (store.is_dir() and any(store.iterdir()))

    if not is_there():
        emit(f"waiting for runs in {store} (Ctrl-C ends)")
    while not is_there():
        pause(1.0)
