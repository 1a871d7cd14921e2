from __future__ import annotations

import numpy as np
import pytest

from headway.analysis.charts.figure import plan_figures
from headway.analysis.charts.sensitivity import ENTROPY, RATES, Grid, grid_points, grid_views, grids, row_text
from headway.analysis.comparison import settings_of
from headway.analysis.report.rendering import chart_data
from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from tests.analysis.made import controlled, made, together

EVEN = np.full((4, 4), 25)
SKEWED = np.tile([10, 20, 30, 40], (4, 1))


def as_array(grid: Grid, value: str) -> np.ndarray:
    """One of the numbers of all cells [rows, floors]; NaN where there is none."""
    values = np.full((len(grid.rows), len(grid.floors)), np.nan)
    for (row, floor), cell in grid.cells.items():
        estimate = getattr(cell, value)
        values[grid.rows.index(row), grid.floors.index(floor)] = np.nan if estimate is None else estimate.value
    return values


def uniform() -> list[RunData]:
    return [controlled(np.full((4, 4), 2.0 + 0.01 * seed), method="uniform", seed=seed) for seed in range(2)]


def point(level: float, draws: np.ndarray = EVEN, **options: object) -> list[RunData]:
    return [
        controlled(np.full((4, 4), level * (2.0 + 0.01 * seed)), draws=draws, seed=seed, **options) for seed in range(2)
    ]


def rates_and_weights() -> Results:
    return together(
        *uniform(),
        *point(0.5, beta=0.9, floor=1e-8),
        *point(0.6, beta=0.9, floor=1e-3),
        *point(0.7, beta=0.9, beta_v=0.99, floor=1e-8),
        *point(0.8, SKEWED, beta=0.999, floor=1e-8),
        *point(1.2, beta=0.999, floor=1e-8, entropy_weight=0.2),
        *point(1.4, beta=0.999, floor=1e-8, entropy_weight=0.01),
    )


def test_equal_rates_come_before_unequal_ones() -> None:
    rates = grids(settings_of(rates_and_weights()))[0]
    assert rates.kind is RATES
    assert [row_text(row) for row in rates.rows] == ["0.9", "0.999", "0.9 / 0.99"]
    assert rates.floors == [1e-8, 1e-3]
    np.testing.assert_allclose(as_array(rates, "ratio"), [[0.5, 0.6], [0.8, np.nan], [0.7, np.nan]])
    assert rates.label.endswith("(of m / of v)")


def test_weights_of_the_entropy_span_a_grid_of_their_own() -> None:
    _, entropy = grids(settings_of(rates_and_weights()))
    assert entropy.kind is ENTROPY
    assert [row_text(row) for row in entropy.rows] == ["0.01", "0.05", "0.2"]
    np.testing.assert_allclose(as_array(entropy, "ratio"), [[1.4], [0.8], [1.2]])
    assert {len(runs) for runs in entropy.uniform.values()} == {2}, "Uniform serves every weight"


def test_a_point_is_compared_with_the_uniform_of_its_own_group() -> None:
    without = {"entropy_weight": 0.0}
    own = [controlled(np.full((4, 4), 4.0), method="uniform", seed=seed, **without) for seed in range(2)]
    runs = together(*uniform(), *own, *point(1.0, floor=1e-8), *point(1.0, floor=1e-8, **without))
    (grid,) = grids(settings_of(runs))
    assert grid.kind is ENTROPY
    np.testing.assert_allclose(as_array(grid, "ratio"), [[0.5], [1.0]], rtol=0.01)
    assert grid.uniform_text == "released, entropy_weight=0, epochs=4; released, epochs=4"


def test_only_the_uniform_that_was_used_is_named() -> None:
    runs = together(*uniform(), *point(1.0, floor=1e-8), *point(1.0, floor=1e-8, entropy_weight=0.0))
    (grid,) = grids(settings_of(runs))
    assert grid.uniform_text == "released, epochs=4"


def test_what_all_runs_of_a_grid_share_is_part_of_its_name() -> None:
    fast = [*point(1.0, beta=0.9, floor=1e-3), *point(1.2, beta=0.9, floor=1e-3, entropy_weight=1.0)]
    slow = [*point(1.0, floor=1e-3), *point(1.2, floor=1e-3, entropy_weight=1.0)]
    found = [grid for grid in grids(settings_of(together(*uniform(), *fast, *slow))) if grid.kind is ENTROPY]
    assert [grid.common for grid in found] == ["4 epochs", "4 epochs, beta=0.9"]


def test_the_size_of_scores_is_the_median_over_epochs() -> None:
    (run, *_) = point(1.0, beta=0.9)
    sized = made(run.spec, **run.columns, score_mean=[[4.0] * 4, [2.0] * 4, [1.0, 3.0, np.nan, 2.0], [0.0] * 4])
    (grid,) = grids(settings_of(together(*uniform(), sized, *point(1.0, beta=0.99))))
    np.testing.assert_allclose(as_array(grid, "score"), [[2.0], [np.nan]])


def test_distance_from_uniform_by_hand() -> None:
    rates = grids(settings_of(rates_and_weights()))[0]
    distance = as_array(rates, "distance")
    assert distance[0, 0] == 0
    assert distance[1, 0] == pytest.approx((0.15 + 0.05 + 0.05 + 0.15) / 2)


