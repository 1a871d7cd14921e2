"""Statistics over seeds: intervals, tests, ratios, aggregates over several conditions, and times with censoring.

Fieller's interval of a ratio is made of all ratios r at which a t-test of "mean of y - r times mean of x is zero" does
not reject. For normal values in pairs that is exact however few there are; the delta method needs many, and an interval
for the mean of the single ratios answers another question (and is drawn to seeds with a small x). Runs of two methods
with the same seed share the data's shuffles, the scrambled labels and the first weights, so their areas go up and down
together: the paired form takes that part of the spread out.

Aggregates over conditions take one array of scores per stratum (a condition, a dataset), each with a score per seed.
Their bootstrap draws seeds with replacement within each stratum, so that every stratum keeps its weight: `resamples`
times, with the generator `rng`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from headway.analysis.rundata import Array
from headway.errors import import_extra

CONFIDENCE = 0.95  #: How often an interval holds the true value, unless told otherwise
RESAMPLES = 2000
Strata: TypeAlias = Sequence[ArrayLike]
STARS: Mapping[str, Sequence[tuple[float, str]]] = {
    "paper": ((0.001, "**"), (0.05, "*")),
    "released": ((0.001, "***"), (0.01, "**"), (0.05, "*")),
}
"""Marks of significance by convention: the first limit that p is below counts. Above all of them it is "ns"."""


def scipy_stats() -> Any:
    """The module scipy.stats, imported when it is first needed: it takes a second, and is an extra."""
    return import_extra("scipy.stats", "report")


@dataclass(frozen=True)
class Estimate:
    """A number with an interval around it."""

    value: float  #: the number
    low: float  #: lower end of the interval; minus infinity where there are too few values for one
    high: float  #: upper end
    n: int  #: the values that it rests on; of two samples that are not paired, the size of the smaller
    unpaired: tuple[int, int] | None = None  #: the sizes of both samples where they are not paired

    @property
    def is_bounded(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def covers(self, number: float) -> bool:
        """Whether the number is a possible value: in the interval, its ends included."""
        return not (self.low > number or self.high < number)

    def is_above(self, number: float) -> bool:
        """Whether all of the interval is above the number."""
        return self.low > number

    def is_below(self, number: float) -> bool:
        """Whether all of the interval is below the number."""
        return self.high < number

    def text(self, form: str = ".3g") -> str:
        """Write it as "0.93 [0.91, 0.95]", or as the number alone if there is no interval."""
        if not self.is_bounded:
            return format(self.value, form)
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"


def unknown(n: int) -> Estimate:
    """An estimate of which nothing is known."""
    return Estimate(math.nan, -math.inf, math.inf, n)


def _floats(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


def _are_finite(*samples: Array) -> bool:
    return all(np.isfinite(sample).all() for sample in samples)


def t_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of values [n] with its t-interval: mean -+ t(n - 1) s / sqrt(n), s with n - 1 below the line.

    A value that is not finite (a run that diverged) makes the mean NaN and the interval infinite: leaving it out
    would flatter the mean.
    """
    array = _floats(values)
    if not len(array) or not _are_finite(array):
        return unknown(len(array))
    mean, low, high = t_bounds(array[:, None], confidence)
    return Estimate(float(mean[0]), float(low[0]), float(high[0]), len(array))


