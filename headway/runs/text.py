"""Counts and times in words, the same in every listing, display and report."""

from __future__ import annotations

import math

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
