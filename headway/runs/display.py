"""Displays of a campaign under way: live with rich on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from typing import Any, Protocol, TextIO

from headway.runs.progress import (
    Active,
    Advanced,
    CampaignProgress,
    Ended,
    Event,
    Lost,
    Outcome,
    Stalled,
    Started,
    Stopping,
)
from headway.runs.text import count, duration, label, plain, steps, value_name, values_text, write_line

STOPPING = "stopping after the batches under way; Ctrl-C again stops at once"
_LINES = 10
_SECONDS_PER_LINE = 30.0


class Display(Protocol):
    """Shows a campaign; a context manager that is shown every event."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *error: object) -> None:
        """End."""
        ...

    def show(self, event: Event) -> None:
        """Take an event into the progress and show what has changed."""
        ...


def make_display(progress: CampaignProgress, stream: TextIO | None = None) -> Display:
    """The display that suits the stream: live on a terminal if rich is installed, plain lines otherwise.

    The stream is the standard output by default, which may be closed.
    """
    stream = stream or sys.stdout
    has_characters = stream is not None and stream.isatty() and (stream.encoding or "utf").lower().startswith("utf")
    if has_characters and importlib.util.find_spec("rich"):
        from rich.console import Console

        console = Console(file=stream)
        if console.is_terminal and not console.is_dumb_terminal:
            return LiveDisplay(progress, console)
    return PlainDisplay(progress, stream)


class PlainDisplay:
    """A line when a run starts and ends, and on the whole every 10% or 30 s; nothing without a stream."""

    def __init__(self, progress: CampaignProgress, stream: TextIO | None) -> None:
        self._progress = progress
        self._stream = stream
        self._tenths = 0
        self._next_time = progress.now() + _SECONDS_PER_LINE

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        """End."""

    def show(self, event: Event) -> None:
        """Take an event into the progress and write a line if it is worth one."""
        self._progress.apply(event)
        lines = [describe(event, self._progress)]
        if isinstance(event, (Advanced, Ended)) and self._is_due():
            active = "; ".join(_in_words(run, self._progress) for run in self._progress.active.values())
            lines.append(" | ".join(filter(None, (summary_line(self._progress), active))))
        for line in filter(None, lines):
            with contextlib.suppress(OSError):  # nobody reads it any more, or the log's disk is full: the runs go on
                if self._stream is not None:
                    write_line(self._stream, line)

    def _is_due(self) -> bool:
        tenths, now = int(self._progress.fraction() * _LINES + 1e-9), self._progress.now()
        if tenths >= _LINES or (tenths <= self._tenths and now < self._next_time):
            return False
        self._tenths = tenths
        self._next_time = now + _SECONDS_PER_LINE
        return True


class LiveDisplay:
    """A table with a line for each run under way, and the whole campaign's bar below it, on a console of rich."""

    def __init__(self, progress: CampaignProgress, console: Any) -> None:
        from rich.live import Live

        self._progress = progress
        self._console = console
        self._lock = threading.Lock()  # rich draws in a thread of its own
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Take the table away; the lines above it stay."""
        self._live.stop()

    def show(self, event: Event) -> None:
        """Take an event into the progress; what goes wrong stays as a line above the table."""
        with self._lock:
            self._progress.apply(event)
            line = describe(event, self._progress)
        has_failed = isinstance(event, Ended) and event.outcome is Outcome.FAILED
        if isinstance(event, (Lost, Stalled)) or has_failed:
            self._console.print(plain(line), markup=False, highlight=False)

    def _draw(self) -> Any:
        with self._lock:
            return render(self._progress)


def render(progress: CampaignProgress) -> Any:
    """The table of the runs under way and the bar of the campaign, as something that rich can print in 80 columns.

    It leaves out the dataset or condition that all runs share, and shows the last of the values that a run reports.
    """
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    running, now = list(progress.active.values()), progress.now()
    settings = [progress.setting(run.spec) for run in running]
    values = [list(run.losses.items())[-1:] for run in running]
    names = dict.fromkeys(value_name(name) for value in values for name, _ in value)
    if any(settings):
        table.add_column("setting", no_wrap=True, max_width=20)
    table.add_column("method", no_wrap=True, max_width=16)
    for name in ("seed", "done", "", plain(", ".join(names), ""), "left"):
        table.add_column(name, no_wrap=True, justify="left" if name == "done" else "right")
    for run, setting, value in zip(running, settings, values, strict=True):
        bar = ProgressBar(total=1.0, completed=run.fraction(), width=8)
        done = f"{run.fraction():.0%}" if run.total else "starting"
        number = ", ".join(f"{each:.4g}" for _, each in value)
        left = duration(run.time_left(now))
        words = ([setting] if any(settings) else []) + [run.spec.method, str(run.spec.seed)]
        table.add_row(*(plain(word, "") for word in words), bar, done, number, left)
    whole = Table.grid(padding=(0, 2, 0, 0))
    whole.add_row(ProgressBar(total=1.0, completed=progress.fraction(), width=12), summary_line(progress))
    return Group(table, whole) if progress.active else Group(whole)


def summary_line(progress: CampaignProgress) -> str:
    """The campaign in a line: share, counts and time left."""
    done = f"{progress.count(Outcome.DONE)} of {count(len(progress.specs), 'run')} done"
    failed = progress.count(Outcome.FAILED)
    held = progress.count(Outcome.HELD)
    parts = [f"{progress.fraction():.0%}", done]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{held} with other processes"] if held else []
    return ", ".join([*parts, STOPPING if progress.is_stopping else f"{duration(progress.time_left())} left"])


def describe(event: Event, progress: CampaignProgress) -> str:
    """An event in a line; nothing if it is not worth one."""
    if isinstance(event, Stopping):
        return STOPPING
    name = label(progress.specs[event.run_id])
    match event:
        case Started(pid=pid, host=host):
            return f"{name}: started (process {pid}{f' on {host}' if host else ''})"
        case Lost(message=message):
            return f"{name}: {message}; starts again from its checkpoint"
        case Stalled(seconds=seconds, pid=pid):
            process = f" (process {pid})" if pid else ""
            lasted = duration(seconds)
            return f"{name}: no progress for {lasted}{process}; is it suspended, or its disk or network unavailable?"
        case Ended(outcome=Outcome.HELD):
            return f"{name}: another process works on it; waiting"
        case Ended(outcome=Outcome.FAILED, message=message):
            return f"{name}: failed: {message}"
        case Ended(outcome=outcome, here=True):
            return f"{name}: {outcome.value}"
    return ""


def _in_words(run: Active, progress: CampaignProgress) -> str:
    done = steps(run.step, run.total) if run.total else "starting"
    name = f"{run.spec.method} seed {run.spec.seed}"
    return " ".join(filter(None, (progress.setting(run.spec), name, done, values_text(run.losses))))
