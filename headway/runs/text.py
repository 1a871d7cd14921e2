"""Counts, times, runs and messages in words, the same in every listing, display and report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headway.runs.output import plain
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
