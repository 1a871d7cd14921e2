"""Numbers and counts in words, as the page shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from headway.analysis.stats import Estimate


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers with runs of neighbours drawn together, such as "0–4, 7"."""
    ordered = sorted(set(numbers))
    parts: list[list[int]] = []
    for number in ordered:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}–{part[-1]}" for part in parts)


def listed(words: Iterable[str]) -> str:
    """Words with commas and an "and", such as "a, b and c"."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def number(value: float | None, form: str = ".4g") -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else format(value, form)


def interval(estimate: Estimate | None, form: str = ".4g") -> str:
    """The interval of a number, such as "[0.91, 0.95]"; a dash without one."""
    if estimate is None or not estimate.is_bounded:
        return "–"
    return f"[{estimate.low:{form}}, {estimate.high:{form}}]"


def compared(estimate: Estimate | None, seeds: int) -> str:
    """How many of the seeds a ratio rests on, such as "(1 of 2 seeds)"; nothing where each has its pair."""
    if estimate is None:
        return ""
    if estimate.unpaired and seeds > 1:
        return f"(unpaired, {estimate.unpaired[0]} against {estimate.unpaired[1]})"
    return f"({estimate.n} of {seeds} seeds)" if estimate.n < seeds else ""


def probability(p: float | None) -> str:
    """A p-value, as small as it makes sense to write it."""
    if p is None or not math.isfinite(p):
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def percent(value: float | None) -> str:
    """A share in percent."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.0f}%"
