"""A number with its interval: t-intervals over seeds, contrasts, Fieller's ratio of two means, and tests.

Fieller's interval is made of all ratios r at which a t-test of "mean of y - r times mean of x is zero" does not
reject. For normal values in pairs that is exact however few there are; the delta method needs many, and an interval for
the mean of the single ratios answers another question (and is drawn to seeds with a small x). Runs of two methods with
the same seed share the data's shuffles, the scrambled labels and the first weights, so their areas go up and down
together: the paired form takes that part of the spread out.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis.rundata import Array
from headway.errors import MissingExtraError

CONFIDENCE = 0.95


def scipy_stats() -> Any:
    """The module scipy.stats, imported when it is first needed: it takes a second, and is an extra.

    Raises:
        MissingExtraError: SciPy is not installed.
    """
    try:
        return importlib.import_module("scipy.stats")
    except ImportError as error:
        raise MissingExtraError("scipy", "report") from error


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


def t_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of values [n] with its t-interval: mean -+ t(n - 1) s / sqrt(n), s with n - 1 below the line.

    A value that is not finite (a run that diverged) makes the mean NaN and the interval infinite: leaving it out
    would flatter the mean.
    """
    array = np.asarray(values, dtype=np.float64)
    if not len(array) or not np.isfinite(array).all():
        return unknown(len(array))
    mean, low, high = t_bounds(array[:, None], confidence)
    return Estimate(float(mean[0]), float(low[0]), float(high[0]), len(array))


