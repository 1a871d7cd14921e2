"""Time to a threshold when some runs never get there: Kaplan and Meier's estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis.columns import Array
from headway.analysis.stats.intervals import scipy_stats


@dataclass(frozen=True)
class Survival:
    """How many runs are still on their way to a threshold, over time.

    Attributes:
        times: the times at which runs got there [k], ascending.
        remaining: the estimated share that is not there yet just after each time [k]; 1 before the first.
        median: the time at which half are there; infinite if it never comes to that.
        horizon: up to when runs were looked at.
        reached: runs that got there.
        n: runs in all.
    """

    times: Array
    remaining: Array
    median: float
    horizon: float
    reached: int
    n: int


def time_to_threshold(
    x: ArrayLike, curve: ArrayLike, threshold: float, lower_is_better: bool = True
) -> tuple[float, bool]:
    """When a curve first reaches a threshold.

    Args:
        x: times [k], ascending.
        curve: values [k]; NaN reaches nothing.
        threshold: the threshold.
        lower_is_better: whether the curve reaches it from above.

    Returns:
        the time and True; or the last time and False: the run is censored, it takes longer than was looked at.
    """
    times, values = np.asarray(x, dtype=np.float64), np.asarray(curve, dtype=np.float64)
    if not len(times):
        raise ValueError("expected a curve with at least one point, got none")
    there = np.flatnonzero(values <= threshold if lower_is_better else values >= threshold)
    return (float(times[there[0]]), True) if len(there) else (float(times[-1]), False)


def survival(times: ArrayLike, reached: ArrayLike, horizon: float | None = None) -> Survival:
    """Kaplan and Meier's estimate from times [n], of which some are only lower bounds.

    Args:
        times: when each run got there, or up to when it was looked at.
        reached: whether it got there [n].
        horizon: up to when runs were looked at; the latest time if None.
    """
    when, there = np.asarray(times, dtype=np.float64), np.asarray(reached, dtype=bool)
    if not len(when) or when.shape != there.shape:
        raise ValueError(f"expected a time and a truth value for each run, got {when.shape} and {there.shape}")
    end = float(when.max()) if horizon is None else float(horizon)
    if not there.any():
        return Survival(np.empty(0), np.empty(0), math.inf, end, 0, len(when))
    stats = scipy_stats()
    curve = stats.ecdf(stats.CensoredData(uncensored=when[there], right=when[~there])).sf
    keep = np.isin(curve.quantiles, when[there])
    steps, remaining = curve.quantiles[keep], np.clip(curve.probabilities[keep], 0.0, 1.0)
    return Survival(steps, remaining, _median(steps, remaining), end, int(there.sum()), len(when))


def _median(steps: Array, remaining: Array) -> float:
    """When half of the runs are there; the middle of the time for which exactly half of them are, if that ends."""
    there = np.flatnonzero(remaining <= 0.5 + 1e-12)
    beyond = np.flatnonzero(remaining < 0.5 - 1e-12)
    if not len(there):
        return math.inf
    return float(steps[there[0]] + steps[beyond[0]]) / 2 if len(beyond) else float(steps[there[0]])
