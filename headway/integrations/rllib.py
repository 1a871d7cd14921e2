"""Intrinsic rewards in RLlib, as a piece of the learner's connector pipeline.

from headway.integrations.rllib import IntrinsicRewardConnector

config.training(learner_connector=lambda obs_space, action_space: IntrinsicRewardConnector(pay))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ray.rllib.connectors.connector_v2 import ConnectorV2

from headway.integrations.rollouts import RolloutReward

__all__ = ["IntrinsicRewardConnector"]


class IntrinsicRewardConnector(ConnectorV2):
    """Adds an intrinsic reward to the episodes that a learner gets, before advantages are computed.

    An episode has one observation more than it has steps, so the last one is true also where it ended.

    Args:
        pay: made with `spaces=(observation space, action space, 1)`: episodes come one after the other.
    """

    def __init__(self, pay: RolloutReward) -> None:
        super().__init__()
        self.pay = pay

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **options: Any) -> Any:
        """Reward all steps of all episodes, and train the predictor with them."""
        single = list(self.single_agent_episode_iterator(episodes=episodes, agents_that_stepped_only=False))
        single = [episode for episode in single if len(episode)]
        if not single:
            return batch
        seen = [np.asarray(episode.get_observations()) for episode in single]
        obs, following = (np.concatenate([each[part] for each in seen]) for part in (slice(-1), slice(1, None)))
        actions = np.concatenate([np.asarray(episode.get_actions()) for episode in single])
        bonus = self.pay.pay(obs[:, None], actions[:, None], following[:, None])[:, 0].cpu().numpy()
        for episode, own in zip(single, np.split(bonus, np.cumsum([len(each) for each in single])[:-1]), strict=True):
            rewards = np.asarray(episode.get_rewards()) + own
            for index, reward in enumerate(rewards):
                episode.set_rewards(new_data=float(reward), at_indices=index)
        return batch
