from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from headway.analysis.comparison import areas, method_rows, relative_area, usable, welch_rows
from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from headway.analysis.stats import ratio, t_interval
from headway.runs import State
from tests.analysis.made import controlled, exploration, made, together
from tests.analysis.stores import controlled_spec

LEVELS = {"uniform": (2.0, 2.1, 2.3), "gmc": (1.9, 2.1, 2.2), "curiosity": (3.0, 3.4, 3.1)}


def flat(method: str, level: float, seed: int, **options: object) -> RunData:
    return controlled(np.full((5, 4), level), draws=[[1, 2, 3, 4]] * 5, method=method, seed=seed, **options)


@pytest.fixture
def results() -> Results:
    runs = [flat(method, level, seed) for method, levels in LEVELS.items() for seed, level in enumerate(levels)]
    return together(*runs)


def test_a_line_per_signal(results: Results) -> None:
    rows = {row.method: row for row in method_rows(results)}
    assert list(rows) == ["uniform", "curiosity", "gmc"]
    for method, levels in LEVELS.items():
        own = 5 * np.array(levels)
        assert rows[method].auc == t_interval(own)
        assert rows[method].deviation == pytest.approx(own.std(ddof=1))
        assert rows[method].relative == ratio(own, 5 * np.array(LEVELS["uniform"]))
        assert rows[method].final_loss.value == pytest.approx(np.mean(levels))
        assert [share.value for share in rows[method].shares] == pytest.approx([0.1, 0.2, 0.3, 0.4])
        assert rows[method].seeds == (0, 1, 2)


def test_without_uniform_there_is_no_ratio(results: Results) -> None:
    assert all(row.relative is None for row in method_rows(results.select(method=("gmc", "curiosity"))))


def test_one_seed() -> None:
    (row,) = method_rows(together(flat("gmc", 2.0, 0)))
    assert math.isnan(row.deviation)
    assert not row.auc.is_bounded


def test_welch_rows(results: Results) -> None:
    rows = {row.baseline: row for row in welch_rows(results)}
    assert set(rows) == {"uniform", "curiosity"}
    expected = stats.ttest_ind(LEVELS["gmc"], LEVELS["curiosity"], equal_var=False)
    test = rows["curiosity"].test
    assert test is not None
    assert (test.t, test.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert 0.001 < test.p < 0.01
    assert rows["curiosity"].stars == "**"
    assert rows["curiosity"].p_holm == pytest.approx(2 * expected.pvalue)
    assert rows["uniform"].stars == "ns"
    assert rows["uniform"].n == (3, 3)


def test_the_protocol_chooses_the_stars() -> None:
    runs = [
        flat(method, level, seed, protocol="paper")
        for method, levels in LEVELS.items()
        for seed, level in enumerate(levels)
    ]
    assert {row.baseline: row.stars for row in welch_rows(together(*runs))} == {"curiosity": "*", "uniform": "ns"}


def test_too_few_seeds_for_a_test() -> None:
    (row,) = welch_rows(together(flat("gmc", 2.0, 0), flat("uniform", 2.1, 0)))
    assert (row.test, row.p_holm, row.stars, row.why) == (None, None, "", "too few seeds for a test")


def test_a_row_says_that_a_run_diverged(results: Results) -> None:
    broken = controlled(np.full((5, 4), np.nan), method="uniform", seed=3)
    rows = {row.baseline: row for row in welch_rows(together(*results, broken))}
    assert (rows["uniform"].test, rows["uniform"].why) == (None, "no test: a run diverged")
    assert rows["curiosity"].why == ""


def test_groups_are_not_mixed(results: Results) -> None:
    other = together(*results, flat("gmc", 9.0, 0, dataset="cifar10"), flat("uniform", 9.0, 0, beta=0.5))
    assert [row.test for row in welch_rows(other)] == [row.test for row in welch_rows(results)]
    with pytest.raises(ValueError, match="expected runs of one group"):
        method_rows(other)


def test_only_whole_runs_are_usable() -> None:
    good = flat("gmc", 2.0, 0)
    running = made(controlled_spec(epochs=5, seed=1), State.RUNNING, **good.columns)
    bare = made(controlled_spec(epochs=5, seed=2), test_loss=np.ones((5, 4)))
    odd = made(controlled_spec(epochs=5, seed=3), **{name: np.ones((5, 3)) for name in good.columns})
    empty = made(controlled_spec(epochs=5, seed=4))
    assert usable([good, running, bare, odd, empty]) == (good,)
    assert areas([good, running, bare]) == {0: pytest.approx(10)}
    assert method_rows(together(running)) == []


def test_runs_with_the_same_seed_make_pairs() -> None:
    ours, theirs = {0: 1.0, 1: 2.0, 2: 3.0, 9: 99.0}, {0: 2.0, 1: 4.0, 2: 6.0, 8: 1.0}
    estimate = relative_area(ours, theirs)
    assert (estimate.value, estimate.n) == (pytest.approx(0.5), 3)
    assert relative_area({0: 1.0, 1: 2.0}, {2: 2.0, 3: 4.0}).value == pytest.approx(0.5)
    assert relative_area({0: 1.0}, {0: 2.0}).value == pytest.approx(0.5)


def test_a_run_that_diverged_is_not_passed_over(results: Results) -> None:
    broken = controlled(np.full((5, 4), np.nan), method="gmc", seed=3)
    rows = {row.method: row for row in method_rows(together(*results, broken))}
    assert not rows["gmc"].auc.is_bounded
    assert rows["uniform"].auc.is_bounded


def test_exploration_runs_are_no_part_of_it(results: Results) -> None:
    assert len(welch_rows(together(*results, exploration([1.0] * 20)))) == 2


def test_a_run_that_lacks_epochs_is_not_usable() -> None:
    run = controlled(np.ones((5, 4)))
    short = replace(run, columns={name: values[:3] for name, values in run.columns.items()})
    assert usable([run, short]) == (run,)


def test_a_single_run_is_compared_with_the_one_of_its_own_seed() -> None:
    found = relative_area({1: 3.0}, {0: 1.0, 1: 2.0})
    assert found.value == 1.5
    assert not found.is_bounded
    assert found.n == 1
    assert relative_area({0: 1.0, 1: 3.0}, {1: 2.0}).value == 1.5
