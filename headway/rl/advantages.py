"""From rewards and values to advantages and returns.

Generalised advantage estimation (J. Schulman et al., 2015): with V(s) the value of an observation and s' what really
followed it, the last observation where an episode ended,

    delta_t = r_t + gamma V(s'_t) [not terminated] - V(s_t)
    A_t     = delta_t + gamma lambda [not ended] A_{t+1}

The advantage is linear in the rewards: one more unit of reward at step t + k of the same episode adds (gamma lambda)^k
to A_t, whatever the values are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.rl.config import PPOConfig
from headway.rl.rollout import Rollout

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Values:
    """What a value network says about a rollout.

    Attributes:
        before: of what was acted on [T, N, heads].
        after: of what really followed [T, N, heads].
        last: of what is acted on next [N, heads].
    """

    before: Array
    after: Array
    last: Array


def estimate(
    rollout: Rollout, extrinsic: Array, intrinsic: Array, values: Values, config: PPOConfig
) -> tuple[Array, Array]:
    """The advantages of a rollout's actions, and what the values should have been.

    With one head both rewards are added before anything else. With two, each has its own values and its own
    advantages, and the advantages are added: the factors on the rewards are also the weights of the two.

    Args:
        rollout: what happened.
        extrinsic: the rewards of the environment, scaled [T, N].
        intrinsic: the intrinsic rewards, scaled [T, N].
        values: of the value network.
        config: discounts, and what counts as an end.

    Returns:
        advantages [T, N] and returns [T, N, heads].
    """
    ended, valid = rollout.ended, rollout.valid
    terminated = ended if config.truncation == "terminate" else rollout.terminated
    first = extrinsic + intrinsic if config.value_heads == 1 else extrinsic
    gains = [
        advantages(
            first,
            values.before[..., 0],
            values.after[..., 0],
            terminated,
            ended,
            config.gamma,
            config.gae_lambda,
            valid,
        )
    ]
    if config.value_heads == 2:
        before, after = values.before[..., 1], values.after[..., 1]
        if not config.intrinsic_episodic:
            after = onward_values(before, values.last[..., 1], valid)
            terminated = ended = np.zeros_like(ended)
        gamma = config.intrinsic_gamma
        gains.append(advantages(intrinsic, before, after, terminated, ended, gamma, config.gae_lambda, valid))
    each = np.stack(gains, axis=-1)
    return each.sum(axis=-1), each + values.before


def explained_variance(values: Array, returns: Array) -> float:
    """How much of the variance of returns [n] the values [n] explain: 1 is all; NaN where returns do not vary."""
    spread = returns.var()
    return float(1 - (returns - values).var() / spread) if spread > 0 else float("nan")


def reward_metrics(rollout: Rollout, extrinsic: Array, intrinsic: Array) -> dict[str, float]:
    """Means of both rewards, and where the intrinsic one came from: the shares tell who watches the noise.

    Args:
        rollout: what happened.
        extrinsic: rewards as they were learned from [T, N].
        intrinsic: rewards as they were learned from [T, N].

    Returns:
        means and deviations of both; the share of the intrinsic reward that came while the noise was on (NaN if
        there was none); the share of time that was spent there.
    """
    noise_on = rollout.noise_on[rollout.valid]
    outer, inner = extrinsic[rollout.valid], intrinsic[rollout.valid]
    total = inner.sum()
    return {
        "extrinsic_mean": float(outer.mean()),
        "extrinsic_std": float(outer.std()),
        "intrinsic_mean": float(inner.mean()),
        "intrinsic_std": float(inner.std()),
        "noise_reward_share": float(inner[noise_on].sum() / total) if total else float("nan"),
        "noise_time_share": float(noise_on.mean()),
    }


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
