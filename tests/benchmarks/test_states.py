"""States of sources against a truth that is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.states import TASKS, errors, score, train

STORED = Path(__file__).parents[2] / "benchmarks" / "results" / "states.json"


def test_wrong_states_and_changes_by_hand() -> None:
    """Of 20 rows, the first 2 are free; the truth changes once."""
    right = [frozenset(["learning"])] * 10 + [frozenset(["learning", "saturated"])] * 3 + [frozenset(["saturated"])] * 7
    states = ["hard"] * 2 + ["learning"] * 8 + ["saturated"] * 10
    assert errors(states, right) == (0.0, 0)
    states[4] = "hard"
    assert errors(states, right) == (pytest.approx(1 / 18), 2)


def assert_right(found: Mapping[str, tuple[float, int]]) -> None:
    """After the first tenth at most one wrong state in twenty rows, and at most two needless changes."""
    for name, (wrong, extra) in found.items():
        assert wrong <= 0.05, name
        assert extra <= 2, name


FORMS = [
    pytest.param("noise", 30, marks=pytest.mark.slow),
    *(pytest.param(mixture, seed, marks=pytest.mark.soak) for mixture in TASKS for seed in (31, 32)),
    *(pytest.param(mixture, 30, marks=pytest.mark.soak) for mixture in TASKS if mixture != "noise"),
]


@pytest.mark.parametrize(("mixture", "seed"), FORMS)
def test_states_are_right_on_seeds_other_than_those_of_the_thresholds(mixture: str, seed: int) -> None:
    assert_right(score(train(mixture, seed, rows=200)))


@pytest.mark.parametrize("mixture", TASKS)
def test_states_are_right_on_all_seeds_of_the_benchmark(mixture: str) -> None:
    """Its stored numbers are of six seeds, from 30 on."""
    stored = json.loads(STORED.read_text("utf-8"))
    assert stored["settings"] == {"seeds": 6, "first_seed": 30, "rows": 200}
    numbers: Mapping[str, Mapping[str, Sequence[float]]] = stored["mixtures"][mixture]
    for seed in range(6):
        assert_right({name: (own["wrong"][seed], own["extra_changes"][seed]) for name, own in numbers.items()})
