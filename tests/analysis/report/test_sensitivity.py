from __future__ import annotations

import numpy as np
import pytest

from headway.analysis.report.groups import settings_of
from headway.analysis.report.sensitivity import grid_views
from headway.analysis.results import Results
from tests.analysis.made import controlled, together


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
    (found,) = grid_views(grid())
    assert list(found.rows) == ["0.9", "0.99"]
    assert found.grid.floors == [1e-8, 1e-4, 1e-2]
    corners = found.cell(0, 1e-8), found.cell(1, 1e-2)
    assert [cell.ratio.value for cell in corners if cell] == pytest.approx([0.5, 2.0])
    assert found.cell(0, 0.5) is None
    ratios, distances, under = found.chart.data["panels"]
    assert [row["mean"] for row in ratios["series"]] == [
        pytest.approx([0.5, 0.75, 1.0]),
        pytest.approx([1.0, 1.5, 2.0]),
    ]
    assert [row["mean"] for row in distances["series"]] == [[0, 0, 0], [0, 0, 0]]
    assert [row["mean"] for row in under["series"]] == [[None] * 3, [None] * 3]
    assert found.chart.data["categories"] == ["1e-8", "1e-4", "0.01"]


def test_points_of_a_grid_get_no_figures_of_their_own() -> None:
    results = grid()
    (found,) = grid_views(results)
    settings = settings_of(results)
    assert len(settings) == 7
    assert len([setting for setting in settings if setting.group in found.only]) >= 6


def test_ordinary_runs_are_no_grid() -> None:
    runs = [controlled(np.ones((3, 4)), method=method) for method in ("uniform", "gmc")]
    assert grid_views(together(*runs)) == []


def test_a_grid_without_uniform_hides_no_runs() -> None:
    """Its points keep their own tables, since they have no grid to be seen in."""
    digits = [controlled(np.ones((4, 4)), dataset="digits", floor=floor) for floor in (1e-8, 1e-4)]
    (found,) = grid_views(together(*grid(), *digits))
    assert {group.dataset for group in found.only} == {"mnist"}
