"""Intrinsic rewards for algorithms that learn from rollouts: PPO, A2C and their relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from headway.errors import EnvError, MethodError
from headway.integrations.sb3.base import Array, IntrinsicCallback, flat
from headway.integrations.sb3.intercept import Intercept
from headway.rl.transitions import Transitions


class OnPolicyIntrinsicCallback(IntrinsicCallback):
    """Adds an intrinsic reward to each rollout before its advantages are computed.

        model = PPO("MlpPolicy", "CartPole-v1")
        model.learn(100_000, callback=OnPolicyIntrinsicCallback("icm+gmc", coefficient=0.1))

    When the rollout is complete, the algorithm asks its buffer for returns and advantages. At that moment all
    transitions of the rollout are paid, the predictor learns from them, and the rewards go into the buffer; then the
    buffer computes as ever. The task's own episode statistics, the bootstrap at truncated episodes and the random
    numbers of the algorithm stay as they are.

    See `IntrinsicCallback` for the arguments.
    """

    works_with: ClassVar[tuple[str, type[BaseAlgorithm]]] = ("an on-policy", OnPolicyAlgorithm)
    model: OnPolicyAlgorithm

    def __init__(self, *args: Any, **options: Any) -> None:
        """See `IntrinsicCallback`."""
        super().__init__(*args, **options)
        self._intercept = Intercept("compute_returns_and_advantage", self._pay)
        self._ends: list[tuple[int, int, Array]] = []
        self._steps = 0
        self._has_paid = False

    def _check(self, model: BaseAlgorithm) -> None:
        """Refuse also normalised observations that the buffer would round."""
        super()._check(model)
        normalised = model.get_vec_normalize_env()
        dtype = self.model.rollout_buffer.observations.dtype
        if normalised is not None and normalised.norm_obs and dtype.kind not in "fc":
            raise EnvError(
                f"expected a rollout buffer of float32 for normalised observations, got one of {dtype}, which would "
                f"cut every value to a whole number; wrap each environment in "
                f"gymnasium.wrappers.DtypeObservation(env, np.float32)"
            )

    def _on_rollout_start(self) -> None:
        self._ends, self._steps, self._has_paid = [], 0, False
        self._intercept.start(self.model.rollout_buffer)

    def _on_step(self) -> bool:
        """Keep the last observations of episodes: the buffer has the first ones of the next instead."""
        dones = self.locals["dones"]
        if np.any(dones):
            infos = self.locals["infos"]
            self._ends += [(self._steps, int(i), _last_observation(infos[i], int(i))) for i in np.flatnonzero(dones)]
        self._steps += 1
        return True

    def _on_rollout_end(self) -> None:
        self._intercept.stop()
        if not self._has_paid:
            raise MethodError(
                f"expected {type(self.model).__name__} to call rollout_buffer.compute_returns_and_advantage(), "
                f"it did not: the intrinsic reward would not reach the update"
            )

    def _on_training_end(self) -> None:
        self._intercept.stop()

    def _pay(self, compute: Callable[..., None], *args: Any, **options: Any) -> None:
        """Add the intrinsic reward to the buffer, then compute as ever."""
        if self.model.num_timesteps != self.num_timesteps:  # left over from training that was broken off
            self._intercept.stop()
            return compute(*args, **options)
        buffer = self.model.rollout_buffer
        result = self._made.rewards_and_update(self._transitions())
        raw = result.rewards.cpu().view(buffer.rewards.shape)
        if self.normaliser is not None:
            self.normaliser.update(raw)
        scaled = self._scaled(raw)
        buffer.rewards += scaled.numpy()
        self._has_paid = True
        self._log(raw, scaled, result.metrics)
        return compute(*args, **options)

    def _transitions(self) -> Transitions:
        """All transitions of the rollout, [steps * environments]."""
        buffer, space = self.model.rollout_buffer, self.model.observation_space
        last = np.asarray(self.locals["new_obs"]).reshape(buffer.observations.shape[1:])
        following = np.concatenate([buffer.observations[1:], last[None].astype(buffer.observations.dtype)])
        for step, environment, observation in self._ends:
            following[step, environment] = observation
        shape = tuple(space.shape or ())
        return Transitions(flat(buffer.observations, shape), self._actions(), flat(following, shape))

    def _actions(self) -> torch.Tensor:
        """The actions that the environments were given: within bounds, where the policy's are not."""
        space, policy = self.model.action_space, self.model.policy
        actions = flat(self.model.rollout_buffer.actions, tuple(space.shape or ()))
        if not isinstance(space, spaces.Box):
            return actions
        if policy.squash_output:
            return torch.from_numpy(policy.unscale_action(actions.numpy()))
        return torch.from_numpy(np.clip(actions.numpy(), space.low, space.high))


def _last_observation(info: dict[str, Any], environment: int) -> Array:
    """The last observation of an episode that ended.

    Raises:
        EnvError: the environment does not tell.
    """
    last = info.get("terminal_observation")
    if last is None:
        raise EnvError(
            f"expected infos[{environment}]['terminal_observation'] where an episode ended, got none; "
            f"a VecEnv has to put the last observation there before it begins a new episode"
        )
    return np.array(last)
