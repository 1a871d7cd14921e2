from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from headway.analysis.report import series
from headway.analysis.stats import Estimate
from headway.analysis.summaries import Band


def band(x: list[float], mean: list[float], half: float = 1.0, n: int = 3) -> Band:
    values = np.array(mean)
    return Band(np.array(x), values, values - half, values + half, n)


def test_numbers_keep_five_digits_and_holes_are_none() -> None:
    assert series.shorts([1 / 3, 123456.7, 0.0, math.nan, math.inf]) == [0.33333, 123460.0, 0.0, None, None]
    assert series.whole([1.0, 2.5, 300000.0]) == [1, 2.5, 300000]


def test_curves_of_different_length_share_their_positions() -> None:
    x, (long, short) = series.curves({"a": band([1, 2, 3], [3, 2, 1]), "b": band([1, 2], [5, 6])})
    assert x == [1, 2, 3]
    assert long == {"key": "a", "n": 3, "mean": [3, 2, 1], "low": [2, 1, 0], "high": [4, 3, 2]}
    assert short["mean"] == [5, 6, None]


def test_blocks_with_other_middles_are_merged() -> None:
    x, (first, second) = series.curves({"a": band([3, 8], [1, 2]), "b": band([3, 5.5], [3, 4])})
    assert x == [3, 5.5, 8]
    assert first["mean"] == [1, None, 2]
    assert second["mean"] == [3, 4, None]


def test_an_interval_that_is_not_known_is_left_out() -> None:
    _, (only,) = series.curves({"a": band([1, 2], [3, 4], math.inf, 1)})
    assert "low" not in only
    partly = band([1, 2], [3, 4])
    partly.high[1] = math.inf
    _, (only,) = series.curves({"a": partly})
    assert only["low"] == [2, None]
    assert only["high"] == [4, None]


def test_single_seeds_are_shown_if_there_are_several() -> None:
    curve = replace(band([1, 2, 3], [1, 1, 1], n=2), singles=np.array([[1.0, 2.0, math.nan], [0.0, 0.0, 3.0]]))
    for few, single in ((0, False), (2, False), (3, True)):
        _, (many,) = series.curves({"a": curve}, seeds=True, few=few)
        assert many["seeds"] == [[1, 2, None], [0, 0, 3]]
        assert many["single"] is single
    _, (without,) = series.curves({"a": curve})
    assert "seeds" not in without
    _, (one,) = series.curves({"a": replace(curve, n=1, singles=np.ones((1, 3)))}, seeds=True)
    assert "seeds" not in one


def test_dots_stand_at_the_place_of_their_key() -> None:
    estimates = {"b": Estimate(1.5, 1.0, 2.0, 3), "c": Estimate(0.5, -math.inf, math.inf, 1)}
    first, second = series.dots(estimates, ["a", "b", "c"], {"b": [1.4, 1.6]})
    assert first["mean"] == [None, 1.5, None]
    assert first["low"] == [None, 1.0, None]
    assert first["seeds"] == [[None, 1.4, None], [None, 1.6, None]]
    assert second == {"key": "c", "n": 1, "mean": [None, None, 0.5]}


def test_nothing_gives_nothing() -> None:
    assert series.curves({}) == ([], [])
