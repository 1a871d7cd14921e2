"""What options and campaign files ask for."""

from __future__ import annotations

import pytest

from headway.errors import UsageError
from headway.study.requests import seeds, settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5", [5]), ("0:3", [0, 1, 2]), ("0,3,7", [0, 3, 7]), ("7, 0:2", [7, 0, 1]), ("1,0:3", [1, 0, 2])],
)
def test_seeds(text: str, expected: list[int]) -> None:
    assert seeds("--seeds", text) == tuple(expected)


@pytest.mark.parametrize(
    "text", ["", "3:3", "20:0", "-1", "0:-1", "a", "1.5", "0:", ":3", "0:2:4", "1,,2", "٣", "9" * 19]
)
def test_seeds_that_make_no_range(text: str) -> None:
    with pytest.raises(UsageError, match="expected seeds such as 5 or 0,3,7 or 0:20"):
        seeds("--seeds", text)


def test_there_is_a_limit_to_seeds() -> None:
    with pytest.raises(UsageError, match="got '0:9999999999'"):
        seeds("--seeds", "0:9999999999")


def test_settings() -> None:
    assert settings("--set", ["beta=0.9", " floor = 1e-8", "name=a=b"]) == {
        "beta": "0.9",
        "floor": "1e-8",
        "name": "a=b",
    }
    for texts, message in [
        (["beta"], "expected FIELD=VALUE, got 'beta'"),
        (["=1"], "expected FIELD=VALUE, got '=1'"),
        (["a=1", "a=2"], "expected every field once, got 'a' twice"),
    ]:
        with pytest.raises(UsageError, match=message):
            settings("--set", texts)
