from __future__ import annotations

import math

import pytest

from headway.analysis.report import words
from headway.analysis.stats import Estimate


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (math.inf, "?"),
        (0, "0 s"),
        (59.2, "1 min 0 s"),
        (3700, "1 h 1 min"),
        (90000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 0, 1], "0–2"), ([0, 1, 5, 7, 8, 8], "0–1, 5, 7–8")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert words.ranges(numbers) == text


def test_counts_and_lists() -> None:
    assert words.count(1, "run") == "1 run"
    assert words.count(0, "run") == "0 runs"
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


def test_numbers() -> None:
    assert words.number(None) == words.number(math.nan) == words.percent(None) == words.probability(None) == "–"
    assert words.number(1.23456) == "1.235"
    assert words.percent(0.256) == "26%"
    assert words.probability(0.00001) == "< 0.0001"
    assert words.probability(0.0416) == "0.0416"
    assert words.interval(Estimate(1, 0.5, 1.5, 3), ".1f") == "[0.5, 1.5]"
    assert words.interval(Estimate(1, -math.inf, math.inf, 1)) == words.interval(None) == "–"
