from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from headway.analysis.stats import Estimate, contrast, t_bounds, t_interval

RNG = np.random.default_rng(1)


def test_a_t_interval_by_hand() -> None:
    # mean 4; squares 4 + 0 + 4 = 8, s = 2; t(0.975, 2) = 4.302653; half = 4.302653 * 2 / sqrt(3) = 4.968276
    estimate = t_interval([2.0, 4.0, 6.0])
    assert estimate.value == 4
    assert estimate.low == pytest.approx(4 - 4.968276, abs=1e-6)
    assert estimate.high == pytest.approx(4 + 4.968276, abs=1e-6)
    assert estimate.n == 3


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_a_t_interval_as_scipy_has_it(confidence: float) -> None:
    values = RNG.normal(size=7)
    expected = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    estimate = t_interval(values, confidence)
    assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_too_few_values() -> None:
    assert t_interval([3.0]) == Estimate(3.0, -math.inf, math.inf, 1)
    nothing = t_interval([])
    assert math.isnan(nothing.value)
    assert not nothing.is_bounded


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert t_interval([0.1, 0.1, 0.1]) == Estimate(pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.1), 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_not_passed_over(bad: float) -> None:
    estimate = t_interval([1.0, 2.0, bad])
    assert math.isnan(estimate.value)
    assert not estimate.is_bounded
    assert not contrast([[1.0, 2.0], [bad, 1.0]], (1, -1)).is_bounded


def test_bounds_over_the_first_axis_leave_out_what_is_missing() -> None:
    values = RNG.normal(size=(5, 4))
    values[3:, 1] = np.nan
    values[1:, 2] = np.nan
    values[:, 3] = np.nan
    mean, low, high = t_bounds(values)
    for column, rows in ((0, 5), (1, 3)):
        expected = t_interval(values[:rows, column])
        assert (mean[column], low[column], high[column]) == pytest.approx(
            (expected.value, expected.low, expected.high), rel=1e-12
        )
    assert (mean[2], low[2], high[2]) == (values[0, 2], -np.inf, np.inf)
    assert np.isnan([mean[3], low[3], high[3]]).all()


def test_the_deviation_of_the_population() -> None:
    _, low, high = t_bounds([[2.0], [4.0], [6.0]], ddof=0)
    assert high[0] - low[0] == pytest.approx(2 * 4.968276 * math.sqrt(2 / 3), abs=1e-5)


def test_a_contrast_of_two_is_welchs_interval() -> None:
    first, second = RNG.normal(size=6), RNG.normal(1, 3, size=9)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.9)
    estimate = contrast([first, second], (1, -1), 0.9)
    assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert estimate.n == 6


def test_a_difference_of_differences_by_hand() -> None:
    # means 2, 1, 5, 3: (2 - 1) - (5 - 3) = -1. Each variance is 2, n = 2: the sum is 4 * 2 / 2 = 4.
    # df = 4^2 / (4 * 1^2 / 1) = 4; t(0.975, 4) = 2.776445; half = 2.776445 * 2
    samples = [[1.0, 3.0], [0.0, 2.0], [4.0, 6.0], [2.0, 4.0]]
    estimate = contrast(samples, (1, -1, -1, 1))
    assert estimate.value == -1
    assert estimate.high == pytest.approx(-1 + 2 * 2.776445, abs=1e-5)


def test_a_contrast_of_few_or_equal_values() -> None:
    assert contrast([[1.0], [2.0, 3.0]], (1, -1)) == Estimate(-1.5, -math.inf, math.inf, 1)
    assert contrast([[1.0, 1.0], [3.0, 3.0]], (1, -1)) == Estimate(-2.0, -2.0, -2.0, 2)


def test_what_an_interval_says() -> None:
    estimate = Estimate(1.0, 0.5, 2.0, 3)
    assert estimate.covers(0.5)
    assert estimate.covers(2)
    assert not estimate.covers(2.1)
    assert estimate.is_above(0.4)
    assert not estimate.is_above(0.5)
    assert estimate.is_below(2.5)
    assert estimate.text(".2f") == "1.00 [0.50, 2.00]"
    assert Estimate(1.0, -math.inf, math.inf, 1).text(".2f") == "1.00"
    assert Estimate(math.nan, math.nan, math.nan, 0).covers(7)


@pytest.mark.slow
def test_intervals_hold_the_mean_as_often_as_they_say() -> None:
    _, low, high = t_bounds(np.random.default_rng(0).normal(3, 2, size=(4, 20_000)))
    assert ((low < 3) & (high > 3)).mean() == pytest.approx(0.95, abs=0.006)
