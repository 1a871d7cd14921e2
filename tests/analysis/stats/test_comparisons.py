from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from headway.analysis.stats import holm, stars, welch, why_untested


def test_welch_by_hand() -> None:
    # means 2 and 6; variances 1 and 4, n = 3 and 3: t = -4 / sqrt(1/3 + 4/3) = -3.098387
    # df = (5/3)^2 / ((1/3)^2/2 + (4/3)^2/2) = 50/17
    test = welch([1.0, 2.0, 3.0], [4.0, 6.0, 8.0])
    assert test is not None
    assert test.t == pytest.approx(-3.098387, abs=1e-6)
    assert test.df == pytest.approx(50 / 17)
    assert test.p == pytest.approx(2 * stats.t.cdf(test.t, 50 / 17))
    assert test.difference.value == -4
    assert test.difference.n == 3


def test_welch_as_scipy_has_it() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=20), rng.normal(0.5, 3, size=17)
    expected = stats.ttest_ind(first, second, equal_var=False)
    test = welch(first, second)
    assert test is not None
    assert (test.t, test.p) == pytest.approx((expected.statistic, expected.pvalue))


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ([1.0], [1.0, 2.0], "too few seeds for a test"),
        ([], [1.0, 2.0], "too few seeds for a test"),
        ([1.0, 1.0], [2.0, 2.0], "no test: no spread over seeds"),
        ([1.0, math.nan], [2.0, 3.0], "no test: a run diverged"),
        ([1.0, 2.0], [2.0, math.inf], "no test: a run diverged"),
    ],
)
def test_what_cannot_be_compared(first: list[float], second: list[float], why: str) -> None:
    assert welch(first, second) is None
    assert why_untested(first, second) == why


def test_what_can_be_compared() -> None:
    assert welch([1.0, 1.5], [2.0, 3.0]) is not None
    assert why_untested([1.0, 1.5], [2.0, 3.0]) == ""


@pytest.mark.parametrize(
    ("p", "paper", "released"),
    [
        (0.0, "**", "***"),
        (0.0009, "**", "***"),
        (0.001, "*", "**"),
        (0.009, "*", "**"),
        (0.01, "*", "*"),
        (0.049, "*", "*"),
        (0.05, "ns", "ns"),
        (1.0, "ns", "ns"),
    ],
)
def test_stars(p: float, paper: str, released: str) -> None:
    assert stars(p, "paper") == paper
    assert stars(p, "released") == stars(p) == released


def test_an_unknown_convention() -> None:
    with pytest.raises(ValueError, match="expected a convention out of paper, released, got 'x'"):
        stars(0.5, "x")


def test_holm_by_hand() -> None:
    # sorted: 0.01, 0.02, 0.03, 0.5, times 4, 3, 2, 1: 0.04, 0.06, 0.06 and 0.5; each at least the one before
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


def test_holm_stays_below_one_and_in_order() -> None:
    assert holm([0.9, 0.8, 0.7]) == pytest.approx([1, 1, 1])
    assert holm([0.3]) == pytest.approx([0.3])
    assert holm([]).shape == (0,)
    p = np.random.default_rng(0).random(30)
    adjusted = holm(p)
    assert (adjusted >= p).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= 0).all()


def test_holm_rejects_what_the_stepwise_procedure_rejects() -> None:
    p = np.random.default_rng(1).random(40) ** 4
    rejected = set()
    for step, place in enumerate(np.argsort(p)):
        if p[place] > 0.05 / (len(p) - step):
            break
        rejected.add(place)
    assert set(np.flatnonzero(holm(p) <= 0.05)) == rejected
