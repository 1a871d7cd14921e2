"""Statistics over several conditions at once, with stratified bootstrap intervals; and times that some never reach.

Every function takes one array of scores per stratum (a condition, a dataset), each with a score per seed. The
bootstrap draws seeds with replacement within each stratum, so that every stratum keeps its weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis.rundata import Array
from headway.analysis.stats.intervals import CONFIDENCE, Estimate, scipy_stats, unknown

RESAMPLES = 2000


@dataclass(frozen=True)
class Profile:
    """The share of runs that reach each of some thresholds."""

    thresholds: Array  #: the thresholds [k]
    share: Array  #: the share of runs that reach each [k]
    low: Array  #: lower ends of its intervals [k], each for itself
    high: Array  #: upper ends [k]
    n: int  #: runs in all


def iqm(
    strata: Sequence[ArrayLike],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The interquartile mean: the mean of the middle half of all scores, the outer quarters left out.

    Args:
        strata: scores, one array per stratum.
        rng: what the bootstrap draws with.
        resamples: how many times it draws.
        confidence: of the interval.
    """

    def statistic(*samples: Array, axis: int = -1) -> Array:
        middle: Array = scipy_stats().trim_mean(np.concatenate(samples, axis), 0.25, axis)
        return middle

    return _bootstrap(strata, statistic, rng, resamples, confidence)


def relative_iqm(
    ours: Sequence[ArrayLike],
    baseline: Sequence[ArrayLike] | None,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The interquartile mean of scores divided by the baseline's mean score in the same stratum.

    The baseline's mean is an estimate too, so the bootstrap draws the baseline's scores as well as ours. A percentile
    interval of few scores is too narrow: with fewer than about ten per stratum read it as a rough one.

    Args:
        ours: scores, one array per stratum.
        baseline: scores of the baseline in the same strata; None if ours are the baseline's own.
        rng: what the bootstrap draws with.
        resamples: how many times it draws.
        confidence: of the interval.
    """
    strata = len(ours)
    if baseline is not None and len(baseline) != strata:
        raise ValueError(f"expected as many strata on both sides, got {strata} and {len(baseline)}")

    def statistic(*samples: Array, axis: int = -1) -> Array:
        pairs = zip(samples[:strata], samples[strata:] or samples, strict=True)
        scaled = [a / b.mean(axis, keepdims=True) for a, b in pairs]
        middle: Array = scipy_stats().trim_mean(np.concatenate(scaled, axis), 0.25, axis)
        return middle

    found = _bootstrap([*ours, *(baseline or ())], statistic, rng, resamples, confidence)
    return replace(found, n=sum(len(np.asarray(each)) for each in ours))


def probability_of_improvement(
    ours: Sequence[ArrayLike],
    theirs: Sequence[ArrayLike],
    rng: np.random.Generator,
    lower_is_better: bool = True,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """How likely a run of ours is better than one of theirs in a random stratum; a tie counts half.

    In a stratum with n and m runs this is the Mann-Whitney statistic divided by n m.

    Args:
        ours: scores, one array per stratum.
        theirs: scores of the others, in the same strata.
        rng: what the bootstrap draws with.
        lower_is_better: whether the lower of two scores is the better one.
        resamples: how many times the bootstrap draws.
        confidence: of the interval.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"expected as many strata on both sides, got {len(ours)} and {len(theirs)}")
    strata = len(ours)
    sign = 1.0 if lower_is_better else -1.0

    def statistic(*samples: Array, axis: int = -1) -> Array:
        pairs = zip(samples[:strata], samples[strata:], strict=True)
        chances = [_chance(sign * np.moveaxis(a, axis, -1), sign * np.moveaxis(b, axis, -1)) for a, b in pairs]
        mean: Array = np.mean(chances, axis=0)
        return mean

    return _bootstrap([*ours, *theirs], statistic, rng, resamples, confidence)


def performance_profile(
    strata: Sequence[ArrayLike],
    thresholds: ArrayLike,
    rng: np.random.Generator,
    lower_is_better: bool = True,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Profile:
    """The share of runs whose score is as good as each threshold, or better.

    The interval is infinite if a stratum has a single score.

    Args:
        strata: scores, one array per stratum.
        thresholds: the thresholds [k].
        rng: what the bootstrap draws with.
        lower_is_better: whether a score reaches a threshold from above. NaN reaches none.
        resamples: how many times the bootstrap draws.
        confidence: of the intervals.
    """
    limits = np.asarray(thresholds, dtype=np.float64)
    scores = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    n = sum(map(len, scores))
    reached = [s[:, None] <= limits if lower_is_better else s[:, None] >= limits for s in scores]
    drawn = np.zeros((resamples, len(limits)))
    for hits in reached:
        times = rng.multinomial(len(hits), np.full(len(hits), 1 / len(hits)), resamples)  # how often each run is drawn
        drawn += times @ hits
    low, high = np.quantile(drawn / n, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    if min(map(len, scores)) < 2:
        low, high = np.full(len(limits), -np.inf), np.full(len(limits), np.inf)
    share = np.sum([hits.sum(0) for hits in reached], axis=0) / n
    return Profile(limits, share, low, high, n)


def _chance(a: Array, b: Array) -> Array:
    """The share of pairs in which a is below b, ties as half: [..., n], [..., m] -> [...]."""
    below = a[..., :, None] < b[..., None, :]
    equal = a[..., :, None] == b[..., None, :]
    return np.asarray((below + 0.5 * equal).mean((-1, -2)))


def _bootstrap(
    strata: Sequence[ArrayLike],
    statistic: Callable[..., Any],
    rng: np.random.Generator,
    resamples: int,
    confidence: float,
) -> Estimate:
    """The statistic of the strata with its percentile interval; infinite if a stratum has a single score.

    A score that is not finite (a run that diverged) makes it unknown.
    """
    samples = [np.asarray(stratum, dtype=np.float64) for stratum in strata]
    if not samples or min(map(len, samples)) < 1:
        raise ValueError("expected at least one score in each stratum, got none")
    if not all(np.isfinite(sample).all() for sample in samples):
        return unknown(sum(map(len, samples)))
    value, n = float(statistic(*samples)), sum(map(len, samples))
    if min(map(len, samples)) < 2:
        return Estimate(value, -np.inf, np.inf, n)
    if all(np.ptp(sample) == 0 for sample in samples):
        return Estimate(value, value, value, n)
    found = scipy_stats().bootstrap(
        samples,
        statistic,
        n_resamples=resamples,
        batch=256,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        rng=rng,
    )
    return Estimate(value, float(found.confidence_interval.low), float(found.confidence_interval.high), n)


@dataclass(frozen=True)
class Survival:
    """How many runs are still on their way to a threshold, over time."""

    times: Array  #: the times at which runs got there [k], ascending
    remaining: Array  #: the estimated share that is not there yet just after each time [k]; 1 before the first
    median: float  #: the time at which half are there; infinite if it never comes to that
    horizon: float  #: up to when runs were looked at
    reached: int  #: runs that got there
    n: int  #: runs in all


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
