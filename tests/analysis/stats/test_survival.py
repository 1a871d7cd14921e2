from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from headway.analysis.stats import survival, time_to_threshold


def test_when_a_curve_gets_there() -> None:
    x, curve = [10.0, 20.0, 30.0, 40.0], [2.0, 1.0, 0.5, 0.9]
    assert time_to_threshold(x, curve, 1.0) == (20.0, True)
    assert time_to_threshold(x, curve, 0.4) == (40.0, False)
    assert time_to_threshold(x, curve, 1.5, lower_is_better=False) == (10.0, True)
    assert time_to_threshold(x, [math.nan, math.nan, 3.0, 4.0], 3.5, lower_is_better=False) == (40.0, True)
    assert time_to_threshold(x, [math.nan] * 4, 3.5) == (40.0, False)
    with pytest.raises(ValueError, match="expected a curve with at least one point"):
        time_to_threshold([], [], 1.0)


def test_kaplan_and_meier_by_hand() -> None:
    # at 1: 5 on their way, 1 gets there: 4/5. At 2 one is censored. At 3: 3 on their way, 1: 4/5 * 2/3 = 8/15.
    # At 4: 2, 1: 4/15. At 5 the last is censored.
    found = survival([1, 2, 3, 4, 5], [True, False, True, True, False])
    assert found.times == pytest.approx([1, 3, 4])
    assert found.remaining == pytest.approx([4 / 5, 8 / 15, 4 / 15])
    assert found.median == 4
    assert (found.reached, found.n, found.horizon) == (3, 5, 5)


def test_an_earlier_horizon() -> None:
    assert survival([1, 2, 3, 4, 5], [True, False, True, True, False], horizon=3.5).horizon == 3.5


def test_without_censoring_the_median_is_the_median() -> None:
    assert survival([3.0, 1.0, 4.0, 1.0, 5.0] * 2, [True] * 10).median == 3


def test_as_scipy_has_it() -> None:
    rng = np.random.default_rng(0)
    times, limits = rng.exponential(10, 40), rng.uniform(5, 20, 40)
    reached = times <= limits
    seen = np.minimum(times, limits)
    found = survival(seen, reached)
    sf = stats.ecdf(stats.CensoredData(uncensored=seen[reached], right=seen[~reached])).sf
    np.testing.assert_allclose(found.remaining, sf.evaluate(found.times))


def test_when_none_gets_there() -> None:
    found = survival([5.0, 5.0, 5.0], [False] * 3)
    assert (found.median, found.reached, found.horizon) == (math.inf, 0, 5.0)


def test_the_median_of_an_even_number_is_in_the_middle() -> None:
    assert survival([10.0, 20.0], [True, True]).median == 15
    assert survival([40.0, 10.0, 30.0, 20.0], [True] * 4).median == 25
    assert survival([1.0, 2.0, 5.0, 9.0], [True, True, True, False]).median == 3.5


def test_half_of_the_runs_is_the_median() -> None:
    assert survival([1.0, 2.0, 9.0, 9.0], [True, True, False, False]).median == 2
    assert survival([1.0, 9.0, 9.0, 9.0], [True, False, False, False]).median == math.inf


def test_one_run() -> None:
    assert survival([4.0], [True]).median == 4


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="expected a time and a truth value for each run"):
        survival([1.0, 2.0], [True])
