"""Generalised advantage estimation (J. Schulman et al., 2015).

With V(s) the value of an observation and s' what really followed it, the last observation where an episode ended:

    delta_t = r_t + gamma V(s'_t) [not terminated] - V(s_t)
    A_t     = delta_t + gamma lambda [not ended] A_{t+1}

The advantage is linear in the rewards: one more unit of reward at step t + k of the same episode adds (gamma lambda)^k
to A_t, whatever the values are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def advantages(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Mask,
    ended: Mask,
    gamma: float,
    gae_lambda: float,
    valid: Mask | None = None,
) -> Array:
    """The advantages of the steps of a rollout.

    Args:
        rewards: in the order of time [T, N].
        values: of the observations that were acted on [T, N].
        next_values: of what really followed [T, N].
        terminated: nothing follows: `next_values` does not count [T, N].
        ended: the step after this one belongs to another episode [T, N].
        gamma: discount.
        gae_lambda: weight of later steps.
        valid: where there was a transition [T, N]. Where there was none, the advantage is that of the next step,
            which is what comes before it is to be joined with, if `ended` does not part them.

    Returns:
        [T, N], in double precision.
    """
    deltas = rewards + gamma * next_values * ~terminated - values.astype(np.float64)
    decay = np.where(ended, 0.0, gamma * gae_lambda)
    if valid is not None:
        deltas, decay = np.where(valid, deltas, 0.0), np.where(valid, decay, 1.0)
    result = np.empty_like(deltas)
    later = np.zeros(deltas.shape[1])
    for step in range(len(deltas) - 1, -1, -1):
        later = deltas[step] + decay[step] * later
        result[step] = later
    return result


def onward_values(values: Array, last_values: Array, valid: Mask) -> Array:
    """What follows each step if episodes do not count: the value of the observation that is acted on next.

    Args:
        values: of the observations that were acted on [T, N].
        last_values: of those that come after the rollout [N].
        valid: where there was a transition [T, N]; others are passed over.

    Returns:
        [T, N].
    """
    result = np.empty_like(values)
    following = last_values
    for step in range(len(values) - 1, -1, -1):
        result[step] = following
        following = np.where(valid[step], values[step], following)
    return result
