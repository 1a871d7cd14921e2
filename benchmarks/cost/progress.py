"""Tells what a benchmark is doing, and about how long it will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO


class Progress:
    """One line that is rewritten on a terminal; elsewhere a line now and then.

    Args:
        cases: how many there are.
        seconds: a first guess at the time of each; later, those that are done tell.
        stream: where to write.
        clock: the time in seconds.
    """

    def __init__(
        self,
        cases: int,
        seconds: float,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._cases = cases
        self._done = 0
        self._guess = seconds
        self._start = self._case_start = clock()
        self._rewrite = self._stream.isatty()
        self._shown = -1e9

    def say(self, text: str) -> None:
        """Show what begins now."""
        self._write(text)

    def tick(self, text: str) -> None:
        """Show how far it is, unless something was shown just before."""
        if self._clock() - self._shown >= (0.2 if self._rewrite else 10.0):
            self._write(text)

    def case_done(self) -> None:
        """Note that a case is finished."""
        self._done += 1
        self._case_start = self._clock()
        self._guess = (self._case_start - self._start) / self._done

    def left(self) -> float:
        """The seconds that are left, by what the cases so far have taken."""
        of_this = max(0.0, self._guess - (self._clock() - self._case_start))
        return of_this + self._guess * max(0, self._cases - self._done - 1)

    def close(self) -> None:
        """Clear the line."""
        if self._rewrite:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def _write(self, text: str) -> None:
        line = f"{text} ({duration(self.left())} left)"
        self._stream.write(f"\r\x1b[2K{line}" if self._rewrite else f"{line}\n")
        self._stream.flush()
        self._shown = self._clock()


def duration(seconds: float) -> str:
    """A rough duration: "40 s", "3 min"."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
