"""Intrinsic rewards in TorchRL, as a transform of what a collector gives.

from headway.integrations.torchrl import IntrinsicRewardTransform

collector = Collector(env, policy, ..., postproc=IntrinsicRewardTransform(pay))
"""

from __future__ import annotations

from typing import Any

from torchrl.envs.transforms import Transform

from headway.integrations.rollouts import RolloutReward

__all__ = ["IntrinsicRewardTransform"]


class IntrinsicRewardTransform(Transform):
    """Adds an intrinsic reward to ("next", "reward") of a batch [N, T] or [T], before advantages are computed.

    ("next", "intrinsic_reward") has it alone. TorchRL keeps the true next observation where an episode ends, so every
    row is a transition.

    Args:
        pay: made with the spaces of one environment and the number of them.
        observation: the key of observations.
        action: the key of actions; those that are one-hot are taken as their numbers.
    """

    def __init__(self, pay: RolloutReward, observation: str = "observation", action: str = "action") -> None:
        super().__init__(in_keys=[observation], out_keys=["intrinsic_reward"])
        self.pay = pay
        self._observation, self._action = observation, action

    def forward(self, tensordict: Any) -> Any:
        """Reward a batch, and train the predictor with it."""
        is_single = tensordict.ndim == 1
        batch = tensordict.unsqueeze(0) if is_single else tensordict
        actions = batch[self._action]
        if getattr(self.pay.reward.actions, "is_single", False) and actions.ndim > 2:
            actions = actions.argmax(-1)
        obs, following = batch[self._observation], batch["next", self._observation]
        done = batch.get(("next", "done"), None)
        ended = None if done is None else done.reshape(batch.shape).transpose(0, 1)
        obs, actions, following = (each.transpose(0, 1) for each in (obs, actions, following))
        bonus = self.pay.pay(obs, actions, following, ended=ended).transpose(0, 1)
        rewards = tensordict["next", "reward"]
        bonus = (bonus[0] if is_single else bonus).reshape(rewards.shape).to(rewards)
        tensordict["next", "intrinsic_reward"] = bonus
        tensordict["next", "reward"] = rewards + bonus
        return tensordict

    def _call(self, next_tensordict: Any) -> Any:
        """Single steps are left as they are: rollouts are rewarded as a whole."""
        return next_tensordict

    def get_extra_state(self) -> dict[str, Any]:
        """For `state_dict`: everything that later rewards depend on."""
        return self.pay.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """For `load_state_dict`."""
        self.pay.load_state_dict(state)
