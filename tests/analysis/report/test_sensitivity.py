from __future__ import annotations

import numpy as np
import pytest

from headway.analysis.report.groups import settings_of
from headway.analysis.report.sensitivity import grids
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
    (found,) = grids(grid())
    assert list(found.betas) == [0.9, 0.99]
    assert list(found.floors) == [1e-8, 1e-4, 1e-2]
    assert found.cells[0.9, 1e-8].value == pytest.approx(0.5)
    assert found.cells[0.99, 1e-2].value == pytest.approx(2.0)
    first, second = found.chart.data["panels"][0]["series"]
    assert first["mean"] == pytest.approx([0.5, 0.75, 1.0])
    assert second["mean"] == pytest.approx([1.0, 1.5, 2.0])
    assert found.chart.data["categories"] == ["1e-8", "1e-4", "0.01"]


def test_points_of_a_grid_get_no_figures_of_their_own() -> None:
    results = grid()
    (found,) = grids(results)
    settings = settings_of(results)
    assert len(settings) == 7
    assert len([setting for setting in settings if setting.group in found.only]) >= 6


def test_ordinary_runs_are_no_grid() -> None:
    assert grids(together(*[controlled(np.ones((3, 4)), method=method) for method in ("uniform", "gmc")])) == []
