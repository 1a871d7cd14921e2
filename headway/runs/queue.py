"""`Queue`: which run comes next, which ones other processes hold, and which have lost their worker."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from headway.runs.spec import RunSpec

ASK_AGAIN = 1.0
"""Seconds after which a run that another process held is asked for again."""
MOST_LOSSES = 1
"""How many times a run that lost its worker is started again before it counts as failed."""


@dataclass(frozen=True)
class Task:
    """A run to attempt.

    Attributes:
        spec: the run.
        retry_failed: whether it is to be run also when it has failed before.
        failure: why it is to be recorded as failed instead, once no process holds it; empty for a run to attempt.
    """

    spec: RunSpec
    retry_failed: bool = False
    failure: str = ""


class Queue:
    """The runs of a campaign that are not over and not under way.

    A run that another process holds is asked for again from time to time: that process may die, and then the
    run is taken over from its checkpoint. By then its failure counts, so it is not retried again.

    Args:
        specs: the runs, in the order in which they are to be started.
        retry: the ids of failed runs that are to be run again.
        clock: gives seconds.
        most_losses: how many times in a row a run that lost its worker, without having come any further, is
            started again before it counts as failed.
    """

    def __init__(
        self,
        specs: Iterable[RunSpec],
        retry: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
        most_losses: int = MOST_LOSSES,
    ) -> None:
        self.most_losses = most_losses
        self._ready = deque(Task(spec, spec.run_id in retry) for spec in specs)
        self._held: deque[tuple[float, Task]] = deque()
        self._waiting_for: set[str] = set()
        self._losses: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        self._clock = clock

    def __len__(self) -> int:
        return len(self._ready) + len(self._held)

    def take(self) -> Task | None:
        """The next run to attempt; None when there is none, or none yet."""
        if self._ready:
            return self._ready.popleft()
        if self._held and self._held[0][0] <= self._clock():
            return self._held.popleft()[1]
        return None

    def delay(self) -> float | None:
        """Seconds until `take` has a run; None when that is not a matter of time."""
        if self._ready or not self._held:
            return None
        return max(0.0, self._held[0][0] - self._clock())

    def postpone(self, task: Task) -> bool:
        """Ask again later for a run that another process holds; True the first time."""
        run_id = task.spec.run_id
        is_news = run_id not in self._waiting_for
        self._waiting_for.add(run_id)
        self._held.append((self._clock() + ASK_AGAIN, replace(task, retry_failed=False)))
        return is_news

    def waits_for(self, run_id: str) -> bool:
        """Whether another process held a run when it was last asked for."""
        return run_id in self._waiting_for

    def put_back(self, task: Task, reached: int = 0) -> bool:
        """Start a run that lost its worker again; False when it has lost too many.

        It is the next, unless it has lost several without getting on. Then the others come first: what kills workers
        all around, such as a node short of memory, would otherwise hit the same run until it is given up.
        """
        run_id = task.spec.run_id
        if reached > self._reached.get(run_id, 0):
            self._losses[run_id] = 0
            self._reached[run_id] = reached
        self._losses[run_id] = self._losses.get(run_id, 0) + 1
        if self._losses[run_id] > self.most_losses:
            return False
        if self._losses[run_id] > 1:
            self._ready.append(task)
        else:
            self.push(task)
        return True

    def push(self, task: Task) -> None:
        """Let a run be the next."""
        self._ready.appendleft(task)

    def clear(self) -> None:
        """Drop everything: the campaign stops."""
        self._ready.clear()
        self._held.clear()
