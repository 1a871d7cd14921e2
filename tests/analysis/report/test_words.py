from __future__ import annotations

import math

import pytest

from headway.analysis.report import words
from headway.analysis.stats import Estimate


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 0, 1], "0–2"), ([0, 1, 5, 7, 8, 8], "0–1, 5, 7–8")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert words.ranges(numbers) == text


def test_lists() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


def test_how_many_seeds_a_ratio_rests_on() -> None:
    assert words.compared(None, 3) == words.compared(Estimate(1, 0, 2, 3), 3) == ""
    assert words.compared(Estimate(1, 0, 2, 1), 2) == "(1 of 2 seeds)"
    assert words.compared(Estimate(1, 0, 2, 3, unpaired=(5, 3)), 5) == "(unpaired, 5 against 3)"


def test_numbers() -> None:
    assert words.number(None) == words.number(math.nan) == words.percent(None) == words.probability(None) == "–"
    assert words.number(1.23456) == "1.235"
    assert words.percent(0.256) == "26%"
    assert words.probability(0.00001) == "< 0.0001"
    assert words.probability(0.0416) == "0.0416"
    assert words.interval(Estimate(1, 0.5, 1.5, 3), ".1f") == "[0.5, 1.5]"
    assert words.interval(Estimate(1, -math.inf, math.inf, 1)) == words.interval(None) == "–"
