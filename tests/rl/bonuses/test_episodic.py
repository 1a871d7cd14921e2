"""NovelD, RIDE and NGU against calculations by hand, and what theory demands of bonuses of single episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from headway.rl import IntrinsicConfig, MemoryReward, Transitions, make_reward
from headway.rl.episodes import segments
from tests.rl.batches import DISCRETE, VECTOR
from tests.rl.bonuses.test_every_bonus import episodes

SMALL = IntrinsicConfig(features=4, hidden=8, rnd_features=8, normalise_observations=False, rnd_normalise=False)
STATES = spaces.Discrete(6)


def made(method: str, observations: Any = STATES, config: IntrinsicConfig = SMALL, **options: Any) -> MemoryReward:
    reward = make_reward(method, observations, DISCRETE, config, **options)
    assert isinstance(reward, MemoryReward)
    return reward


def path(*states: int, ended: tuple[int, ...] = ()) -> Transitions:
    """One environment that goes from state to state; `ended` are the numbers of transitions that end an episode."""
    steps = len(states) - 1
    return Transitions(
        torch.tensor(states[:-1]),
        torch.zeros(steps, dtype=torch.long),
        torch.tensor(states[1:]),
        ended=torch.tensor([step in ended for step in range(steps)]),
        envs=torch.zeros(steps, dtype=torch.long),
    )


def test_segments_are_pieces_of_episodes_in_the_order_of_time() -> None:
    envs = [1, 0, 1, 0, 1, 0, 0]
    ended = [0, 0, 1, 0, 0, 0, 1]
    zeros = np.zeros((7, 1), np.float32)
    batch = Transitions(zeros, np.zeros(7, np.int64), zeros, ended=np.array(ended, bool), envs=np.array(envs))
    found = [(env, places.tolist(), over) for env, places, over in segments(batch)]
    assert found == [(0, [1, 3, 5, 6], True), (1, [0, 2], True), (1, [4], False)]


def test_visits_are_counted_within_episodes_and_the_first_state_is_one() -> None:
    reward = made("noveld")
    batch = path(0, 1, 0, 1, 2, 3, 1, ended=(3,))  # 3 -> 1 is of the second episode, which begins in 2
    assert reward.memory.follow(None, reward.memory.read(batch[:4]), torch.arange(4))[0].tolist() == [1, 2, 2, 1]
    worth = reward.rewards(batch)
    assert worth[1] == worth[2] == 0
    again = made("noveld", alpha=0.0)
    assert (again.rewards(batch) > 0).tolist() == [True, False, False, True, True, True]


def test_noveld_is_the_rise_of_the_root_of_rnds_error() -> None:
    for alpha in (0.5, 1.0):
        reward = made("noveld", alpha=alpha)
        batch = path(0, 1, 2, 3, 4, 5)
        with torch.no_grad():
            rnd, eye = reward.memory.rnd, torch.eye(6)
            novelty = (rnd.scored(eye) - rnd.target(eye)).square().mean(1).sqrt()
        wanted = (novelty[1:] - alpha * novelty[:-1]).clamp(min=0)
        torch.testing.assert_close(reward.rewards(batch), wanted)
        torch.testing.assert_close(reward.rewards_and_update(batch).rewards, wanted)


def test_novelty_falls_with_visits() -> None:
    config = IntrinsicConfig(hidden=32, rnd_features=16, learning_rate=1e-3)
    reward = made("noveld", config=config, alpha=0.0)
    walk = path(*([0, 1, 2, 3] * 16), ended=tuple(range(3, 64, 4)))
    first = reward.rewards(walk).sum()
    for _ in range(30):
        reward.update(walk)
    known = reward.rewards(path(0, 1)).item()
    assert reward.rewards(walk).sum() < 0.3 * first
    assert reward.rewards(path(0, 5)).item() > 3 * known


@pytest.mark.filterwarnings("ignore:gmc. .* of the parameters have a second moment under the floor")
def test_a_scorer_says_what_is_new() -> None:
    reward = made("noveld+gmc", alpha=0.0)
    walk = path(0, 1, 2, 3, 4, 5)
    assert not reward.rewards_and_update(walk).rewards.any()  # no momentum yet
    reward.end_episodes()
    assert (reward.rewards(walk) > 0).all()


def test_ride_is_the_change_over_the_root_of_the_visits() -> None:
    reward = made("ride")
    batch = path(0, 1, 0, 1, 2)
    with torch.no_grad():
        icm = reward.memory.icm
        features = torch.tanh(icm.encoder(torch.eye(6)))
    there, on = (features[1] - features[0]).norm(), (features[2] - features[1]).norm()
    wanted = torch.stack([there, there / 2**0.5, there / 2**0.5, on])  # the first state counts as a visit
    torch.testing.assert_close(reward.rewards(batch), wanted)
    still = path(3, 3, 3)
    assert reward.rewards(still).tolist() == [0.0, 0.0]  # nothing changes


def by_hand(features: torch.Tensor, starts: torch.Tensor, batch: Transitions, k: int) -> torch.Tensor:
    """The episodic part of NGU's reward, one transition after the other."""
    assert batch.envs is not None
    assert batch.ended is not None
    near: list[torch.Tensor] = []
    stored: dict[int, list[torch.Tensor]] = {}
    for index, (env, over) in enumerate(zip(batch.envs.tolist(), batch.ended.tolist(), strict=True)):
        memory = stored.setdefault(env, [starts[index]])
        squares = torch.stack([(features[index] - each).square().sum() for each in memory])
        near.append(squares.sort().values[:k])
        memory.append(features[index])
        if over:
            del stored[env]
    mean = torch.cat(near).mean()
    rewards = []
    for squares in near:
        kernels = 1e-4 / ((squares / mean - 0.008).clamp(min=0) + 1e-4)
        similarity = kernels.sum().sqrt() + 1e-3
        rewards.append(torch.tensor(0.0) if similarity > 8 else (1 / similarity).float())
    return torch.stack(rewards)


def test_ngu_is_novelty_in_the_episode_times_novelty_in_life() -> None:
    reward, batch = made("ngu", VECTOR, neighbours=3), episodes(40)
    memory = reward.memory
    with torch.no_grad():
        before, after = memory.icm.encode(batch)
        errors = memory.rnd.predict(batch, train=False).errors
    life = (1 + (errors - errors.mean()) / errors.std(correction=0)).clamp(1, 5)
    wanted = by_hand(after, before, batch, 3) * life
    torch.testing.assert_close(reward.rewards(batch), wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(reward.rewards_and_update(batch).rewards, wanted, rtol=1e-4, atol=1e-5)


def test_ngu_gives_nothing_for_a_state_that_comes_again_and_again() -> None:
    reward = made("ngu", neighbours=100)
    worth = reward.rewards(path(*([0, 1] * 80)))
    assert worth[-1] == 0  # its like was there more than 64 times
    assert worth[0] > worth[10] > 0
