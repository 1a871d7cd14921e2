"""With their default settings predictors learn what there is to learn, at the pace of a training run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gymnasium import spaces

from headway.rl import Episodes, IntrinsicConfig, Transitions, make_env, make_reward

STATES, ROLLOUT = 30, 512


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, the mean of them where values are equal."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    return (ends - (counts + 1) / 2)[inverse]


def rank_correlation(config: IntrinsicConfig, shares: np.ndarray, seed: int) -> float:
    """Of RND's rewards and the visits of one-hot states, after 20,480 steps."""
    rng = np.random.default_rng(seed)
    space = spaces.Box(0, 1, (STATES,), np.float32)
    reward = make_reward("rnd", space, spaces.Discrete(2), config, seed=seed)
    assert reward is not None
    states, still, visits = np.eye(STATES, dtype=np.float32), np.zeros(ROLLOUT, int), np.zeros(STATES)
    shares = rng.permutation(shares / shares.sum())
    for _ in range(40):
        places = rng.choice(STATES, ROLLOUT + 1, p=shares)
        visits += np.bincount(places[1:], minlength=STATES)
        reward.update(Transitions(states[places[:-1]], still, states[places[1:]]))
    rewards = reward.rewards(Transitions(states, still[:STATES], states)).numpy()
    return float(np.corrcoef(ranks(rewards), ranks(visits))[0, 1])


@pytest.mark.slow
@pytest.mark.parametrize(("law", "seed"), [("geometric", 0), ("harmonic", 1)])
def test_rnd_pays_most_for_what_was_visited_least(law: str, seed: int) -> None:
    shares = 0.8 ** np.arange(STATES) if law == "geometric" else 1 / np.arange(1, STATES + 1)
    assert rank_correlation(IntrinsicConfig(), shares, seed) < -0.9


@pytest.mark.slow
@pytest.mark.parametrize("view", ["row", "grid"])
def test_icm_finds_out_what_actions_do_in_doorkey(view: str) -> None:
    """Chance is log 7 = 1.95. Four of the seven actions mostly do nothing, so that the least is near 1."""
    env = make_env("MiniGrid-DoorKey-5x5-v0", num_envs=8)
    space, row = env.single_observation_space, spaces.Box(0, 255, (75,), np.uint8)
    reward = make_reward("icm+gmc", row if view == "row" else space, env.single_action_space)
    assert reward is not None
    episodes, rng = Episodes(env), np.random.default_rng(0)
    episodes.reset(seed=0)
    losses = []
    for _ in range(30):  # 61,440 steps
        steps = [episodes.step(rng.integers(0, 7, 8)) for _ in range(256)]
        obs, actions, following = (
            np.concatenate([getattr(step, name) for step in steps]) for name in ("obs", "actions", "next_obs")
        )
        if view == "row":
            obs, following = obs.reshape(len(obs), -1), following.reshape(len(obs), -1)
        losses.append(reward.rewards_and_update(Transitions(obs, actions, following)).metrics["inverse_loss"])
    assert losses[0] > 0.95 * math.log(7)
    assert losses[-1] < 0.65 * math.log(7)
