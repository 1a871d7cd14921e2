"""EnvPool's environments as Gymnasium vector environments, for `headway.rl` and the wrapper.

from headway.integrations.envpool import EnvPoolVectorEnv

env = EnvPoolVectorEnv(envpool.make("CartPole-v1", env_type="gymnasium", num_envs=8, seed=0))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

__all__ = ["EnvPoolVectorEnv"]


class EnvPoolVectorEnv(VectorEnv[Any, Any, Any]):
    """A pool with the interface of Gymnasium. Its mode is NEXT_STEP: the step after an end only begins anew.

    Args:
        pool: from `envpool.make(..., env_type="gymnasium")`, of which all environments step together.
    """

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.num_envs = int(pool.config["num_envs"])
        self.single_observation_space, self.single_action_space = pool.observation_space, pool.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes. The pool has its seed from `envpool.make`: `seed` is not used."""
        obs, infos = self.pool.reset()
        return obs, dict(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act in all environments."""
        obs, rewards, terminated, truncated, infos = self.pool.step(np.asarray(actions))
        return obs, rewards, terminated, truncated, dict(infos)

    def close(self, **options: Any) -> None:
        """Close the pool, if it can be."""
        getattr(self.pool, "close", lambda: None)()
