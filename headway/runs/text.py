"""Counts, times, runs and messages in words, the same in every listing, display and report; and printing them."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from headway.runs.spec import RunSpec

LONGEST_MESSAGE = 300


def count(number: int, noun: str) -> str:
    """A number with its noun, such as "1 run" or "3 runs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float | None) -> str:
    """A time span in two units at most, such as "3 min 20 s"; a question mark when unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    whole = math.ceil(max(0.0, seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def shorten(text: str, length: int = LONGEST_MESSAGE) -> str:
    """Cut a text that is longer than this."""
    return text if len(text) <= length else text[: length - 1] + "…"


def label(spec: RunSpec) -> str:
    """Name a run in a few words, such as "mnist noise gmc seed 3"."""
    parts = (dataset_of(spec), spec.condition, spec.method, f"seed {spec.seed}")
    return " ".join(part for part in parts if part)


def dataset_of(spec: RunSpec) -> str:
    """The dataset or the environment of a run, or nothing."""
    return str(spec.params.get("dataset", spec.params.get("env_id", "")))


def length_of(spec: RunSpec) -> str:
    """The length of a run, such as "100 epochs", or nothing."""
    return next((f"{spec.params[unit]} {unit}" for unit in ("epochs", "steps") if unit in spec.params), "")


def steps(step: int, total: int | None) -> str:
    """How far a run is, such as "30/100"."""
    return f"{step}/{total or '?'}"


def values_text(values: Mapping[str, float]) -> str:
    """The values that a run reports, by name, such as "train loss 0.213, test loss 0.301" or "return 0.87"."""
    return ", ".join(f"{value_name(name)} {value:.4g}" for name, value in values.items())


def value_name(name: str) -> str:
    """A reported value's name in full: runs call their losses by the data alone."""
    return f"{name} loss" if name in ("train", "test") else name


def last_line(text: str) -> str:
    """The last line of a traceback, which says what went wrong."""
    lines = text.strip().splitlines() or [""]
    return shorten(lines[-1].strip())


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text with aligned columns; what would break a row is shown instead, and what is long is cut."""
    rows = [[plain(shorten(cell), "") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


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
    return _CONTROL.sub(
        lambda match: match[0] if match[0] in kept else match[0].encode("unicode_escape").decode(), text
    )


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
