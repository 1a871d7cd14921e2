"""Rollouts and what is estimated from them, under all three autoreset modes of Gymnasium."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from headway.rl.agent import CategoricalHead
from headway.rl.config import PPOConfig
from headway.rl.episodes import Episodes
from headway.rl.learning import Values, estimate, explained_variance, reward_metrics
from headway.rl.rollout import EpisodeLog, Rollout, collect
from tests.rl.chains import Chain, together

LENGTHS = (3, 1, 4)
HEAD = CategoricalHead(2)


def rollout(mode: AutoresetMode, steps: int = 24) -> Rollout:
    episodes = Episodes(together(lambda number: Chain(number, LENGTHS[number]), 3, mode))
    episodes.reset(seed=0)
    made = collect(episodes, act, HEAD, steps, torch.Generator().manual_seed(0), lambda: False)
    assert made is not None
    return made


def act(observations: np.ndarray) -> np.ndarray:
    return np.zeros((len(observations), 2), np.float32)


def worth(observations: np.ndarray) -> np.ndarray:
    """Some value for every observation [..., 1]."""
    return np.cos(observations @ np.array([1.0, 3.0, 5.0]))[..., np.newaxis]


def gains(made: Rollout, config: PPOConfig, inner: float = 0.0) -> dict[tuple[float, ...], float]:
    """The advantage of every transition, by what was acted on."""
    values = Values(worth(made.obs), worth(made.next_obs), worth(made.last_obs))
    found, returns = estimate(made, made.rewards, inner * made.rewards**2, values, config)
    assert np.array_equal((found + values.before[..., 0])[made.valid], returns[..., 0][made.valid])
    return {tuple(made.obs[t, n].tolist()): found[t, n] for t, n in np.argwhere(made.valid)}


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_transitions_stay_within_their_episodes(mode: AutoresetMode) -> None:
    made = rollout(mode)
    batch = made.transitions()
    assert len(batch) == made.valid.sum()
    assert made.valid.all() == (mode is not AutoresetMode.NEXT_STEP)
    assert torch.equal(batch.obs[:, :2], batch.next_obs[:, :2])
    assert torch.equal(batch.obs[:, 2] + 1, batch.next_obs[:, 2])
    ends = batch.next_obs[:, 2] == torch.tensor(LENGTHS)[batch.next_obs[:, 0].long()]
    assert batch.terminated is not None
    assert torch.equal(batch.terminated, ends & (batch.obs[:, 1] % 2 == 0))
    assert not batch.noise_on.any()


@pytest.mark.parametrize("truncation", ["bootstrap", "terminate"])
def test_advantages_do_not_depend_on_the_mode(truncation: Any) -> None:
    """Transitions of whole episodes have the same advantages; a rollout under NEXT_STEP is only shorter."""
    config = PPOConfig(truncation=truncation, gamma=0.9, gae_lambda=0.8)
    same, following, disabled = (
        gains(rollout(mode), config)
        for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)
    )
    assert same == disabled
    whole = {key for key in following if (key[0], key[1] + 1, 0.0) in following}
    assert len(whole) > 30
    assert {key: same[key] for key in whole} == {key: following[key] for key in whole}


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_an_episode_by_hand(mode: AutoresetMode) -> None:
    """Of the environment with episodes of one step: r = 1, then the end, every second time by being cut off."""
    for truncation in ("bootstrap", "terminate"):
        found = gains(rollout(mode), PPOConfig(truncation=truncation, gamma=0.9))
        value = {episode: float(np.cos(1 + 3 * episode)) for episode in range(4)}
        last = float(np.cos(1 + 3 * 1 + 5))
        assert found[1.0, 0.0, 0.0] == pytest.approx(1 - value[0])
        bootstrap = 0.9 * last if truncation == "bootstrap" else 0.0
        assert found[1.0, 1.0, 0.0] == pytest.approx(1 + bootstrap - value[1])


def test_intrinsic_rewards_are_added_before_the_advantages() -> None:
    """They change an advantage by the discounted sum of what is paid up to the end of the episode."""
    config = PPOConfig(gamma=0.9, gae_lambda=0.8)
    made = rollout(AutoresetMode.SAME_STEP)
    without, with_ = gains(made, config), gains(made, config, inner=0.5)
    for number, length in enumerate(LENGTHS):
        for time in range(length):
            added = sum(0.72**k * 0.5 * (time + k + 1) ** 2 for k in range(length - time))
            key = (float(number), 1.0, float(time))
            assert with_[key] - without[key] == pytest.approx(added)


def test_two_heads_have_discounts_and_ends_of_their_own() -> None:
    made = rollout(AutoresetMode.SAME_STEP)
    pair = Values(
        *(np.concatenate([worth(each), 2 * worth(each)], -1) for each in (made.obs, made.next_obs, made.last_obs))
    )
    outer, inner = made.rewards, made.rewards**2
    config = PPOConfig(value_heads=2, gamma=0.9, intrinsic_gamma=0.5)
    found, returns = estimate(made, outer, inner, pair, config)
    first = Values(*(each[..., :1] for each in (pair.before, pair.after, pair.last)))
    second = Values(*(each[..., 1:] for each in (pair.before, pair.after, pair.last)))
    zero = np.zeros_like(outer)
    one, _ = estimate(made, outer, zero, first, PPOConfig(gamma=0.9))
    other, _ = estimate(made, inner, zero, second, PPOConfig(gamma=0.5))
    assert found == pytest.approx(one + other)
    assert returns == pytest.approx(np.stack([one, other], -1) + pair.before)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_intrinsic_returns_can_go_on_into_the_next_episode(mode: AutoresetMode) -> None:
    """Then the advantage of the last step of an episode looks at the first observation of the next."""
    made = rollout(mode)
    pair = Values(
        *(np.concatenate([worth(each), worth(each)], -1) for each in (made.obs, made.next_obs, made.last_obs))
    )
    config = PPOConfig(value_heads=2, intrinsic_gamma=0.5, gae_lambda=0.8, intrinsic_episodic=False)
    zero = np.zeros_like(made.rewards)
    found, _ = estimate(made, zero, made.rewards, pair, config)
    outer, _ = estimate(made, zero, zero, Values(*(each[..., :1] for each in vars(pair).values())), PPOConfig())
    stream = [(t, n) for t, n in np.argwhere(made.valid) if n == 1]  # episodes of one step
    expected, following = {}, float(worth(made.last_obs)[1, 0])
    later = 0.0
    for t, n in reversed(stream):
        value = float(worth(made.obs)[t, n, 0])
        later = 1 + 0.5 * following - value + 0.5 * 0.8 * later
        expected[t], following = later, value
    for t, n in stream:
        assert (found - outer)[t, n] == pytest.approx(expected[t])


def test_who_watches_the_noise() -> None:
    made = rollout(AutoresetMode.NEXT_STEP, steps=4)
    noise_on = np.zeros_like(made.valid)
    noise_on[:2] = True
    made = Rollout(**{**vars(made), "noise_on": noise_on})
    inner = np.where(noise_on, 3.0, 1.0)
    found = reward_metrics(made, np.ones_like(inner), inner)
    on = int((noise_on & made.valid).sum())
    off = int((~noise_on & made.valid).sum())
    assert found["noise_time_share"] == pytest.approx(on / (on + off))
    assert found["noise_reward_share"] == pytest.approx(3 * on / (3 * on + off))
    assert found["extrinsic_mean"] == 1
    assert found["extrinsic_std"] == 0
    assert found["intrinsic_mean"] == pytest.approx((3 * on + off) / (on + off))
    assert np.isnan(reward_metrics(made, inner, np.zeros_like(inner))["noise_reward_share"])


def test_explained_variance_by_hand() -> None:
    returns = np.array([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(np.full(4, 2.5), returns) == 0
    assert explained_variance(-returns, returns) == pytest.approx(-3)
    assert np.isnan(explained_variance(returns, np.ones(4)))


def test_asked_to_stop_there_is_no_rollout() -> None:
    episodes = Episodes(together(lambda number: Chain(number, 3), 2))
    episodes.reset(seed=0)
    asked = iter(range(10))
    assert collect(episodes, act, HEAD, 20, torch.Generator(), lambda: next(asked) == 5) is None
    assert next(asked) == 6


def test_episodes_by_hand() -> None:
    log = EpisodeLog(envs=2, window=2)
    assert all(math.isnan(log.metrics()[name]) for name in ("episode_return", "episode_length"))
    rewards = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    ended = np.array([[0, 0], [1, 0], [0, 0]], dtype=bool)
    log.add(rewards, ended, np.ones_like(ended))
    assert log.metrics()["episodes"] == 1
    assert math.isnan(
        log.metrics()["episode_return"]
    )  # the other environment has not ended yet, and may have a longer episode
    log = reloaded(log)
    ended = np.array([[0, 1], [1, 0], [0, 0]], dtype=bool)
    log.add(rewards, ended, np.ones_like(ended))  # 70 + 10 in 4 steps, then 4 + 1 + 2 in 3
    assert tuple(log.metrics().values()) == (3, (80 + 7) / 2, (4 + 3) / 2)


def test_steps_without_a_transition_do_not_count() -> None:
    log = EpisodeLog(envs=1, window=10)
    rewards, ended = np.array([[1.0], [99.0], [2.0], [3.0]]), np.array([[1], [0], [0], [1]], dtype=bool)
    log.add(rewards, ended, np.array([[1], [0], [1], [1]], dtype=bool))
    assert tuple(log.metrics().values()) == (2, (1 + 5) / 2, (1 + 2) / 2)


def reloaded(log: EpisodeLog) -> EpisodeLog:
    other = EpisodeLog(envs=2, window=2)
    other.load_state_dict(json.loads(json.dumps(log.state_dict())))
    return other
