"""Printing what commands have to say."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TextIO

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def emit(text: str = "") -> bool:
    """Print to the standard output, whatever becomes of it: results are kept in files, and work goes on.

    Nothing happens if whoever read it (`headway status | head`) has gone, or if it is closed. Where it cannot be
    written, such as to a full disk, the standard error says so, and the rest of the output is dropped.
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
        complain(f"headway: cannot write to the standard output: {error.strerror or error}")
        return False
    return True


def complain(text: str) -> None:
    """Print to the standard error, whatever becomes of it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            write_line(sys.stderr, text)


def plain(text: str, kept: str = "\n\t") -> str:
    """Show control characters instead of sending them to a terminal, which would obey them.

    Names, notes and errors come from stores, and stores from strangers. Characters that turn the direction of writing
    are shown too.
    """
    return _CONTROL.sub(lambda match: match[0] if match[0] in kept else _shown(match[0]), text)


def _shown(character: str) -> str:
    return character.encode("unicode_escape").decode()


def write_line(stream: TextIO, text: str) -> None:
    """Write a line at once, `plain`; characters that the stream's encoding does not have become question marks."""
    text = plain(text)
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
