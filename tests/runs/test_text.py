from __future__ import annotations

import math

import pytest

from headway.runs.text import count, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (math.inf, "?"),
        (-5, "0 s"),
        (0, "0 s"),
        (0.2, "1 s"),
        (59.2, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (3601, "1 h 0 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_counts() -> None:
    assert [count(number, "run") for number in range(3)] == ["0 runs", "1 run", "2 runs"]
