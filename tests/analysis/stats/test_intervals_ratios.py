from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from headway.analysis.stats import Estimate, ratio, unpaired_ratio

RNG = np.random.default_rng(2)


def test_the_ratio_by_hand() -> None:
    # x = 1, 2, 3 and y = 3, 4, 5: means 2 and 4, all (co)variances 1, over n: 1/3. t(0.975, 2)^2 = 18.512821.
    # a = 4 - 18.512821/3 = -2.17 < 0: the mean of x cannot be told from zero
    assert ratio([3.0, 4.0, 5.0], [1.0, 2.0, 3.0]) == Estimate(2.0, -math.inf, math.inf, 3)
    # x = 9, 10, 11 and y = 18, 20, 25: means 10 and 21; sxx = 1, syy = 13, sxy = 3.5, over n: 1/3, 13/3, 3.5/3
    # a = 100 - 6.170940 = 93.829060, b = 210 - 21.598291 = 188.401709, c = 441 - 80.222223 = 360.777777
    # root = sqrt(b^2 - a c) = 40.543365: ends (b -+ root) / a
    estimate = ratio([18.0, 20.0, 25.0], [9.0, 10.0, 11.0])
    assert estimate.value == pytest.approx(2.1)
    assert (estimate.low, estimate.high) == pytest.approx((1.575827, 2.440023), abs=1e-6)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_ends_are_where_a_paired_t_test_just_rejects(confidence: float) -> None:
    x = RNG.normal(10, 1, size=8)
    y = 1.3 * x + RNG.normal(0, 0.5, size=8)
    estimate = ratio(y, x, confidence)
    for end in (estimate.low, estimate.high):
        assert stats.ttest_rel(y, end * x).pvalue == pytest.approx(1 - confidence)


def test_the_ends_without_pairs() -> None:
    x, y = RNG.normal(10, 1, size=8), RNG.normal(12, 0.1, size=5)
    estimate = unpaired_ratio(y, x)
    r = y.mean() / x.mean()
    df = stats.ttest_ind(y, r * x, equal_var=False).df

    def excess(end: float) -> float:
        spread = y.var(ddof=1) / 5 + end**2 * x.var(ddof=1) / 8
        return abs(y.mean() - end * x.mean()) / math.sqrt(spread) - stats.t.ppf(0.975, df)

    assert estimate.value == pytest.approx(r)
    assert estimate.low == pytest.approx(optimize.brentq(excess, 0.5 * r, r), rel=1e-9)
    assert estimate.high == pytest.approx(optimize.brentq(excess, r, 2 * r), rel=1e-9)


def test_pairs_take_out_what_the_seeds_share() -> None:
    seeds = RNG.normal(10, 2, size=10)
    x, y = seeds + RNG.normal(0, 0.01, 10), 1.1 * seeds + RNG.normal(0, 0.01, 10)
    pairs, alone = ratio(y, x), unpaired_ratio(y, x)
    assert pairs.high - pairs.low < 0.02 * (alone.high - alone.low)
    assert pairs.covers(1.1)


def test_a_signal_against_itself() -> None:
    x = RNG.normal(10, 2, size=5)
    estimate = ratio(x, x)
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx((1, 1, 1))


def test_too_few_values() -> None:
    assert ratio([3.0], [2.0]) == Estimate(1.5, -math.inf, math.inf, 1)
    assert unpaired_ratio([3.0], [2.0, 2.0]) == Estimate(1.5, -math.inf, math.inf, 1, unpaired=(1, 2))
    assert math.isnan(ratio([], []).value)
    assert math.isnan(unpaired_ratio([], [1.0]).value)
    assert not ratio([1.0, math.inf, 2.0], [1.0, 1.0, 1.0]).is_bounded
    with pytest.raises(ValueError, match="expected as many values above as below the line, got 1 and 2"):
        ratio([1.0], [1.0, 2.0])


@pytest.mark.slow
def test_intervals_hold_the_ratio_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(3000):
        x = rng.normal(10, 2, size=4)
        y = 0.9 * x + rng.normal(0, 1, size=4)
        hits += ratio(y, x).covers(0.9)
    assert hits / 3000 == pytest.approx(0.95, abs=0.015)
