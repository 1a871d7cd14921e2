from __future__ import annotations

import numpy as np
import pytest

from headway.analysis.charts.sensitivity import gate_rows, gates_of
from headway.analysis.comparison import settings_of
from headway.analysis.rundata import RunData
from tests.analysis.made import controlled, together


def runs(level: float, method: str, draws: tuple[int, ...] = (1, 1, 1, 1), **options: str | float) -> list[RunData]:
    """Two seeds whose losses are the same multiple of the seed's own level."""
    return [
        controlled(np.full((3, 4), level * (1 + 0.1 * seed)), None, [draws] * 3, method=method, seed=seed, **options)
        for seed in range(2)
    ]


def test_gates_stand_beside_gmc_with_both_floors() -> None:
    small = {"floor_unit": "sample"}
    results = together(
        *runs(1.0, "uniform"),
        *runs(0.8, "gmc"),
        *runs(1.2, "gmc", **small),
        *runs(0.6, "gmc_hard", draws=(1, 2, 3, 4), **small),
        *runs(0.9, "gmc_soft", **small),
    )
    rows = gate_rows(settings_of(results))
    assert [row.method for row in rows] == ["gmc", "gmc", "gmc_hard", "gmc_soft"]
    assert [row.protocol for row in rows] == ["released, epochs=3"] + 3 * ["released, epochs=3, floor_unit=sample"]
    assert [row.relative.value for row in rows if row.relative] == pytest.approx([0.8, 1.2, 0.6, 0.9])
    assert rows[0].against is None
    assert [row.against.value for row in rows[1:] if row.against] == pytest.approx([1.5, 0.75, 1.125])
    assert (rows[0].beside, rows[1].beside) == (None, None)
    assert [row.beside.value for row in rows[2:] if row.beside] == pytest.approx([0.5, 0.75])
    assert rows[2].shares == pytest.approx((0.1, 0.2, 0.3, 0.4))
    assert rows[2].seeds == (0, 1)


def test_two_levels_of_a_gate_share_the_line_of_gmc_in_markdown() -> None:
    small = {"floor_unit": "sample"}
    gates = [*runs(0.6, "gmc_hard", **small), *runs(0.7, "gmc_hard", **small, gate_level=16)]
    settings = settings_of(together(*runs(1.0, "uniform"), *runs(0.8, "gmc"), *gates))
    assert len(gate_rows(settings)) == 4
    shown = gates_of(settings)
    assert shown is not None
    text = shown.table.markdown()
    assert text.count("| GMC | released, epochs=3 | 2 | 0.8000 |") == 1
    assert text.count("| GMC, hard gate |") == 2


def test_a_gate_of_another_level_is_compared_with_the_same_gmc() -> None:
    gates = [*runs(0.6, "gmc_hard"), *runs(0.4, "gmc_hard", gate_level=16)]
    rows = gate_rows(settings_of(together(*runs(1.0, "uniform"), *runs(0.8, "gmc"), *gates)))
    assert [row.beside.value for row in rows if row.beside] == pytest.approx([0.75, 0.5])


def test_gates_of_one_protocol_are_compared_with_its_own_gmc() -> None:
    results = together(*runs(1.0, "uniform"), *runs(0.8, "gmc"), *runs(0.4, "gmc_soft"))
    rows = gate_rows(settings_of(results))
    assert [row.method for row in rows] == ["gmc", "gmc_soft"]
    assert rows[1].beside is not None
    assert rows[1].beside.value == pytest.approx(0.5)
    assert rows[1].against is None


def test_without_gmc_there_is_nothing_to_be_relative_to() -> None:
    rows = gate_rows(settings_of(together(*runs(1.0, "uniform"), *runs(0.4, "gmc_soft"))))
    assert [(row.method, row.beside, row.against) for row in rows] == [("gmc_soft", None, None)]


def test_without_uniform_gates_are_still_compared_with_gmc() -> None:
    rows = gate_rows(settings_of(together(*runs(0.8, "gmc"), *runs(0.4, "gmc_soft"))))
    assert [row.relative for row in rows] == [None, None]
    assert rows[1].beside is not None
    assert rows[1].beside.value == pytest.approx(0.5)


def test_no_gates_or_nothing_to_compare_them_with_make_no_table() -> None:
    assert gates_of(settings_of(together(*runs(1.0, "uniform"), *runs(0.8, "gmc")))) is None
    assert gates_of(settings_of(together(*runs(0.8, "gmc_hard")))) is None
