"""Stopping a campaign: once in good order, twice at once. And noticing that a worker stands still."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from types import FrameType

STOP_SECONDS = 6.0
"""Seconds that runs under way have to stop in good order; then their workers are killed."""
STALL_SECONDS = 600.0
"""Seconds without progress after which a campaign reports a run as stalled, by default."""


class StopRequest:
    """Somebody's wish that a campaign stop after the batches under way.

    Attributes:
        reader: becomes readable when it is made, to be waited for together with other connections.
    """

    def __init__(self) -> None:
        self._asked = False
        self.reader, self._writer = Pipe(duplex=False)

    @property
    def asked(self) -> bool:
        """Whether somebody has asked to stop."""
        return self._asked

    def ask(self) -> None:
        """Ask to stop; asking again changes nothing."""
        if not self._asked:
            self._asked = True
            self._writer.send_bytes(b"stop")

    def wait(self, seconds: float) -> bool:
        """Wait until somebody asks to stop, but not longer than so many seconds; say whether somebody did."""
        return self._asked or self.reader.poll(seconds)


class Silence:
    """For how long nothing was heard of a run under way."""

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self.end()

    def end(self) -> None:
        """Something was heard."""
        self._since = self._clock()
        self._due = self._since + self._patience

    def left(self) -> float:
        """Seconds until it is worth saying."""
        return max(0.0, self._due - self._clock())

    def is_worth_saying(self) -> float | None:
        """How long it has lasted, in seconds, if that is to be said now."""
        now = self._clock()
        if now < self._due:
            return None
        self._due = now + self._patience
        return now - self._since


@contextlib.contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask to stop, and a Ctrl-C after that raise KeyboardInterrupt.

    SIGTERM never stops at once: whoever sends it to a group of processes may well send it twice.
    Signals stay as they are outside of the main thread, which alone may handle them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.ask()

    def on_terminate(_number: int, _frame: FrameType | None) -> None:
        stop.ask()

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, on_interrupt),
        signal.SIGTERM: signal.signal(signal.SIGTERM, on_terminate),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
