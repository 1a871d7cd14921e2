"""A number with its interval, and t-intervals over seeds."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis.columns import Array
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
    """A number with an interval around it.

    Attributes:
        value: the number.
        low: lower end of the interval; minus infinity where there are too few values for one.
        high: upper end.
        n: the values that it rests on; of two samples that are not paired, the size of the smaller.
        unpaired: the sizes of both samples where they are not paired.
    """

    value: float
    low: float
    high: float
    n: int
    unpaired: tuple[int, int] | None = None

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
