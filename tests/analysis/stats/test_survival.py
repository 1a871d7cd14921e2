from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
from scipy import integrate, stats

from headway.analysis.stats import compare_times, survival, time_to_threshold


def test_when_a_curve_gets_there() -> None:
    x, curve = [10.0, 20.0, 30.0, 40.0], [2.0, 1.0, 0.5, 0.9]
    assert time_to_threshold(x, curve, 1.0) == (20.0, True)
    assert time_to_threshold(x, curve, 0.4) == (40.0, False)
    assert time_to_threshold(x, curve, 1.5, lower_is_better=False) == (10.0, True)
    assert time_to_threshold(x, [math.nan, math.nan, 3.0, 4.0], 3.5, lower_is_better=False) == (40.0, True)
    assert time_to_threshold(x, [math.nan] * 4, 3.5) == (40.0, False)
    with pytest.raises(ValueError, match="expected a curve with at least one point"):
        time_to_threshold([], [], 1.0)


def test_kaplan_and_meier_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # at 1: 5 on their way, 1 gets there: 4/5. At 2 one is censored. At 3: 3 on their way, 1: 4/5 * 2/3 = 8/15.
    # At 4: 2, 1: 4/15. At 5 the last is censored.
    module = importlib.import_module("headway.analysis.stats.survival")  # the function has the same name
    monkeypatch.setattr(module, "LEAST_RUNS", 5)
    found = survival([1, 2, 3, 4, 5], [True, False, True, True, False])
    assert found.times == pytest.approx([1, 3, 4])
    assert found.remaining == pytest.approx([4 / 5, 8 / 15, 4 / 15])
    assert found.median == 4
    assert (found.reached, found.n, found.horizon) == (3, 5, 5)
    # area: 1 * 1 + 2 * 4/5 + 1 * 8/15 + 1 * 4/15 = 3.4
    assert found.restricted_mean.value == pytest.approx(3.4)
    # Greenwood: areas behind the steps 2.4, 0.8, 4/15; terms 1/(5*4), 1/(3*2), 1/(2*1)
    variance = 2.4**2 / 20 + 0.8**2 / 6 + (4 / 15) ** 2 / 2
    assert found.restricted_mean.low == pytest.approx(3.4 - 1.959964 * math.sqrt(variance), abs=1e-6)
    assert found.restricted_mean.high == pytest.approx(3.4 + 1.959964 * math.sqrt(variance), abs=1e-6)


def test_an_earlier_horizon() -> None:
    found = survival([1, 2, 3, 4, 5], [True, False, True, True, False], horizon=3.5)
    assert found.restricted_mean.value == pytest.approx(1 + 2 * 4 / 5 + 0.5 * 8 / 15)


def test_without_censoring_the_mean_is_the_mean() -> None:
    times = np.array([3.0, 1.0, 4.0, 1.0, 5.0] * 2)
    found = survival(times, [True] * 10)
    assert found.restricted_mean.value == pytest.approx(times.mean())
    assert found.median == 3
    # Greenwood's variance is then that of the population, over n
    half = 1.959964 * times.std() / math.sqrt(10)
    assert found.restricted_mean.low == pytest.approx(times.mean() - half, abs=1e-5)


def test_as_scipy_has_it() -> None:
    rng = np.random.default_rng(0)
    times, limits = rng.exponential(10, 40), rng.uniform(5, 20, 40)
    reached = times <= limits
    seen = np.minimum(times, limits)
    found = survival(seen, reached)
    sf = stats.ecdf(stats.CensoredData(uncensored=seen[reached], right=seen[~reached])).sf
    np.testing.assert_allclose(found.remaining, sf.evaluate(found.times))
    grid = np.linspace(0, seen.max(), 200_001)
    area = integrate.trapezoid(sf.evaluate(grid), grid)
    assert found.restricted_mean.value == pytest.approx(area, rel=1e-4)
    assert found.restricted_mean.covers(10 * (1 - math.exp(-seen.max() / 10)))


def test_when_none_gets_there() -> None:
    found = survival([5.0, 5.0, 5.0], [False] * 3)
    assert (found.median, found.reached, found.restricted_mean.value) == (math.inf, 0, 5.0)
    assert not found.restricted_mean.is_bounded
    assert compare_times([5.0], [False], [5.0], [False]) is None


def test_the_median_of_an_even_number_is_in_the_middle() -> None:
    assert survival([10.0, 20.0], [True, True]).median == 15
    assert survival([40.0, 10.0, 30.0, 20.0], [True] * 4).median == 25
    assert survival([1.0, 2.0, 5.0, 9.0], [True, True, True, False]).median == 3.5


def test_half_of_the_runs_is_the_median() -> None:
    assert survival([1.0, 2.0, 9.0, 9.0], [True, True, False, False]).median == 2
    assert survival([1.0, 9.0, 9.0, 9.0], [True, False, False, False]).median == math.inf


def test_few_runs_have_no_interval() -> None:
    assert not survival([1.0, 3.0, 4.0, 7.0, 9.0, 9.0, 9.0, 2.0, 5.0], [True] * 9).restricted_mean.is_bounded
    assert survival([1.0, 3.0, 4.0, 7.0, 9.0, 9.0, 9.0, 2.0, 5.0, 6.0], [True] * 10).restricted_mean.is_bounded
    same = survival([5.0] * 12, [True] * 12, 100.0).restricted_mean
    assert (same.value, same.is_bounded) == (5.0, False)


def test_one_run() -> None:
    found = survival([4.0], [True])
    assert found.restricted_mean.value == 4
    assert not found.restricted_mean.is_bounded


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="expected a time and a truth value for each run"):
        survival([1.0, 2.0], [True])
    with pytest.raises(ValueError, match="expected a time and a truth value for each run"):
        survival([], [])


def test_two_methods_by_the_log_rank_test() -> None:
    # three runs at 1, 2, 3 against three at 4, 5, 6: expected for the first 3/6 + 2/5 + 1/4 = 1.15 of 3
    # variance 1/4 + 6/25 + 3/16 = 0.6775; z = 1.85 / sqrt(0.6775)
    p = compare_times([1, 2, 3], [True] * 3, [4, 5, 6], [True] * 3)
    assert p == pytest.approx(2 * stats.norm.sf(1.85 / math.sqrt(0.6775)))
    assert compare_times([1, 2, 3], [True] * 3, [1, 2, 3], [True] * 3) == pytest.approx(1)
