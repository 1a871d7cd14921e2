"""IAC's regions and progress by hand."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from headway.rl import IntrinsicConfig, MemoryReward, Transitions, make_reward

LINE = spaces.Box(-1, 1, (1,), np.float32)
SMALL = IntrinsicConfig(hidden=8)


def made(config: IntrinsicConfig = SMALL, **options: int) -> MemoryReward:
    reward = make_reward("iac", LINE, spaces.Discrete(2), config, **options)
    assert isinstance(reward, MemoryReward)
    return reward


def steps(places: list[float], following: list[float], actions: list[int]) -> Transitions:
    return Transitions(torch.tensor(places)[:, None], torch.tensor(actions), torch.tensor(following)[:, None])


def test_a_full_region_is_cut_where_what_follows_differs() -> None:
    reward = made(size=4)
    batch = steps([0.1, 0.3, 0.2, 0.4], [1.0, 1.0, -1.0, -1.0], [0, 0, 1, 1])  # the action decides, not the place
    reward.memory.remember(batch[:3])
    assert reward.memory.metrics() == {"regions": 1.0}
    reward.memory.remember(batch[3:])
    assert reward.memory._cuts == [(0, 1, 0.5)]  # the first number of the one-hot action
    assert [len(each) for each in reward.memory._held] == [2, 2]
    assert reward.memory._places(reward.memory._rows(batch)).tolist() == [1, 1, 0, 0]


def test_progress_is_the_fall_of_the_mean_error() -> None:
    reward = made(window=4)
    batch = steps([0.1, 0.2], [0.0, 0.0], [0, 1])
    errors = iter([8.0, 6.0, 5.0, 3.0, 1.0])
    reward.memory.measures = {"forward_model": lambda batch: torch.full((len(batch),), next(errors))}
    found = [reward.memory.remember_and_score(batch).tolist() for _ in range(5)]
    assert found == [[0.0] * 2, [2.0] * 2, [3.0] * 2, [3.0] * 2, [3.5] * 2]  # 8 - 5; (8 + 6 - 5 - 3) / 2; ...


def test_what_can_be_learned_is_worth_more_than_noise_and_the_known() -> None:
    reward = made(IntrinsicConfig(hidden=32, minibatches=4, epochs=1), size=100)
    rng = np.random.default_rng(0)
    totals = np.zeros(2)
    for _ in range(40):
        actions = rng.integers(0, 2, 256)
        places = rng.uniform(-1, 1, 256)
        following = np.where(actions == 0, rng.uniform(-1, 1, 256), np.sign(places))  # noise, or a rule
        result = reward.rewards_and_update(steps(places.tolist(), following.tolist(), actions.tolist()))
        totals += [result.rewards[torch.from_numpy(actions == action)].mean() for action in range(2)]
    assert totals[1] > 3 * abs(totals[0])
