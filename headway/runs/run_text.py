"""Runs and messages in words, the same in every display and listing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.runs import RunSpec
from headway.runs.output import plain
from headway.runs.text import shorten


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


def losses_text(losses: Mapping[str, float]) -> str:
    """Losses by name, such as "train 0.213, test 0.301"."""
    return ", ".join(f"{name} {loss:.4g}" for name, loss in losses.items())


def speed_text(speed: float | None) -> str:
    """Steps per second, or seconds per step when slow."""
    if not speed:
        return ""
    return f"{speed:.3g}/s" if speed >= 1 else f"{1 / speed:.3g} s each"


def last_line(text: str) -> str:
    """The last line of a traceback, which says what went wrong."""
    lines = text.strip().splitlines() or [""]
    return shorten(lines[-1].strip())


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text with aligned columns; what would break a row is shown instead, and what is long is cut."""
    rows = [[plain(shorten(cell), "") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