def test_share_under_the_floor_is_the_mean_over_the_run() -> None:
    runs = []
    for beta in (0.9, 0.99):
        (run,) = point(1.0, beta=beta)[:1]
        runs.append(made(run.spec, **run.columns, under_floor=[0.2, 0.4, 0.6, 0.8]))
    (grid,) = grids(settings_of(together(*uniform(), *runs)))
    np.testing.assert_allclose(as_array(grid, "under_floor"), [[0.5], [0.5]])


def test_runs_that_log_no_floor_leave_that_map_empty() -> None:
    (rates, _) = grids(settings_of(rates_and_weights()))
    assert np.isnan(as_array(rates, "under_floor")).all()


def test_points_of_a_grid_are_not_settings_of_their_own() -> None:
    results = rates_and_weights()
    settings = settings_of(results)
    assert len(grid_points(settings)) == 5, "all but that of Uniform"
    rates, entropy = (chart for plan in plan_figures(results) for chart in plan.charts if not plan.protocol)
    assert rates.id == "sensitivity-mnist-noise-gmc"
    assert "over decay rate β (of m / of v) and the floor under v" in rates.caption
    assert (
        "4 epochs, 2 seeds. Left: loss area relative to that of Uniform (protocol released, epochs=4)" in rates.caption
    )
    assert entropy.id == "sensitivity-mnist-noise-gmc-entropy"
    assert "over weight of the entropy and the floor under v" in entropy.caption


def test_uniform_for_a_grid_alone_needs_no_figures_of_its_own() -> None:
    results = together(*uniform(), *point(1.0, floor=1e-5, beta=0.9), *point(1.0, floor=1e-3, beta=0.9))
    assert [plan.protocol for plan in plan_figures(results)] == [""]


def test_a_grid_inside_another_is_left_out() -> None:
    results = together(*uniform(), *point(1.0, floor=1e-8), *point(1.0, floor=1e-3), *point(1.0, entropy_weight=0.2))
    kinds = [grid.kind for grid in grids(settings_of(results))]
    assert kinds == [ENTROPY]


def test_equal_rates_said_in_two_ways_are_one_point() -> None:
    said = controlled(np.full((4, 4), 2.0), seed=5, beta=0.9, beta_v=0.9)
    (grid,) = grids(settings_of(together(*uniform(), *point(1.0, beta=0.9), said, *point(1.0, beta=0.99))))
    assert [len(runs) for _, runs in sorted(grid.points.items())] == [3, 2]


def test_the_unit_of_the_floor_is_told() -> None:
    for unit, words in (("sample", "a sample's own gradient"), ("batch", "the batch mean")):
        runs = [run for beta in (0.9, 0.99) for run in point(1.0, beta=beta, floor_unit=unit)]
        plans = plan_figures(together(*uniform(), *runs))
        (chart,) = (chart for plan in plans for chart in plan.charts if not plan.protocol)
        assert f"(in the unit of {words})" in chart.caption


def grid() -> Results:
    """Uniform at 1; GMC at 0.5 to 2 over two decay rates and three floors, two seeds."""
    runs = [controlled(np.full((4, 4), 1.0 + 0.01 * seed), method="uniform", seed=seed) for seed in range(2)]
    for place, beta in enumerate((0.9, 0.99)):
        for column, floor in enumerate((1e-8, 1e-4, 1e-2)):
            level = 0.5 * (1 + place) * (1 + 0.5 * column)
            runs += [
                controlled(np.full((4, 4), level * (1.0 + 0.01 * seed)), seed=seed, beta=beta, floor=floor)
                for seed in range(2)
            ]
    return together(*runs)


def test_a_grid_by_hand() -> None:
    (found,) = grid_views(settings_of(grid()))
    (first, upper), (second, lower) = found.grid.lines
    assert [first, second] == ["0.9", "0.99"]
    assert found.grid.floors == [1e-8, 1e-4, 1e-2]
    assert [cell.ratio.value for cell in (upper[0], lower[-1]) if cell] == pytest.approx([0.5, 2.0])
    ratios, distances, under = chart_data(found.chart)["panels"]
    assert [row["mean"] for row in ratios["series"]] == [
        pytest.approx([0.5, 0.75, 1.0]),
        pytest.approx([1.0, 1.5, 2.0]),
    ]
    assert [row["mean"] for row in distances["series"]] == [[0, 0, 0], [0, 0, 0]]
    assert [row["mean"] for row in under["series"]] == [[None] * 3, [None] * 3]
    assert chart_data(found.chart)["categories"] == ["1e-8", "1e-4", "0.01"]


def test_points_of_a_grid_get_no_figures_of_their_own() -> None:
    results = grid()
    (found,) = grid_views(settings_of(results))
    settings = settings_of(results)
    assert len(settings) == 7
    assert len([setting for setting in settings if setting.group in found.only]) >= 6


def test_ordinary_runs_are_no_grid() -> None:
    runs = [controlled(np.ones((3, 4)), method=method) for method in ("uniform", "gmc")]
    assert grid_views(settings_of(together(*runs))) == []


def test_a_grid_without_uniform_hides_no_runs() -> None:
    """Its points keep their own tables, since they have no grid to be seen in."""
    digits = [controlled(np.ones((4, 4)), dataset="digits", floor=floor) for floor in (1e-8, 1e-4)]
    (found,) = grid_views(settings_of(together(*grid(), *digits)))
    assert {group.dataset for group in found.only} == {"mnist"}
