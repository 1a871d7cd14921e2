"""What episodes came to: their returns and lengths."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class EpisodeLog:
    """Adds up the rewards of episodes over rollouts, and remembers the last ones.

    Args:
        envs: how many environments there are.
        window: how many episodes are remembered.
    """

    def __init__(self, envs: int, window: int) -> None:
        """Start with no episodes."""
        self.count = 0
        self._returns: deque[float] = deque(maxlen=window)
        self._lengths: deque[int] = deque(maxlen=window)
        self._return = np.zeros(envs)
        self._length = np.zeros(envs, dtype=np.int64)

    def add(self, rewards: Array, ended: Mask, valid: Mask) -> None:
        """Take in a rollout; all arrays are [T, N]. Episodes are remembered in the order in which they ended."""
        sums = np.where(valid, rewards, 0.0).cumsum(axis=0)
        steps = valid.cumsum(axis=0)
        before, steps_before = -self._return, -self._length
        for step, env in np.argwhere(ended & valid):
            self._returns.append(float(sums[step, env] - before[env]))
            self._lengths.append(int(steps[step, env] - steps_before[env]))
            before[env], steps_before[env] = sums[step, env], steps[step, env]
            self.count += 1
        self._return, self._length = sums[-1] - before, steps[-1] - steps_before

    @property
    def mean_return(self) -> float:
        """Over the remembered episodes; NaN while fewer have ended than there are environments.

        Environments begin together, and the first episodes to end are the short ones: their mean would mislead.
        """
        return float(np.mean(self._returns)) if self.count >= len(self._return) else float("nan")

    @property
    def mean_length(self) -> float:
        """Over the remembered episodes; NaN as for the return."""
        return float(np.mean(self._lengths)) if self.count >= len(self._return) else float("nan")

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers."""
        return {
            "count": self.count,
            "returns": list(self._returns),
            "lengths": list(self._lengths),
            "return": self._return.tolist(),
            "length": self._length.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.count = state["count"]
        self._returns = deque(state["returns"], maxlen=self._returns.maxlen)
        self._lengths = deque(state["lengths"], maxlen=self._lengths.maxlen)
        self._return = np.array(state["return"])
        self._length = np.array(state["length"], dtype=np.int64)
