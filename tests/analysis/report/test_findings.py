from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest

from headway.analysis.comparison import settings_of
from headway.analysis.report.findings import (
    areas_of,
    areas_table,
    comparisons,
    final_rewards,
    overall_of,
    overall_table,
    rewards_table,
    runs_table,
    summary_table,
    welch_table,
)
from headway.analysis.stats import welch
from headway.analysis.table import Table
from tests.analysis.made import controlled, exploration, together


def read(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table.csv())))


LEVELS = {"uniform": (1.0, 1.125, 1.25), "gmc": (0.9, 1.0, 1.1), "curiosity": (2.0, 2.1, 2.3)}


@pytest.fixture
def settings() -> list:
    """Areas over 10 epochs are ten times the levels."""
    runs = [
        controlled([[level] * 4] * 10, method=method, seed=seed)
        for method, levels in LEVELS.items()
        for seed, level in enumerate(levels)
    ]
    return settings_of(together(*runs, exploration([0.0] * 18 + [4.0, 6.0], seed=0), exploration([2.0] * 20, seed=1)))


def test_the_summary_by_hand(settings: list) -> None:
    areas = {setting.key: found for setting in settings if (found := areas_of(setting))}
    rows = {row["signal"]: row for row in read(summary_table(settings, areas))}
    assert float(rows["GMC"]["area"]) == pytest.approx(10.0)
    assert float(rows["GMC"]["ratio"]) == pytest.approx(3.0 / 3.375)
    assert float(rows["GMC"]["ratio low"]) < 3.0 / 3.375 < float(rows["GMC"]["ratio high"])
    assert rows["Uniform"]["ratio"] == ""
    assert float(rows["GMC"]["share G0/A"]) == 0.25
    assert float(rows["GMC"]["final loss"]) == pytest.approx(1.0)
    assert rows["Uniform"]["runs there"] == "2", "1.25 never comes down to the mean, 1.125"


def test_the_tests_are_those_of_scipy(settings: list) -> None:
    rows = {row["against"]: row for row in read(welch_table(settings, comparisons(settings)))}
    expected = welch([10 * level for level in LEVELS["gmc"]], [10 * level for level in LEVELS["curiosity"]])
    assert float(rows["Curiosity"]["t"]) == pytest.approx(expected.t)
    assert float(rows["Curiosity"]["p (Holm)"]) == pytest.approx(2 * expected.p), "the smaller of two"
    assert rows["Uniform"]["mark"] == "ns"


def test_rewards_by_hand(settings: list) -> None:
    rewards = {setting.key: found for setting in settings if (found := final_rewards(setting))}
    (row,) = read(rewards_table(settings, rewards))
    assert row["method"] == "PPO"
    assert float(row["final return"]) == pytest.approx((5.0 + 2.0) / 2 / 10), "the last two of twenty rollouts"


def test_the_other_tables(settings: list) -> None:
    assert [float(row["area"]) for row in read(areas_table(settings)) if row["signal"] == "gmc"] == pytest.approx(
        [9, 10, 11]
    )
    signals = {row["signal"]: row for row in read(overall_table(overall_of(settings)))}
    assert float(signals["Curiosity"]["P(better than Uniform)"]) == 0
    runs = [run for setting in settings for members in setting.all.values() for run in members]
    assert len(read(runs_table(runs))) == 11


def test_nothing_to_show_is_no_table() -> None:
    assert (
        summary_table([], {})
        is welch_table([], {})
        is rewards_table([], {})
        is areas_table([])
        is overall_table({})
        is None
    )


def test_a_run_that_ends_without_an_episode_makes_the_reward_unknown() -> None:
    runs = [exploration(np.full(20, 9.0 + seed), seed=seed) for seed in range(3)]
    (setting,) = settings_of(together(*runs, exploration(np.full(20, np.nan), seed=9)))
    found = final_rewards(setting)["ppo"]
    assert found.n == 4
    assert math.isnan(found.value)


def test_where_uniform_diverged_there_are_no_times_and_it_is_said_why() -> None:
    runs = [controlled(np.ones((5, 4)), method=method, seed=seed) for method in ("uniform", "gmc") for seed in (0, 1)]
    (setting,) = settings_of(together(*runs))
    assert areas_of(setting).times.keys() == {"uniform", "gmc"}
    assert areas_of(setting).remark == ""
    (setting,) = settings_of(together(*runs, controlled(np.full((5, 4), np.nan), method="uniform", seed=2)))
    assert areas_of(setting).times == {}
    assert areas_of(setting).remark.startswith("A run of Uniform diverged")
