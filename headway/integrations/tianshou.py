"""Intrinsic rewards in Tianshou's on-policy algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from headway.errors import MethodError
from headway.integrations.rewards import Intercept
from headway.integrations.rollouts import RolloutReward

__all__ = ["pay_intrinsic"]

Algorithm = TypeVar("Algorithm")


def pay_intrinsic(algorithm: Algorithm, pay: RolloutReward) -> Algorithm:
    """Add an intrinsic reward to each batch of an algorithm, just before it computes advantages.

        algorithm = pay_intrinsic(PPO(...), pay)

    The buffer keeps the task's rewards. Tianshou keeps true next observations, so every row is a transition.

    Args:
        algorithm: PPO, A2C or another that computes advantages (`ActorCriticOnPolicyAlgorithm`).
        pay: made with `spaces=(observation space, action space, 1)`: a batch holds one environment after the other, and
            is one stream to it.

    Returns:
        the same algorithm.

    Raises:
        MethodError: an algorithm without advantages.
    """
    name = "_add_returns_and_advantages"
    if not hasattr(algorithm, name):
        raise MethodError(
            f"expected an algorithm that computes advantages, such as PPO, got {type(algorithm).__name__}"
        )

    def rewarded(compute: Callable[..., Any], batch: Any, *args: Any) -> Any:
        rows = (np.asarray(each)[:, None] for each in (batch.obs, batch.act, batch.obs_next))
        batch.rew = batch.rew + pay.pay(*rows)[:, 0].cpu().numpy()
        return compute(batch, *args)

    Intercept(name, rewarded).start(algorithm)
    return algorithm
