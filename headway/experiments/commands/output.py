"""Printing the results of a command."""

from __future__ import annotations

import contextlib
import os
import sys


def emit(text: str) -> None:
    """Print to the standard output; nothing happens if whoever read it (`headway status | head`) has gone."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # a standard output that is no file has no descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
