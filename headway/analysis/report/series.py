"""Curves as the page carries them: few digits, common positions, nothing where there is no number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headway.analysis.columns import Array
from headway.analysis.stats import Estimate
from headway.analysis.summaries import Band

DIGITS = 5
"""Digits of a number that the page keeps; the raw data has all."""

Numbers: TypeAlias = list[float | None]


def short(value: float) -> float | None:
    """A number with few digits; None for one that cannot be drawn."""
    if not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def shorts(values: Iterable[float]) -> Numbers:
    """Numbers with few digits."""
    return [short(float(value)) for value in values]


def whole(values: Iterable[float]) -> list[float]:
    """Positions, without a fraction where there is none."""
    return [int(value) if float(value).is_integer() else float(f"{value:.8g}") for value in values]


def curves(bands: Mapping[str, Band], *, seeds: bool = False, few: int = 0) -> tuple[list[float], list[dict[str, Any]]]:
    """Curves on common positions.

    Args:
        bands: the curves by key; they may have different positions.
        seeds: whether to give the single curves of each key too, where there are several.
        few: with fewer seeds than this, the single curves are drawn instead of the interval unless one asks for it.

    Returns:
        the positions, and a series for each key: "key", "n", "mean", "low" and "high" if there is an interval, and with
        single curves "seeds" and whether they are drawn at first, "single".
    """
    x = np.unique(np.concatenate([band.x for band in bands.values()] or [np.empty(0)]))
    found = []
    for key, band in bands.items():
        places = np.searchsorted(x, band.x)
        series: dict[str, Any] = {"key": key, "n": band.n, "mean": _spread(band.mean, places, len(x))}
        known = np.isfinite(band.low) & np.isfinite(band.high)
        if known.any():
            series["low"] = _spread(np.where(known, band.low, np.nan), places, len(x))
            series["high"] = _spread(np.where(known, band.high, np.nan), places, len(x))
        if seeds and band.singles is not None and band.n > 1:
            series["seeds"] = [_spread(curve, places, len(x)) for curve in band.singles]
            series["single"] = band.n < few
        found.append(series)
    return whole(x), found


def dots(
    estimates: Mapping[str, Estimate], keys: Sequence[str], seeds: Mapping[str, Sequence[float]] | None = None
) -> list[dict[str, Any]]:
    """Numbers with intervals, one place for each key: a series per number, empty at all other places."""
    found = []
    for key, estimate in estimates.items():
        place, size = keys.index(key), len(keys)
        series: dict[str, Any] = {"key": key, "n": estimate.n, "mean": _at(estimate.value, place, size)}
        if estimate.is_bounded:
            series |= {"low": _at(estimate.low, place, size), "high": _at(estimate.high, place, size)}
        if seeds and len(seeds.get(key, ())) > 1:
            series["seeds"] = [_at(value, place, size) for value in seeds[key]]
        found.append(series)
    return found


def _at(value: float, place: int, size: int) -> Numbers:
    return [short(value) if each == place else None for each in range(size)]


def _spread(values: Array, places: Array, size: int) -> Numbers:
    """Put values at their places among all positions."""
    full = np.full(size, np.nan)
    full[places] = values
    return shorts(full)
