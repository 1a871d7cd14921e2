"""Floors and ceilings against their definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import SelectionError
from headway.selection.mixture import Bounds


def apply(shares: list[float], **bounds) -> list[float]:
    names = [str(number) for number in range(len(shares))]
    return Bounds(names, **bounds).apply(torch.tensor(shares, dtype=torch.float64)).tolist()


def test_by_hand() -> None:
    assert apply([0.7, 0.3], floor=0.1) == [0.7, 0.3]
    assert apply([0.96, 0.03, 0.01], floor=0.1) == pytest.approx([0.8, 0.1, 0.1])
    # the ceiling frees 0.4, which the others share in proportion 3 : 1
    assert apply([0.8, 0.15, 0.05], ceiling=0.4) == pytest.approx([0.4, 0.4, 0.2])
    assert apply([0.8, 0.15, 0.05], ceiling={"0": 0.4}) == pytest.approx([0.4, 0.45, 0.15])
    assert apply([0.9, 0.1, 0.0], floor={"2": 0.5}) == pytest.approx([0.45, 0.05, 0.5])
    assert apply([1.0, 0.0, 0.0], floor=0.0, ceiling=0.5) == pytest.approx([0.5, 0.25, 0.25])
    assert apply([0.2, 0.8], floor=0.5) == pytest.approx([0.5, 0.5])


@settings(max_examples=100)
@given(st.lists(st.tuples(st.floats(1e-12, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6))
def test_bounds_hold_and_free_sources_keep_their_proportions(rows) -> None:
    weights = torch.tensor([row[0] for row in rows], dtype=torch.float64)
    names = [str(number) for number in range(len(rows))]
    low = {name: row[1] / len(rows) for name, row in zip(names, rows, strict=True)}
    high = {name: max(row[2], 1 / len(rows)) for name, row in zip(names, rows, strict=True)}
    shares = weights / weights.sum()
    bounded = Bounds(names, low, high).apply(shares)
    lows, highs = (torch.tensor(list(each.values()), dtype=torch.float64) for each in (low, high))
    assert bounded.sum().item() == pytest.approx(1)
    assert (bounded >= lows - 1e-9).all()
    assert (bounded <= highs + 1e-9).all()
    free = (bounded > lows + 1e-9) & (bounded < highs - 1e-9)
    if free.sum() > 1:
        factors = bounded[free] / shares[free]
        torch.testing.assert_close(factors, factors[0].expand_as(factors), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"floor": 0.6}, "floors that add up to at most 1, got 1.2"),
        ({"ceiling": 0.4}, "ceilings that add up to at least 1, got 0.8"),
        ({"floor": {"web": 0.5}, "ceiling": {"web": 0.4}}, "web: expected a floor below the ceiling, got 0.5 and 0.4"),
        ({"floor": -0.1}, "a floor from 0 to 1"),
        ({"ceiling": 1.5}, "a ceiling from 0 to 1"),
        ({"floor": float("nan")}, "a floor from 0 to 1"),
        ({"floor": {"wbe": 0.1}}, "one of web, books, got 'wbe'; did you mean web"),
    ],
)
def test_what_makes_no_sense_is_refused(bounds, message) -> None:
    with pytest.raises(SelectionError, match=message):
        Bounds(["web", "books"], **bounds)
