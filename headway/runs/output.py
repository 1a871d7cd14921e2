"""Printing what commands have to say."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def emit(text: str = "") -> bool:
    """Print to the standard output, whatever becomes of it: results are kept in files, and work goes on.

    Nothing happens if whoever read it (`headway status | head`) has gone, or if it is closed. Where it cannot be
    written, such as to a full disk, the standard error says so, and the rest of the output is dropped.

    Returns:
        whether everything was written that somebody wanted to read.
    """
    stream = sys.stdout
    if stream is None:
        return True
    try:
        write_line(stream, text)
    except BrokenPipeError:
        _drop(stream)
    except OSError as error:
        _drop(stream)
        print(f"headway: cannot write to the standard output: {error.strerror or error}", file=sys.stderr)
        return False
    return True


def write_line(stream: TextIO, text: str) -> None:
    """Write a line at once; characters that the stream's encoding does not have become question marks.

    Raises:
        OSError: it cannot be written.
    """
    try:
        stream.write(f"{text}\n")
    except UnicodeEncodeError as error:
        stream.write(f"{text}\n".encode(error.encoding, "replace").decode(error.encoding))
    stream.flush()


def _drop(stream: TextIO) -> None:
    """Lead a stream nowhere, also what waits in its buffer, on which the end of the process would fail again."""
    with contextlib.suppress(OSError, ValueError):  # a standard output that is no file has no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
