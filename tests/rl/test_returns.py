"""Returns and lengths of episodes over rollouts."""

from __future__ import annotations

import json
import math

import numpy as np

from headway.rl.returns import EpisodeLog


def test_episodes_by_hand() -> None:
    log = EpisodeLog(envs=2, window=2)
    assert math.isnan(log.mean_return)
    assert math.isnan(log.mean_length)
    rewards = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    ended = np.array([[0, 0], [1, 0], [0, 0]], dtype=bool)
    log.add(rewards, ended, np.ones_like(ended))
    assert log.count == 1
    assert math.isnan(log.mean_return)  # the other environment has not ended yet, and may have a longer episode
    log = reloaded(log)
    ended = np.array([[0, 1], [1, 0], [0, 0]], dtype=bool)
    log.add(rewards, ended, np.ones_like(ended))  # 70 + 10 in 4 steps, then 4 + 1 + 2 in 3
    assert (log.count, log.mean_return, log.mean_length) == (3, (80 + 7) / 2, (4 + 3) / 2)


def test_steps_without_a_transition_do_not_count() -> None:
    log = EpisodeLog(envs=1, window=10)
    rewards, ended = np.array([[1.0], [99.0], [2.0], [3.0]]), np.array([[1], [0], [0], [1]], dtype=bool)
    log.add(rewards, ended, np.array([[1], [0], [1], [1]], dtype=bool))
    assert (log.count, log.mean_return, log.mean_length) == (2, (1 + 5) / 2, (1 + 2) / 2)


def reloaded(log: EpisodeLog) -> EpisodeLog:
    other = EpisodeLog(envs=2, window=2)
    other.load_state_dict(json.loads(json.dumps(log.state_dict())))
    return other
