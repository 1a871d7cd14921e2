"""Independent pieces of work side by side, each on one core.

The policy and the value network learn from the same rollout without knowing of each other, so two cores can train one
each. That beats two cores on every product, which wait for each other all the time, and the numbers are those of one
core: no sum is split.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from headway.errors import MethodError


class Lanes:
    """Does pieces of work at the same time.

    Args:
        threads: how many at most. With one, they are done in their order, in the caller's thread.

    Raises:
        MethodError: not a number of threads.
    """

    def __init__(self, threads: int = 1) -> None:
        """Keep the number; threads start when they are first needed."""
        if threads < 1:
            raise MethodError(f"threads: expected at least 1, got {threads}")
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def run(self, *work: Callable[[], Any]) -> list[Any]:
        """Do all of it, and return the results in the order of the arguments; put the longest pieces first."""
        if self.threads == 1 or len(work) == 1:
            return [each() for each in work]
        if self._pool is None:
            # torch keeps the number of threads that an operation is split over for each thread apart
            each_has = max(1, torch.get_num_threads() // self.threads)
            self._pool = ThreadPoolExecutor(
                self.threads, "headway-lane", initializer=torch.set_num_threads, initargs=(each_has,)
            )
        futures = [self._pool.submit(each) for each in work]
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
