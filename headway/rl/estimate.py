"""From rewards and values to advantages and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.rl.config import PPOConfig
from headway.rl.gae import advantages, onward_values
from headway.rl.rollout import Rollout

Array = npt.NDArray[Any]


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


def payments(rollout: Rollout, extrinsic: Array, intrinsic: Array) -> dict[str, float]:
    """What the agent was paid, and for what: the shares tell who watches the noise.

    Args:
        rollout: what happened.
        extrinsic: rewards as they were learned from [T, N].
        intrinsic: rewards as they were learned from [T, N].

    Returns:
        means and deviations of both; the share of the intrinsic reward that was paid while the noise was on (NaN if
        nothing was paid); the share of time that was spent there.
    """
    noise_on = rollout.noise_on[rollout.valid]
    outer, inner = extrinsic[rollout.valid], intrinsic[rollout.valid]
    paid = inner.sum()
    return {
        "extrinsic_mean": float(outer.mean()),
        "extrinsic_std": float(outer.std()),
        "intrinsic_mean": float(inner.mean()),
        "intrinsic_std": float(inner.std()),
        "noise_reward_share": float(inner[noise_on].sum() / paid) if paid else float("nan"),
        "noise_time_share": float(noise_on.mean()),
    }