def contrast(samples: Sequence[ArrayLike], weights: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """A weighted sum of the means of independent samples, with an interval.

    Its variance is the sum of w^2 s^2 / n, its degrees of freedom follow from Satterthwaite. With weights 1 and -1
    this is the interval of Welch's test; with 1, -1, -1, 1 that of a difference of differences.

    Returns:
        the sum; n is the size of the smallest sample, and the interval is infinite if that has a single value.
    """
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    n = min(map(len, arrays))
    if n < 1 or not all(np.isfinite(array).all() for array in arrays):
        return unknown(n)
    value = float(sum(w * a.mean() for w, a in zip(weights, arrays, strict=True)))
    if n < 2:
        return Estimate(value, -math.inf, math.inf, n)
    parts = [w * w * float(a.var(ddof=1)) / len(a) for w, a in zip(weights, arrays, strict=True)]
    variance = sum(parts)
    if variance == 0:
        return Estimate(value, value, value, n)
    df = variance**2 / sum(part**2 / (len(a) - 1) for part, a in zip(parts, arrays, strict=True))
    half = float(scipy_stats().t.ppf((1 + confidence) / 2, df)) * math.sqrt(variance)
    return Estimate(value, value - half, value + half, n)


def unknown(n: int) -> Estimate:
    """An estimate of which nothing is known."""
    return Estimate(math.nan, -math.inf, math.inf, n)


def t_bounds(values: ArrayLike, confidence: float = CONFIDENCE, ddof: int = 1) -> tuple[Array, Array, Array]:
    """Means and ends of t-intervals over the first axis: values [n, ...] -> three arrays [...].

    NaN marks a missing value. Where one value is left the interval is infinite, where none is left all three are NaN.
    An infinite value (a run that diverged) makes the mean NaN and the interval infinite.

    Args:
        values: the values, one row per seed.
        confidence: how often such intervals hold the true mean.
        ddof: 1 for the sample standard deviation, 0 for that of the population.
    """
    array = np.asarray(values, dtype=np.float64)
    there = ~np.isnan(array)
    n = there.sum(0)
    diverged = np.isinf(array).any(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(there, array, 0.0).sum(0) / n
        mean = np.where(diverged, np.nan, mean)
        squares = (np.where(there, array - mean, 0.0) ** 2).sum(0)
        quantile = scipy_stats().t.ppf((1 + confidence) / 2, np.maximum(n - 1, 1))
        half = quantile * np.sqrt(squares / (n - ddof)) / np.sqrt(n)
    half = np.where((n > 1) & ~diverged, half, np.inf)
    middle = np.where(diverged, 0.0, mean)
    return mean, np.where(n > 0, middle - half, np.nan), np.where(n > 0, middle + half, np.nan)


def ratio(y: ArrayLike, x: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The ratio mean(y) / mean(x) of paired values [n], with Fieller's interval.

    The ends solve (my - r mx)^2 = t(n - 1)^2 (syy - 2 r sxy + r^2 sxx) / n. It is infinite when there are fewer
    than two pairs, or when the mean of x cannot be told from zero.
    """
    a, b = np.asarray(y, dtype=np.float64), np.asarray(x, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"expected as many values above as below the line, got {len(a)} and {len(b)}")
    n = len(a)
    if n < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return _unbounded(a, b)
    cov = np.cov(a, b) / n
    return _fieller(a, b, float(cov[0, 0]), float(cov[0, 1]), float(cov[1, 1]), n - 1, n, confidence)


def unpaired_ratio(y: ArrayLike, x: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The same for values that do not come in pairs: y [n], x [m].

    The degrees of freedom are those of Welch's test of y against x times their ratio, which is an approximation: with
    two or three values on a side, intervals are a little too narrow.
    """
    a, b = np.asarray(y, dtype=np.float64), np.asarray(x, dtype=np.float64)
    return replace(_unpaired(a, b, confidence), unpaired=(len(a), len(b)))


def _unpaired(y: Array, x: Array, confidence: float) -> Estimate:
    if min(len(y), len(x)) < 2 or not (np.isfinite(y).all() and np.isfinite(x).all()):
        return _unbounded(y, x)
    var_y, var_x = float(y.var(ddof=1)) / len(y), float(x.var(ddof=1)) / len(x)
    scaled = (float(y.mean()) / float(x.mean())) ** 2 * var_x
    spread = var_y**2 / (len(y) - 1) + scaled**2 / (len(x) - 1)
    df = (var_y + scaled) ** 2 / spread if spread > 0 else len(y) + len(x) - 2
    return _fieller(y, x, var_y, 0.0, var_x, df, min(len(y), len(x)), confidence)


def _fieller(
    y: Array, x: Array, var_y: float, cov: float, var_x: float, df: float, n: int, confidence: float
) -> Estimate:
    """Solve a r^2 - 2 b r + c = 0 for the ends; the variances are those of the means."""
    my, mx = float(y.mean()), float(x.mean())
    t2 = float(scipy_stats().t.ppf((1 + confidence) / 2, df)) ** 2
    a, b, c = mx**2 - t2 * var_x, my * mx - t2 * cov, my**2 - t2 * var_y
    if a <= 0:
        return _unbounded(y, x)
    root = math.sqrt(max(0.0, b * b - a * c))
    return Estimate(my / mx, (b - root) / a, (b + root) / a, n)


def _unbounded(y: Array, x: Array) -> Estimate:
    n = min(len(y), len(x))
    if n < 1 or not (np.isfinite(y).all() and np.isfinite(x).all()):
        return unknown(n)
    return Estimate(float(y.mean() / x.mean()), -math.inf, math.inf, n)


STARS: Mapping[str, Sequence[tuple[float, str]]] = {
    "paper": ((0.001, "**"), (0.05, "*")),
    "released": ((0.001, "***"), (0.01, "**"), (0.05, "*")),
}
"""Marks of significance by convention: the first limit that p is below counts."""
NOT_SIGNIFICANT = "ns"


@dataclass(frozen=True)
class Welch:
    """Welch's t-test of two means."""

    t: float  #: the statistic; negative when the first mean is lower
    p: float  #: probability of one at least as far from zero if the means were equal (two-sided)
    df: float  #: degrees of freedom, after Welch and Satterthwaite
    difference: Estimate  #: first mean minus second, with its interval; n is the smaller of the two numbers of seeds


def welch(first: ArrayLike, second: ArrayLike, confidence: float = CONFIDENCE) -> Welch | None:
    """Compare the means of two samples that may differ in variance.

    Returns:
        the test, or None when there can be none; `why_untested` says why.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if why_untested(a, b):
        return None
    test = scipy_stats().ttest_ind(a, b, equal_var=False)
    interval = test.confidence_interval(confidence)
    difference = Estimate(float(a.mean() - b.mean()), float(interval.low), float(interval.high), min(len(a), len(b)))
    return Welch(float(test.statistic), float(test.pvalue), float(test.df), difference)


def why_untested(first: ArrayLike, second: ArrayLike) -> str:
    """Why Welch's test cannot compare two samples; empty if it can.

    There are fewer than two values, or one that is not finite, or both have no spread at all: then there is nothing to
    compare the difference with.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return "no test: a run diverged"
    if min(len(a), len(b)) < 2:
        return "too few seeds for a test"
    return "no test: no spread over seeds" if np.ptp(a) == 0 and np.ptp(b) == 0 else ""


def stars(p: float, convention: str = "released") -> str:
    """Mark a p-value.

    Args:
        p: the p-value.
        convention: "paper" (** p<0.001, * p<0.05) or "released" (*** p<0.001, ** p<0.01, * p<0.05).

    Raises:
        ValueError: there is no such convention.
    """
    if convention not in STARS:
        raise ValueError(f"expected a convention out of {', '.join(STARS)}, got {convention!r}")
    return next((mark for limit, mark in STARS[convention] if p < limit), NOT_SIGNIFICANT)


def holm(p_values: ArrayLike) -> Array:
    """Holm's adjusted p-values [k] -> [k]: reject those below alpha, and all k tests together err at rate alpha.

    With the p-values sorted, p(1) <= ... <= p(k): adjusted p(i) = max over j <= i of min(1, (k - j + 1) p(j)).
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    factors = np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p[order]))
    return adjusted
