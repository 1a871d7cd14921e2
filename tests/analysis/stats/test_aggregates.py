from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from headway.analysis.stats import Estimate, iqm, performance_profile, probability_of_improvement

RNG = np.random.default_rng(3)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_interquartile_mean_by_hand() -> None:
    # of 8 scores the lowest 2 and the highest 2 go: (3 + 4 + 5 + 6) / 4
    assert iqm([[1.0, 2.0, 3.0, 100.0], [4.0, 5.0, 6.0, -50.0]], generator()).value == pytest.approx(3.5)
    assert iqm([np.arange(1.0, 9.0)], generator()).value == pytest.approx(4.5)


def test_the_interquartile_mean_as_scipy_has_it() -> None:
    strata = [RNG.normal(size=9), RNG.normal(2, 1, size=6)]
    expected = stats.trim_mean(np.concatenate(strata), 0.25)
    assert iqm(strata, generator()).value == pytest.approx(expected)


def test_the_interval_agrees_with_a_plain_loop() -> None:
    strata = [RNG.gamma(2, size=9), RNG.gamma(5, size=6)]
    rng = generator(1)
    drawn = []
    for _ in range(4000):
        scores = np.concatenate([rng.choice(stratum, len(stratum)) for stratum in strata])
        drawn.append(np.sort(scores)[3:-3].mean())  # a quarter of 15, rounded down, from each end
    estimate = iqm(strata, generator(), resamples=4000)
    width = estimate.high - estimate.low
    assert (estimate.low, estimate.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.06 * width)
    assert estimate.n == 15


def test_strata_keep_their_weight() -> None:
    # scores differ between strata only, so that drawing within them changes nothing
    assert iqm([[1.0] * 4, [5.0] * 4], generator()) == Estimate(3.0, 3.0, 3.0, 8)


def test_seeds_are_used() -> None:
    strata = [RNG.normal(size=9)]
    assert iqm(strata, generator(0)) == iqm(strata, generator(0))
    assert iqm(strata, generator(0)) != iqm(strata, generator(1))


def test_too_few_scores() -> None:
    assert iqm([[1.0]], generator()) == Estimate(1.0, -math.inf, math.inf, 1)
    with pytest.raises(ValueError, match="expected at least one score in each stratum"):
        iqm([[1.0], []], generator())


def test_probability_of_improvement_by_hand() -> None:
    # 1 is below 2, 3; 2 ties with 2 and is below 3; 4 is below none: (1 + 1 + 0.5 + 1) / 6 = 7/12
    ours, theirs = [1.0, 2.0, 4.0], [2.0, 3.0]
    assert probability_of_improvement([ours], [theirs], generator()).value == pytest.approx(3.5 / 6)
    other = probability_of_improvement([ours], [theirs], generator(), lower_is_better=False)
    assert other.value == pytest.approx(2.5 / 6)
    both = probability_of_improvement([ours, [0.0, 0.0]], [theirs, [1.0, 1.0]], generator())
    assert both.value == pytest.approx((3.5 / 6 + 1) / 2)


def test_probability_of_improvement_as_scipy_has_it() -> None:
    ours, theirs = RNG.normal(size=12), RNG.normal(0.5, 1, size=9)
    u = stats.mannwhitneyu(theirs, ours).statistic
    estimate = probability_of_improvement([ours], [theirs], generator())
    assert estimate.value == pytest.approx(u / (12 * 9))
    assert 0 <= estimate.low < estimate.value < estimate.high <= 1


def test_a_sure_improvement() -> None:
    estimate = probability_of_improvement([[1.0, 2.0, 3.0]], [[5.0, 6.0, 7.0]], generator())
    assert (estimate.low, estimate.value, estimate.high) == (1, 1, 1)


def test_other_strata() -> None:
    with pytest.raises(ValueError, match="got 1 and 2"):
        probability_of_improvement([[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], generator())


def test_a_profile_by_hand() -> None:
    strata = [[0.9, 1.0, 1.1], [1.0, 2.0]]
    profile = performance_profile(strata, [0.5, 0.95, 1.0, 1.5, 2.0], generator())
    assert profile.share == pytest.approx([0, 0.2, 0.6, 0.8, 1])
    assert profile.n == 5
    assert profile.low[0] == profile.high[0] == 0
    assert profile.low[-1] == profile.high[-1] == 1
    assert (profile.low <= profile.share).all()
    assert (profile.share <= profile.high).all()
    upward = performance_profile(strata, [1.0, 1.5], generator(), lower_is_better=False)
    assert upward.share == pytest.approx([0.8, 0.2])


def test_a_profile_of_single_runs_has_no_interval() -> None:
    profile = performance_profile([[0.9], [1.1, 1.2]], [1.0, 1.2], generator())
    assert profile.share == pytest.approx([1 / 3, 1])
    assert np.isinf(profile.low).all()
    assert np.isinf(profile.high).all()


def test_a_profile_as_scipy_has_it() -> None:
    scores = RNG.normal(size=30)
    thresholds = np.linspace(-3, 3, 13)
    profile = performance_profile([scores], thresholds, generator(), resamples=4000)
    np.testing.assert_allclose(profile.share, stats.ecdf(scores).cdf.evaluate(thresholds))
    # drawing 30 runs with replacement, the number of those that reach a threshold is binomial
    np.testing.assert_allclose(profile.low, stats.binom.ppf(0.025, 30, profile.share) / 30, atol=1.01 / 30)
    np.testing.assert_allclose(profile.high, stats.binom.ppf(0.975, 30, profile.share) / 30, atol=1.01 / 30)
