"""States of sources against a truth that is known."""

from __future__ import annotations

import pytest

from benchmarks.states import TASKS, errors, score, train


def test_wrong_states_and_changes_by_hand() -> None:
    """Of 20 rows, the first 2 are free; the truth changes once."""
    right = [frozenset(["learning"])] * 10 + [frozenset(["learning", "saturated"])] * 3 + [frozenset(["saturated"])] * 7
    states = ["hard"] * 2 + ["learning"] * 8 + ["saturated"] * 10
    assert errors(states, right) == (0.0, 0)
    states[4] = "hard"
    assert errors(states, right) == (pytest.approx(1 / 18), 2)


@pytest.mark.slow
@pytest.mark.parametrize("mixture", TASKS)
def test_states_are_right_on_seeds_other_than_those_of_the_thresholds(mixture: str) -> None:
    """After the first tenth at most one wrong state in twenty rows, and at most two needless changes."""
    for seed in (30, 31, 32):
        for name, (wrong, extra) in score(train(mixture, seed, rows=200)).items():
            assert wrong <= 0.05, (seed, name)
            assert extra <= 2, (seed, name)
