"""Stopping a campaign: once in good order, twice at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from types import FrameType


class StopRequest:
    """Somebody's wish that a campaign stop after the batches under way.

    Attributes:
        reader: becomes readable when it is made, to be waited for together with other connections.
    """

    def __init__(self) -> None:
        """Start with no such wish."""
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
