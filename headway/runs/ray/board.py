"""A board in the cluster: workers write what happens on it, and read on it whether to stop."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import Any

from headway.runs.events import Advanced, Event

POST_INTERVAL = 0.5
"""Seconds between two looks of a worker at the board."""
PATIENCE = 10.0
"""Seconds that a worker waits for the board."""


@dataclass(frozen=True)
class Note:
    """An event, and the attempt that it belongs to: a worker that counts as lost may still write."""

    attempt: int
    event: Event
    host: str = ""


class Board:
    """Runs as an actor. If it is lost, Ray makes a new one; what was on it is lost, which harms no run."""

    def __init__(self) -> None:
        """Start empty."""
        self._notes: list[Note] = []
        self._stopping = False

    def post(self, notes: list[Note]) -> bool:
        """Write notes on the board; tell whether the campaign stops."""
        self._notes += notes
        return self._stopping

    def take(self, stopping: bool) -> list[Note]:
        """Take all notes off the board, and say whether the campaign stops."""
        self._stopping = stopping
        notes, self._notes = self._notes, []
        return notes


class Link:
    """A worker's connection to the board, looked after in a thread.

    Only that thread asks Ray for anything: a task whose main thread waits for Ray gives its core to the next one.

    Args:
        board: the handle of the actor.
        attempt: the number of the worker's attempt.
        host: the name of its machine.
        ray: the module.
    """

    def __init__(self, board: Any, attempt: int, host: str, ray: Any) -> None:
        """Begin to write and to read."""
        self.stopping = threading.Event()
        self._board = board
        self._attempt = attempt
        self._host = host
        self._ray = ray
        self._waiting: list[Note] = []
        self._receipts: list[threading.Event] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, name="headway-ray-link", daemon=True)
        self._thread.start()

    def tell(self, event: Event) -> None:
        """Write an event on the board: progress before long, of which only the latest counts; anything else at once.

        At once means before this returns: a run that kills its worker in the next instant has started all the same.
        """
        can_wait, written = isinstance(event, Advanced), threading.Event()
        with self._lock:
            if can_wait and self._waiting and isinstance(self._waiting[-1].event, Advanced):
                self._waiting.pop()
            self._waiting.append(Note(self._attempt, event, self._host))
            if not can_wait:
                self._receipts.append(written)
        if not can_wait:
            self._wake.set()
            written.wait(PATIENCE)

    def close(self) -> None:
        """Write what is left."""
        self._is_over = True
        self._wake.set()
        self._thread.join()

    def post(self) -> None:
        """Write on the board now, and read whether to stop; a board that is away for a moment is no trouble."""
        with self._lock:
            notes, self._waiting = self._waiting, []
            receipts, self._receipts = self._receipts, []
        with contextlib.suppress(self._ray.exceptions.RayError):
            if self._ray.get(self._board.post.remote(notes), timeout=PATIENCE):
                self.stopping.set()
        for written in receipts:
            written.set()

    def _keep_up(self) -> None:
        while not self._is_over:
            self.post()
            self._wake.wait(POST_INTERVAL)
            self._wake.clear()
        self.post()
