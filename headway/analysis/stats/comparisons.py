"""Are two sets of seeds different: Welch's t-test, Holm's correction for many tests, and stars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headway.analysis.columns import Array
from headway.analysis.stats.intervals import CONFIDENCE, Estimate, scipy_stats

STARS: Mapping[str, Sequence[tuple[float, str]]] = {
    "paper": ((0.001, "**"), (0.05, "*")),
    "released": ((0.001, "***"), (0.01, "**"), (0.05, "*")),
}
"""Marks of significance by convention: the first limit that p is below counts."""
NOT_SIGNIFICANT = "ns"


@dataclass(frozen=True)
class Welch:
    """Welch's t-test of two means.

    Attributes:
        t: the statistic; negative when the first mean is lower.
        p: probability of one at least as far from zero if the means were equal (two-sided).
        df: degrees of freedom, after Welch and Satterthwaite.
        difference: first mean minus second, with its interval; n is the smaller of the two numbers of seeds.
    """

    t: float
    p: float
    df: float
    difference: Estimate


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
