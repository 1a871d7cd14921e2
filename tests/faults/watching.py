"""What the soak sees of a campaign, and when it strikes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headway.runs.progress import CampaignProgress, Ended, Event, Lost, Started


@dataclass
class Watch:
    """A display that keeps which processes work on runs, counts losses, and acts again and again from the first run on.

    Attributes:
        log: the file that every event is written to; none without one.
        pids: the processes that work on runs, by run.
        losses: how many times a run lost its worker.
        act: what to do.
        every: seconds between two acts.
        until: seconds after which it acts no more.
    """

    log: Path | None = None
    pids: dict[str, int] = field(default_factory=dict)
    losses: int = 0
    act: Callable[[], object] = lambda: None
    every: float = math.inf
    until: float = 0.0
    _due: float = math.inf
    _end: float = math.inf

    def __call__(self, progress: CampaignProgress) -> Watch:
        self._progress = progress
        return self

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, event: Event) -> None:
        self._progress.apply(event)
        self.note(event)
        if isinstance(event, Started):
            self.pids[event.run_id] = event.pid
        elif isinstance(event, Lost | Ended):
            self.pids.pop(event.run_id, None)
            self.losses += isinstance(event, Lost)
        now = time.monotonic()
        if self._end == math.inf and self.pids:
            self._due, self._end = now + self.every, now + self.until
        if self._due <= now < self._end and self.pids:
            self.act()
            self._due = time.monotonic() + self.every

    def note(self, what: object) -> None:
        """Write something down, with the time."""
        if self.log:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"{time.monotonic():.2f} {what}\n")


@contextmanager
def every(seconds: float, act: Callable[[], object], until: float, is_ready: Callable[[], bool]) -> Iterator[None]:
    """Do something again and again in a thread, for so long from when it is ready on."""
    over = threading.Event()

    def work() -> None:
        while not is_ready() and not over.wait(0.1):
            pass
        deadline = time.monotonic() + until
        while not over.wait(seconds) and time.monotonic() < deadline:
            act()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
