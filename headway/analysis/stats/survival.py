"""Time to a threshold when some runs never get there: Kaplan and Meier's estimate and the restricted mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis.columns import Array
from headway.analysis.stats.intervals import CONFIDENCE, Estimate
from headway.analysis.stats.scipy_stats import scipy_stats

LEAST_RUNS = 10
"""Fewer runs have no interval: Greenwood's variance with a normal quantile is far too narrow for them."""


@dataclass(frozen=True)
class Survival:
    """How many runs are still on their way to a threshold, over time.

    Attributes:
        times: the times at which runs got there [k], ascending.
        remaining: the estimated share that is not there yet just after each time [k]; 1 before the first.
        median: the time at which half are there; infinite if it never comes to that.
        restricted_mean: the mean time, where a run that takes longer than the horizon counts as the horizon; with an
            interval by Greenwood's formula, if there are at least ten runs and they differ.
        horizon: the horizon.
        reached: runs that got there.
        n: runs in all.
    """

    times: Array
    remaining: Array
    median: float
    restricted_mean: Estimate
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


def survival(
    times: ArrayLike, reached: ArrayLike, horizon: float | None = None, confidence: float = CONFIDENCE
) -> Survival:
    """Kaplan and Meier's estimate from times [n], of which some are only lower bounds.

    Args:
        times: when each run got there, or up to when it was looked at.
        reached: whether it got there [n].
        horizon: up to where the mean counts; the latest time if None. Use the same for methods to be compared.
        confidence: of the interval of the restricted mean.
    """
    when, there = np.asarray(times, dtype=np.float64), np.asarray(reached, dtype=bool)
    if not len(when) or when.shape != there.shape:
        raise ValueError(f"expected a time and a truth value for each run, got {when.shape} and {there.shape}")
    end = float(when.max()) if horizon is None else float(horizon)
    if not there.any():
        mean = Estimate(end, -math.inf, math.inf, len(when))
        return Survival(np.empty(0), np.empty(0), math.inf, mean, end, 0, len(when))
    stats = scipy_stats()
    curve = stats.ecdf(stats.CensoredData(uncensored=when[there], right=when[~there])).sf
    keep = np.isin(curve.quantiles, when[there])
    steps, remaining = curve.quantiles[keep], np.clip(curve.probabilities[keep], 0.0, 1.0)
    mean = _restricted_mean(when, there, steps, remaining, end, confidence)
    return Survival(steps, remaining, _median(steps, remaining), mean, end, int(there.sum()), len(when))


def compare_times(
    times: ArrayLike, reached: ArrayLike, other_times: ArrayLike, other_reached: ArrayLike
) -> float | None:
    """The p-value of the log-rank test that two methods take equally long; None if no run ever got there."""
    a, b = np.asarray(times, dtype=np.float64), np.asarray(other_times, dtype=np.float64)
    a_there, b_there = np.asarray(reached, dtype=bool), np.asarray(other_reached, dtype=bool)
    if not (a_there.any() or b_there.any()):
        return None
    stats = scipy_stats()
    first = stats.CensoredData(uncensored=a[a_there], right=a[~a_there])
    second = stats.CensoredData(uncensored=b[b_there], right=b[~b_there])
    return float(stats.logrank(first, second).pvalue)


def _median(steps: Array, remaining: Array) -> float:
    """When half of the runs are there; the middle of the time for which exactly half of them are, if that ends."""
    there = np.flatnonzero(remaining <= 0.5 + 1e-12)
    beyond = np.flatnonzero(remaining < 0.5 - 1e-12)
    if not len(there):
        return math.inf
    return float(steps[there[0]] + steps[beyond[0]]) / 2 if len(beyond) else float(steps[there[0]])


def _restricted_mean(
    when: Array, there: Array, steps: Array, remaining: Array, end: float, confidence: float
) -> Estimate:
    """The area under the curve up to the end, and Greenwood's variance of it.

    Its variance is the sum over the steps t of A(t)^2 d / (r (r - d)), with A(t) the area from t to the end, d the
    runs that got there at t, and r those that had not before.
    """
    inside = steps < end
    knots = np.concatenate([[0.0], steps[inside], [end]])
    heights = np.concatenate([[1.0], remaining[inside]])
    pieces = np.diff(knots) * heights
    rest = pieces[::-1].cumsum()[::-1][1:]  # the area from each step to the end
    variance = 0.0
    for step, area in zip(steps[inside], rest, strict=True):
        at_risk, got_there = int((when >= step).sum()), int((there & (when == step)).sum())
        if at_risk > got_there:
            variance += float(area) ** 2 * got_there / (at_risk * (at_risk - got_there))
    mean, n = float(pieces.sum()), len(when)
    if n < LEAST_RUNS or variance == 0:
        return Estimate(mean, -math.inf, math.inf, n)
    half = float(scipy_stats().norm.ppf((1 + confidence) / 2)) * math.sqrt(variance)
    return Estimate(mean, max(0.0, mean - half), min(end, mean + half), n)
