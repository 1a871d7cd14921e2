from __future__ import annotations

import numpy as np
import pytest

from headway.analysis.comparison import epochs_to, overall_rows, profiles, relative_areas
from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from tests.analysis.made import controlled, together

LEVELS = {"uniform": (1.0, 2.0, 3.0), "gmc": (1.0, 1.5, 2.0), "curiosity": (4.0, 4.0, 4.0)}


def flat(method: str, level: float, seed: int, condition: str = "noise") -> RunData:
    arms = 4 if condition == "noise" else 10
    return controlled(np.full((5, arms), level), method=method, seed=seed, condition=condition)


@pytest.fixture
def results() -> Results:
    runs = [flat(method, level, seed) for method, levels in LEVELS.items() for seed, level in enumerate(levels)]
    return together(*runs, *(flat("gmc", 1.0, seed, "curriculum") for seed in range(3)))


def test_areas_relative_to_uniform(results: Results) -> None:
    found = relative_areas(results)
    assert {method: len(by_group) for method, by_group in found.items()} == {"uniform": 1, "curiosity": 1, "gmc": 1}
    (gmc,) = found["gmc"].values()
    assert gmc == pytest.approx([0.5, 0.75, 1.0])


def test_a_line_per_signal(results: Results) -> None:
    rows = {row.method: row for row in overall_rows(results, np.random.default_rng(0))}
    assert rows["gmc"].iqm.value == pytest.approx(0.75)
    # 1 ties with 1 and beats 2, 3; 1.5 beats 2, 3; 2 ties with 2 and beats 3: (2.5 + 2 + 1.5) / 9
    assert rows["gmc"].improvement.value == pytest.approx(6 / 9)
    assert rows["uniform"].improvement.value == pytest.approx(0.5)
    assert rows["curiosity"].improvement.value == 0
    assert [group.condition for group in rows["gmc"].groups] == ["noise"]


def test_two_conditions_are_two_strata(results: Results) -> None:
    more = together(*results, *(flat("uniform", 2.0, seed, "curriculum") for seed in range(3)))
    row = next(row for row in overall_rows(more, np.random.default_rng(0)) if row.method == "gmc")
    assert len(row.groups) == 2
    assert row.improvement.value == pytest.approx((6 / 9 + 1) / 2)
    assert row.iqm.n == 6


def test_seeds_are_used(results: Results) -> None:
    first, again, other = (overall_rows(results, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_profiles(results: Results) -> None:
    found = profiles(results, np.random.default_rng(0), points=4)
    assert found["gmc"].thresholds == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert found["gmc"].share == pytest.approx([1 / 3, 1, 1, 1])
    assert found["curiosity"].share == pytest.approx([0, 0, 0, 1])
    assert profiles(Results(), np.random.default_rng(0)) == {}


def falling(method: str, seed: int, speed: float) -> RunData:
    curve = np.maximum(10 - speed * np.arange(10.0), 0)
    return controlled(np.repeat(curve[:, None], 4, 1), method=method, seed=seed)


def test_epochs_to_a_loss() -> None:
    runs = [falling("uniform", seed, 1.0) for seed in range(2)] + [falling("gmc", seed, 2.0) for seed in range(2)]
    found = epochs_to(together(*runs, falling("curiosity", 0, 0.1), falling("curiosity", 1, 1.0)), loss=4.0)
    assert found["uniform"].median == 7
    assert found["gmc"].median == 4
    assert (found["curiosity"].reached, found["curiosity"].n) == (1, 2)
    assert {each.horizon for each in found.values()} == {10}


def test_uniform_sets_the_loss() -> None:
    runs = [falling("uniform", 0, 1.0), falling("gmc", 0, 2.0)]  # the last half of Uniform's: 5, 4, 3, 2, 1
    assert epochs_to(together(*runs))["gmc"].median == 5
    with pytest.raises(ValueError, match="expected runs of uniform, or a loss"):
        epochs_to(together(runs[1]))


def test_a_signal_with_a_run_that_diverged_is_unknown(results: Results) -> None:
    broken = together(*results, controlled(np.full((5, 4), np.nan), method="gmc", seed=3))
    rows = {row.method: row for row in overall_rows(broken, np.random.default_rng(0))}
    for estimate in (rows["gmc"].iqm, rows["gmc"].improvement):
        assert np.isnan(estimate.value)
        assert not estimate.is_bounded
    assert rows["gmc"].iqm.n == 4
    assert rows["curiosity"].iqm.value == pytest.approx(2)
    found = profiles(broken, np.random.default_rng(0), points=4)
    assert found["gmc"].share == pytest.approx([1 / 4, 3 / 4, 3 / 4, 3 / 4])  # it reaches nothing


def test_where_uniform_diverged_nothing_is_relative_to_it(results: Results) -> None:
    broken = together(*results, controlled(np.full((5, 4), np.nan), method="uniform", seed=3))
    assert all(np.isnan(row.iqm.value) for row in overall_rows(broken, np.random.default_rng(0)))
    assert profiles(broken, np.random.default_rng(0)) == {}
    assert epochs_to(broken.select(condition="noise")) == {}
    assert epochs_to(broken.select(condition="noise"), loss=1.0)["gmc"].reached == 1


def test_the_spread_of_uniform_widens_the_interval() -> None:
    runs = [flat("gmc", 2.0 + 0.001 * seed, seed) for seed in range(5)]
    runs += [flat("uniform", 2.0 + 0.2 * seed, seed) for seed in range(5)]
    rows = {row.method: row for row in overall_rows(together(*runs), np.random.default_rng(0))}
    assert rows["gmc"].iqm.value == pytest.approx(2.002 / 2.4)
    assert rows["gmc"].iqm.high - rows["gmc"].iqm.low > 0.1  # Uniform's mean is known to about 0.13 of 2.4
    assert rows["uniform"].iqm.value == pytest.approx(1)
