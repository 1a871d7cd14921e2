from __future__ import annotations

import io

import pytest

from benchmarks.cost.progress import Progress, duration


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A time that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_follows_the_cases_that_are_done() -> None:
    clock = Clock()
    progress = Progress(3, seconds=10.0, stream=io.StringIO(), clock=clock)
    assert progress.left() == 30.0
    clock.now += 4
    assert progress.left() == 26.0
    clock.now += 16
    progress.case_done()
    assert progress.left() == 40.0
    clock.now += 100
    assert progress.left() == 20.0


def test_a_file_gets_a_line_now_and_then() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Progress(1, seconds=60.0, stream=stream, clock=clock)
    progress.say("case a")
    for number in range(12):
        clock.now += 1
        progress.tick(f"round {number}")
    progress.close()
    assert stream.getvalue() == "case a (60 s left)\nround 9 (50 s left)\n"


def test_a_terminal_gets_one_line_that_is_rewritten_and_cleared() -> None:
    clock, stream = Clock(), Screen()
    progress = Progress(1, seconds=60.0, stream=stream, clock=clock)
    progress.say("case a")
    progress.tick("too soon")
    clock.now += 1
    progress.tick("round 1")
    progress.close()
    assert stream.getvalue() == "\r\x1b[2Kcase a (60 s left)\r\x1b[2Kround 1 (59 s left)\r\x1b[2K"


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0 s"), (61, "61 s"), (200, "3 min")])
def test_duration(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