def t_bounds(values: ArrayLike, confidence: float = CONFIDENCE, ddof: int = 1) -> tuple[Array, Array, Array]:
    """Means and ends of t-intervals over the first axis: values [n, ...] -> three arrays [...].

    NaN marks a missing value. Where one value is left the interval is infinite, where none is left all three are NaN.
    An infinite value (a run that diverged) makes the mean NaN and the interval infinite. The standard deviation is that
    of the sample with `ddof` 1, and that of the population with 0.
    """
    array = _floats(values)
    there = ~np.isnan(array)
    n = there.sum(0)
    diverged = np.isinf(array).any(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(diverged, np.nan, np.where(there, array, 0.0).sum(0) / n)
        squares = (np.where(there, array - mean, 0.0) ** 2).sum(0)
        quantile = scipy_stats().t.ppf((1 + confidence) / 2, np.maximum(n - 1, 1))
        half = quantile * np.sqrt(squares / (n - ddof)) / np.sqrt(n)
    half = np.where((n > 1) & ~diverged, half, np.inf)
    middle = np.where(diverged, 0.0, mean)
    return mean, np.where(n > 0, middle - half, np.nan), np.where(n > 0, middle + half, np.nan)


def contrast(samples: Sequence[ArrayLike], weights: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """A weighted sum of the means of independent samples, with an interval.

    Its variance is the sum of w^2 s^2 / n, its degrees of freedom follow from Satterthwaite. With weights 1 and -1
    this is the interval of Welch's test; with 1, -1, -1, 1 that of a difference of differences. `n` is the size of the
    smallest sample; the interval is infinite if that has a single value.
    """
    arrays = list(map(_floats, samples))
    n = min(map(len, arrays))
    if n < 1 or not _are_finite(*arrays):
        return unknown(n)
    value = float(sum(w * a.mean() for w, a in zip(weights, arrays, strict=True)))
    if n < 2:
        return Estimate(value, -math.inf, math.inf, n)
    parts = [w * w * float(a.var(ddof=1)) / len(a) for w, a in zip(weights, arrays, strict=True)]
    if (variance := sum(parts)) == 0:
        return Estimate(value, value, value, n)
    df = variance**2 / sum(part**2 / (len(a) - 1) for part, a in zip(parts, arrays, strict=True))
    half = float(scipy_stats().t.ppf((1 + confidence) / 2, df)) * math.sqrt(variance)
    return Estimate(value, value - half, value + half, n)


def ratio(y: ArrayLike, x: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The ratio mean(y) / mean(x) of paired values [n], with Fieller's interval.

    The ends solve (my - r mx)^2 = t(n - 1)^2 (syy - 2 r sxy + r^2 sxx) / n. It is infinite when there are fewer
    than two pairs, or when the mean of x cannot be told from zero.
    """
    a, b = _floats(y), _floats(x)
    if a.shape != b.shape:
        raise ValueError(f"expected as many values above as below the line, got {len(a)} and {len(b)}")
    if len(a) < 2 or not _are_finite(a, b):
        return _unbounded(a, b)
    cov = np.cov(a, b) / len(a)
    return _fieller(a, b, float(cov[0, 0]), float(cov[0, 1]), float(cov[1, 1]), len(a) - 1, confidence)


def unpaired_ratio(y: ArrayLike, x: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The same for values that do not come in pairs: y [n], x [m].

    The degrees of freedom are those of Welch's test of y against x times their ratio, which is an approximation: with
    two or three values on a side, intervals are a little too narrow.
    """
    a, b = _floats(y), _floats(x)
    sizes = len(a), len(b)
    if min(sizes) < 2 or not _are_finite(a, b):
        return replace(_unbounded(a, b), unpaired=sizes)
    var_y, var_x = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    scaled = (float(a.mean()) / float(b.mean())) ** 2 * var_x
    spread = var_y**2 / (len(a) - 1) + scaled**2 / (len(b) - 1)
    df = (var_y + scaled) ** 2 / spread if spread > 0 else len(a) + len(b) - 2
    return replace(_fieller(a, b, var_y, 0.0, var_x, df, confidence), unpaired=sizes)


def _fieller(y: Array, x: Array, var_y: float, cov: float, var_x: float, df: float, confidence: float) -> Estimate:
    """Solve a r^2 - 2 b r + c = 0 for the ends; the variances are those of the means."""
    my, mx = float(y.mean()), float(x.mean())
    t2 = float(scipy_stats().t.ppf((1 + confidence) / 2, df)) ** 2
    a, b, c = mx**2 - t2 * var_x, my * mx - t2 * cov, my**2 - t2 * var_y
    if a <= 0:
        return _unbounded(y, x)
    root = math.sqrt(max(0.0, b * b - a * c))
    return Estimate(my / mx, (b - root) / a, (b + root) / a, min(len(y), len(x)))


def _unbounded(y: Array, x: Array) -> Estimate:
    n = min(len(y), len(x))
    if n < 1 or not _are_finite(y, x):
        return unknown(n)
    return Estimate(float(y.mean() / x.mean()), -math.inf, math.inf, n)


@dataclass(frozen=True)
class Welch:
    """Welch's t-test of two means."""

    t: float  #: the statistic; negative when the first mean is lower
    p: float  #: probability of one at least as far from zero if the means were equal (two-sided)
    df: float  #: degrees of freedom, after Welch and Satterthwaite
    difference: Estimate  #: first mean minus second, with its interval; n is the smaller of the two numbers of seeds


def welch(first: ArrayLike, second: ArrayLike, confidence: float = CONFIDENCE) -> Welch | None:
    """Compare the means of two samples that may differ in variance; None where `why_untested` says why not."""
    a, b = _floats(first), _floats(second)
    if why_untested(a, b):
        return None
    test = scipy_stats().ttest_ind(a, b, equal_var=False)
    interval = test.confidence_interval(confidence)
    difference = Estimate(float(a.mean() - b.mean()), float(interval.low), float(interval.high), min(len(a), len(b)))
    return Welch(float(test.statistic), float(test.pvalue), float(test.df), difference)


def why_untested(first: ArrayLike, second: ArrayLike) -> str:
    """Why Welch's test cannot compare two samples, such as that there is no spread to compare with; empty if it can."""
    a, b = _floats(first), _floats(second)
    if not _are_finite(a, b):
        return "no test: a run diverged"
    if min(len(a), len(b)) < 2:
        return "too few seeds for a test"
    return "no test: no spread over seeds" if np.ptp(a) == 0 and np.ptp(b) == 0 else ""


def stars(p: float, convention: str = "released") -> str:
    """Mark a p-value by a convention out of `STARS`."""
    if convention not in STARS:
        raise ValueError(f"expected a convention out of {', '.join(STARS)}, got {convention!r}")
    return next((mark for limit, mark in STARS[convention] if p < limit), "ns")


def holm(p_values: ArrayLike) -> Array:
    """Holm's adjusted p-values [k] -> [k]: reject those below alpha, and all k tests together err at rate alpha.

    With the p-values sorted, p(1) <= ... <= p(k): adjusted p(i) = max over j <= i of min(1, (k - j + 1) p(j)).
    """
    p = _floats(p_values)
    order = np.argsort(p)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(np.arange(len(p), 0, -1) * p[order]))
    return adjusted


def iqm(strata: Strata, rng: Generator, resamples: int = RESAMPLES) -> Estimate:
    """The interquartile mean: the mean of the middle half of all scores, the outer quarters left out."""
    return _bootstrap(strata, _middle, rng, resamples)


def relative_iqm(ours: Strata, baseline: Strata | None, rng: Generator, resamples: int = RESAMPLES) -> Estimate:
    """The interquartile mean of scores divided by the baseline's mean score in the same stratum.

    Without a baseline ours are its own scores. The baseline's mean is an estimate too, so the bootstrap draws the
    baseline's scores as well as ours. A percentile interval of few scores is too narrow: with fewer than about ten per
    stratum read it as a rough one.
    """
    strata = len(ours)
    if baseline is not None and len(baseline) != strata:
        raise ValueError(f"expected as many strata on both sides, got {strata} and {len(baseline)}")

    def statistic(*samples: Array, axis: int = -1) -> Array:
        pairs = zip(samples[:strata], samples[strata:] or samples, strict=True)
        return _middle(*(a / b.mean(axis, keepdims=True) for a, b in pairs), axis=axis)

    found = _bootstrap([*ours, *(baseline or ())], statistic, rng, resamples)
    return replace(found, n=sum(map(np.size, ours)))


def _middle(*samples: Array, axis: int = -1) -> Array:
    """The mean of the middle half of all samples together."""
    mean: Array = scipy_stats().trim_mean(np.concatenate(samples, axis), 0.25, axis)
    return mean


def probability_of_improvement(
    ours: Strata, theirs: Strata, rng: Generator, lower_is_better: bool = True, resamples: int = RESAMPLES
) -> Estimate:
    """How likely a run of ours is better than one of theirs in a random stratum; a tie counts half.

    In a stratum with n and m runs this is the Mann-Whitney statistic divided by n m.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"expected as many strata on both sides, got {len(ours)} and {len(theirs)}")
    sign = 0.5 if lower_is_better else -0.5

    def statistic(*samples: Array, axis: int = -1) -> Array:
        chances = []
        for a, b in zip(samples[: len(ours)], samples[len(ours) :], strict=True):
            above = np.moveaxis(b, axis, -1)[..., None, :] - np.moveaxis(a, axis, -1)[..., :, None]
            chances.append((0.5 + sign * np.sign(above)).mean((-1, -2)))
        return np.asarray(np.mean(chances, axis=0))

    return _bootstrap([*ours, *theirs], statistic, rng, resamples)


def _bootstrap(strata: Strata, statistic: Callable[..., Any], rng: Generator, resamples: int) -> Estimate:
    """The statistic of the strata with its percentile interval; infinite if a stratum has a single score.

    A score that is not finite (a run that diverged) makes it unknown.
    """
    samples = list(map(_floats, strata))
    if not samples or min(map(len, samples)) < 1:
        raise ValueError("expected at least one score in each stratum, got none")
    n = sum(map(len, samples))
    if not _are_finite(*samples):
        return unknown(n)
    value = float(statistic(*samples))
    if min(map(len, samples)) < 2:
        return Estimate(value, -np.inf, np.inf, n)
    if all(np.ptp(sample) == 0 for sample in samples):
        return Estimate(value, value, value, n)
    options: dict[str, Any] = {"confidence_level": CONFIDENCE, "method": "percentile", "vectorized": True, "batch": 256}
    found = scipy_stats().bootstrap(samples, statistic, n_resamples=resamples, rng=rng, **options).confidence_interval
    return Estimate(value, float(found.low), float(found.high), n)


@dataclass(frozen=True)
class Profile:
    """The share of runs that reach each of some thresholds."""

    thresholds: Array  #: the thresholds [k]
    share: Array  #: the share of runs that reach each [k]
    low: Array  #: lower ends of its intervals [k], each for itself
    high: Array  #: upper ends [k]
    n: int  #: runs in all


def performance_profile(
    strata: Strata, thresholds: ArrayLike, rng: Generator, lower_is_better: bool = True, resamples: int = RESAMPLES
) -> Profile:
    """The share of runs whose score is as good as each threshold [k], or better; NaN reaches none.

    The interval is infinite if a stratum has a single score.
    """
    limits = _floats(thresholds)
    scores = list(map(_floats, strata))
    n = sum(map(len, scores))
    reached = [s[:, None] <= limits if lower_is_better else s[:, None] >= limits for s in scores]
    drawn = np.zeros((resamples, len(limits)))
    for hits in reached:
        times = rng.multinomial(len(hits), np.full(len(hits), 1 / len(hits)), resamples)  # how often each run is drawn
        drawn += times @ hits
    low, high = np.quantile(drawn / n, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    if min(map(len, scores)) < 2:
        low, high = np.full(len(limits), -np.inf), np.full(len(limits), np.inf)
    share = np.sum([hits.sum(0) for hits in reached], axis=0) / n
    return Profile(limits, share, low, high, n)


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
    """When a curve [k] over ascending times x [k] first reaches a threshold; NaN reaches nothing.

    Returns:
        the time and True; or the last time and False: the run is censored, it takes longer than was looked at.
    """
    times, values = _floats(x), _floats(curve)
    if not len(times):
        raise ValueError("expected a curve with at least one point, got none")
    there = np.flatnonzero(values <= threshold if lower_is_better else values >= threshold)
    return (float(times[there[0]]), True) if len(there) else (float(times[-1]), False)


def survival(times: ArrayLike, reached: ArrayLike, horizon: float | None = None) -> Survival:
    """Kaplan and Meier's estimate from times [n], which are only lower bounds where a run was not `reached` [n].

    The horizon is up to when runs were looked at; the latest time by default.
    """
    when, there = _floats(times), np.asarray(reached, dtype=bool)
    if not len(when) or when.shape != there.shape:
        raise ValueError(f"expected a time and a truth value for each run, got {when.shape} and {there.shape}")
    end = float(when.max()) if horizon is None else float(horizon)
    if not there.any():
        return Survival(np.empty(0), np.empty(0), math.inf, end, 0, len(when))
    stats = scipy_stats()
    curve = stats.ecdf(stats.CensoredData(uncensored=when[there], right=when[~there])).sf
    keep = np.isin(curve.quantiles, when[there])
    steps, remaining = curve.quantiles[keep], np.clip(curve.probabilities[keep], 0.0, 1.0)
    half, beyond = steps[remaining <= 0.5 + 1e-12], steps[remaining < 0.5 - 1e-12]
    # The middle of the time for which exactly half of the runs are there, if that ends.
    median = float(np.mean([half[0], *beyond[:1]])) if len(half) else math.inf
    return Survival(steps, remaining, median, end, int(there.sum()), len(when))
