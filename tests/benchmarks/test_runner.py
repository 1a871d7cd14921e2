"""The whole benchmark on tiny cases."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch

from benchmarks.cost import runner
from benchmarks.cost.results import from_json, to_json
from benchmarks.cost.runner import Progress, Settings, duration, quick, run
from tests.benchmarks.tiny import CNN, MLP

SETTINGS = Settings(cases=(MLP, CNN), variants=("headway", "torch.func"), rounds=2, seconds=0.01, threads=1)


def silent() -> Progress:
    return Progress(2, 1.0, io.StringIO())


@pytest.mark.slow
def test_every_case_has_times_and_memory_of_every_variant() -> None:
    result = run(SETTINGS, silent())
    assert result.complete
    assert [case.key for case in result.cases] == ["a", "c"]
    for case in result.cases:
        assert [timing.variant for timing in case.timings] == ["plain", "headway", "torch.func"]
        assert {timing.rounds for timing in case.timings} == {2}
        assert [memory.variant for memory in case.memories] == ["plain", "headway", "torch.func"]
        assert case.memories[0].extra == 0
        assert case.memories[1].extra_state > 0
        assert case.skipped == ()
    assert from_json(to_json(result)) == result


def test_an_unsupported_peer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opacus.grad_sample", None)
    result = run(replace(SETTINGS, cases=(MLP,), variants=("opacus",)), silent())
    (skipped,) = result.cases[0].skipped
    assert (skipped.variant, skipped.batch) == ("opacus", None)
    assert "opacus is not installed" in skipped.reason
    assert [memory.variant for memory in result.cases[0].memories] == ["plain"]


@pytest.mark.slow
def test_a_peer_that_would_need_too_much_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LIMIT", 1000)
    result = run(replace(SETTINGS, cases=(MLP,)), silent())
    (skipped,) = result.cases[0].skipped
    assert (skipped.variant, skipped.batch) == ("torch.func", 5)
    assert "would take" in skipped.reason
    assert [memory.variant for memory in result.cases[0].memories] == ["plain", "headway"]


class Impatient(Progress):
    """Presses Ctrl-C when a certain text comes."""

    def __init__(self, at: str) -> None:
        super().__init__(2, 1.0, io.StringIO())
        self.at = at

    def say(self, text: str) -> None:
        if self.at in text:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "cases"), [("case a: building plain", 0), ("case a: memory of headway", 1), ("case c: building", 1)]
)
def test_an_interruption_leaves_what_was_measured(at: str, cases: int) -> None:
    result = run(SETTINGS, Impatient(at))
    assert not result.complete
    assert len(result.cases) == cases
    assert all(case.timings for case in result.cases)


def test_threads_are_set_and_put_back() -> None:
    before = torch.get_num_threads()
    result = run(replace(SETTINGS, cases=(MLP,), threads=1, memory=False), silent())
    assert result.machine.threads == 1
    assert result.cases[0].memories == ()
    assert torch.get_num_threads() == before


def test_quick_is_two_cases_and_one_peer() -> None:
    settings = quick(Settings(rounds=7))
    assert [case.key for case in settings.cases] == ["a", "c"]
    assert settings.ordered() == ["plain", "headway", "torch.func"]
    assert settings.rounds == 7


# Progress


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
