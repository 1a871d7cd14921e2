"""The ratio of two means with an interval that is right for few seeds, after Fieller.

The interval is made of all ratios r at which a t-test of "mean of y - r times mean of x is zero" does not reject. For
normal values in pairs that is exact however few there are; the delta method needs many, and an interval for the mean
of the single ratios answers another question (and is drawn to seeds with a small x). Runs of two methods with the same
seed share the data's shuffles, the scrambled labels and the first weights, so their areas go up and down together: the
paired form takes that part of the spread out.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis.columns import Array
from headway.analysis.stats.intervals import CONFIDENCE, Estimate, scipy_stats, unknown


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
