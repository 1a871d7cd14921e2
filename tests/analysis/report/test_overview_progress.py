from __future__ import annotations

from dataclasses import replace

import pytest

from headway.analysis.report.overview import overview_of
from headway.analysis.results import Problem, Results
from headway.analysis.rundata import Progress, RunData
from headway.runs import State
from tests.analysis.made import made, together
from tests.analysis.stores import controlled_spec


def run(
    seed: int, state: State, done: int = 0, seconds: float = 0.0, speed: float | None = None, **spec: str
) -> RunData:
    total = None if state is State.PENDING else 10
    found = made(controlled_spec(seed=seed, epochs=10, **spec), state)
    return replace(found, progress=Progress(done, total, seconds, speed))


def test_progress_by_hand() -> None:
    """One of four is done in 20 s, one is half-way, one waits, one failed: half of 20 s and 20 s are left."""
    runs = [
        run(0, State.DONE, 10, 20),
        run(1, State.RUNNING, 5, 10, 0.5),
        run(2, State.PENDING),
        run(3, State.FAILED, 1, 2),
    ]
    found = overview_of(together(*runs), [])
    assert (found.total, found.over) == (4, 2)
    assert found.share == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert [each.seed for each in found.active] == [1]
    assert found.seconds_left == pytest.approx(30.0)
    assert found.over < found.total


def test_two_processes_share_the_rest() -> None:
    runs = [run(0, State.DONE, 10, 20)] + [run(seed, State.RUNNING, 5, 10, 0.5) for seed in (1, 2)]
    runs += [run(seed, State.PENDING) for seed in range(3, 7)]
    assert overview_of(together(*runs), []).seconds_left == pytest.approx((2 * 10 + 4 * 20) / 2)


def test_the_slowest_run_sets_the_least_time() -> None:
    runs = [run(0, State.DONE, 10, 2), run(1, State.RUNNING, 1, 100, 0.01)]
    assert overview_of(together(*runs), []).seconds_left >= 9 / 0.01


def test_other_methods_count_where_nothing_is_known() -> None:
    runs = [run(0, State.DONE, 10, 20), run(1, State.RUNNING, 5, 10), run(0, State.PENDING, method="uniform")]
    assert overview_of(together(*runs), []).seconds_left == pytest.approx(10 + 20)


def test_nothing_is_guessed_without_a_run_under_way_or_a_time() -> None:
    assert overview_of(together(run(0, State.DONE, 10, 20), run(1, State.PENDING)), []).seconds_left is None
    assert overview_of(together(run(1, State.RUNNING), run(2, State.PENDING)), []).seconds_left is None


def test_it_is_not_all_done_before_it_is_over() -> None:
    found = overview_of(
        together(*[run(seed, State.DONE, 10, 1) for seed in range(500)], run(500, State.RUNNING, 9, 1)), []
    )
    assert found.share == 0.99
    found = overview_of(Results((run(0, State.DONE, 10, 1),), (Problem("x", "", "damaged"),)), [])
    assert (found.total, found.over, found.share) == (2, 2, 1.0)


def test_an_empty_store() -> None:
    found = overview_of(together(), [])
    assert (found.total, found.share, found.seconds_left) == (0, 1.0, None)
