"""Displays, on a clock that the test sets."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headway.runs import RunSpec
from headway.runs.attempt import Reporter
from headway.runs.display import LiveDisplay, PlainDisplay, describe, make_display, render, summary_line
from headway.runs.progress import Advanced, CampaignProgress, Ended, Event, Lost, Outcome, Started, Stopping


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def spec_of(seed: int, epochs: int = 10) -> RunSpec:
    params = {"dataset": "mnist", "epochs": epochs}
    return RunSpec(experiment="controlled", condition="noise", method="gmc", seed=seed, params=params)


SPECS = [spec_of(seed) for seed in range(4)]
A, B, C, D = (spec.run_id for spec in SPECS)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> CampaignProgress:
    return CampaignProgress(SPECS, clock)


def apply(progress: CampaignProgress, *events: Event) -> CampaignProgress:
    for event in events:
        progress.apply(event)
    return progress


def test_time_left_follows_the_pace_so_far(progress: CampaignProgress, clock: Clock) -> None:
    assert progress.time_left() is None
    apply(progress, Started(A, 1))
    clock.now = 20.0
    apply(progress, Advanced(A, 5, 10, {"test": 1.5}))
    run = progress.active[A]
    assert run.speed(clock.now) is None  # 5 steps at once: it goes on from a checkpoint, whose step is not known
    clock.now = 24.0
    apply(progress, Advanced(A, 7, 10, {"test": 1.25}))
    assert run.speed(clock.now) == 0.5
    assert run.time_left(clock.now) == 6.0
    assert progress.fraction() == pytest.approx(7 / 40)
    assert progress.time_left() == pytest.approx(24.0 / 2 * 33)


def test_a_new_run_has_a_speed_from_its_first_step(progress: CampaignProgress, clock: Clock) -> None:
    apply(progress, Started(A, 1))
    clock.now = 2.0
    apply(progress, Advanced(A, 1, 10))
    assert progress.active[A].speed(clock.now) == 0.5
    assert progress.time_left() == pytest.approx(2.0 * 39)
    clock.now = 20.0
    apply(progress, Ended(A, Outcome.DONE))
    assert progress.fraction() == 0.25
    assert progress.time_left() == pytest.approx(60.0)


def test_longer_runs_weigh_more(clock: Clock) -> None:
    short, long = spec_of(0, epochs=10), spec_of(0, epochs=30)
    progress = apply(CampaignProgress([short, long], clock), Ended(short.run_id, Outcome.DONE))
    assert progress.fraction() == 0.25


def test_counts(progress: CampaignProgress) -> None:
    apply(
        progress,
        Ended(A, Outcome.DONE, here=False),
        Started(B, 1),
        Ended(B, Outcome.FAILED, "ValueError: no"),
        Ended(C, Outcome.HELD),
    )
    assert progress.count(Outcome.DONE) == 1
    assert progress.count(Outcome.DONE, here=True) == 0
    assert progress.count(Outcome.HELD) == 1
    assert not progress.is_complete()
    apply(progress, Started(C, 1), Ended(C, Outcome.DONE), Started(D, 1), Lost(D, "killed"))
    assert progress.active == {}
    assert progress.count(Outcome.HELD) == 0
    assert [end.run_id for end in progress.failures()] == [B]
    assert progress.fraction() == 0.75
    apply(progress, Ended(D, Outcome.DONE))
    assert progress.is_complete()
    assert progress.fraction() == 1.0


def test_plain_lines(progress: CampaignProgress, clock: Clock) -> None:
    stream = io.StringIO()
    with PlainDisplay(progress, stream) as display:
        display.show(Started(A, 17))
        for step in range(1, 11):
            clock.now = float(step)
            display.show(Advanced(A, step, 10, {"test": 0.25}))
        display.show(Ended(A, Outcome.DONE))
        display.show(Started(B, 17))
        clock.now = 55.0
        display.show(Advanced(B, 1, 10))
        display.show(Ended(B, Outcome.FAILED, "ValueError: no"))
        display.show(Ended(C, Outcome.HELD))
        display.show(Stopping())
    assert stream.getvalue().splitlines() == [
        "mnist noise gmc seed 0: started (process 17)",
        "10%, 0 of 4 runs done, 36 s left | gmc seed 0 4/10 test loss 0.25",
        "20%, 0 of 4 runs done, 32 s left | gmc seed 0 8/10 test loss 0.25",
        "mnist noise gmc seed 0: done",
        "mnist noise gmc seed 1: started (process 17)",
        "28%, 1 of 4 runs done, 6 min 45 s left | gmc seed 1 1/10",
        "mnist noise gmc seed 1: failed: ValueError: no",
        "50%, 1 of 4 runs done, 1 failed, 1 min 50 s left",
        "mnist noise gmc seed 2: another process works on it; waiting",
        "stopping after the batches under way; Ctrl-C again stops at once",
    ]


def test_plain_lines_to_nobody_do_no_harm(progress: CampaignProgress) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    PlainDisplay(progress, Broken()).show(Started(A, 17))
    assert list(progress.active) == [A]


def test_a_closed_output_is_no_trouble(progress: CampaignProgress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    make_display(progress).show(Started(A, 17))
    assert list(progress.active) == [A]


def test_plain_lines_go_to_streams_of_any_encoding(progress: CampaignProgress) -> None:
    inner = io.BytesIO()
    stream = io.TextIOWrapper(inner, encoding="ascii")
    PlainDisplay(progress, stream).show(Ended(A, Outcome.FAILED, "ValueError: …"))
    assert inner.getvalue().splitlines()[0] == b"mnist noise gmc seed 0: failed: ValueError: ?"


def drawn(progress: CampaignProgress) -> list[str]:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(render(progress))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_the_table_has_a_line_for_each_run_under_way(progress: CampaignProgress, clock: Clock) -> None:
    apply(progress, Started(A, 1), Started(B, 2), Ended(C, Outcome.FAILED, "no", here=False), Ended(D, Outcome.HELD))
    clock.now = 2.0
    apply(progress, Advanced(A, 1, 10, {"train": 2.0, "test": 1.23456}))
    header, first, second, whole = drawn(progress)
    assert header.split() == ["method", "seed", "done", "test", "loss", "left"]
    assert first.split()[:2] == ["gmc", "0"]
    assert first.split()[-4:] == ["10%", "1.235", "18", "s"]
    assert second.split()[:2] == ["gmc", "1"]
    assert "starting" in second
    assert whole.endswith("28%, 0 of 4 runs done, 1 failed, 1 with other processes, 58 s left")
    apply(progress, Ended(A, Outcome.DONE), Ended(B, Outcome.DONE))
    (whole,) = drawn(progress)
    assert "2 of 4 runs done" in whole


def test_the_table_names_what_runs_differ_in_and_fits_80_columns(clock: Clock) -> None:
    params = {"env_id": "MiniGrid-DoorKey-8x8-v0", "steps": 1_000_000}
    other = {**params, "env_id": "MiniGrid-DoorKey-16x16-v0"}
    specs = [
        RunSpec(experiment="doorkey", condition="", method="gmc_episodic", seed=seed, params=each)
        for seed, each in enumerate((params, other))
    ]
    progress = apply(CampaignProgress(specs, clock), *(Started(spec.run_id, 1) for spec in specs))
    clock.now = 3600.0
    for spec in specs:
        apply(progress, Advanced(spec.run_id, 1, 10_000, {"return": 0.875}))
    header, first, second, _ = drawn(progress)
    assert header.split() == ["setting", "method", "seed", "done", "return", "left"]
    assert first.split()[1:3] == ["gmc_episodic", "0"]
    assert second.split()[1:3] == ["gmc_episodic", "1"]
    assert first.split()[-5:] == ["0.875", "416", "d", "15", "h"]


def test_the_live_display_draws_and_keeps_what_went_wrong(progress: CampaignProgress) -> None:
    stream = Terminal()
    console = Console(file=stream, force_terminal=True, width=140, color_system=None)
    with LiveDisplay(progress, console) as display:
        display.show(Started(A, 1))
        display.show(Ended(A, Outcome.FAILED, "ValueError: [bold]no[/bold]"))
        display.show(Stopping())
    assert "mnist noise gmc seed 0: failed: ValueError: [bold]no[/bold]\n" in stream.getvalue()
    assert "Ctrl-C again stops at once" in stream.getvalue()


def test_the_display_suits_the_stream(progress: CampaignProgress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_display(progress, io.StringIO()), PlainDisplay)
    assert isinstance(make_display(progress, Terminal()), LiveDisplay)
    monkeypatch.setattr(Terminal, "encoding", "ascii")
    assert isinstance(make_display(progress, Terminal()), PlainDisplay)
    monkeypatch.setattr(Terminal, "encoding", "utf-8")
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_display(progress, Terminal()), PlainDisplay)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert isinstance(make_display(progress, Terminal()), PlainDisplay)


def test_every_event_has_its_words(progress: CampaignProgress) -> None:
    assert describe(Advanced(A, 1, 2), progress) == ""
    assert describe(Ended(A, Outcome.DONE, here=False), progress) == ""
    assert describe(Lost(A, "it was killed"), progress) == (
        "mnist noise gmc seed 0: it was killed; starts again from its checkpoint"
    )
    assert summary_line(progress) == "0%, 0 of 4 runs done, ? left"


def test_reports_come_at_a_bearable_rate(clock: Clock) -> None:
    reported: list[Event] = []
    report = Reporter(A, reported.append, clock)
    for step in range(1, 101):
        clock.now += 0.01
        report(step, 100, {})
    steps = [event.step for event in reported if isinstance(event, Advanced)]
    assert steps[0] == 1
    assert steps[-1] == 100
    assert len(steps) == 11
