"""Counts against calculations by hand, and what theory demands of them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from headway.errors import MethodError, StateError
from headway.integrations.gymnasium import IntrinsicRewardWrapper
from headway.rl import PPO, MemoryReward, PPOConfig, Transitions, make_env, make_reward

STATES, ACTIONS = spaces.Discrete(5), spaces.Discrete(2)
PLANE = spaces.Box(np.array([0.0, -1.0], dtype=np.float32), np.array([1.0, 1.0], dtype=np.float32))


def visits(*states: Any) -> Transitions:
    """Transitions into states."""
    following = torch.tensor(states)
    return Transitions(torch.zeros_like(following), torch.zeros(len(states), dtype=torch.long), following)


def counts(space: Any = STATES, **options: Any) -> MemoryReward:
    reward = make_reward("counts", space, ACTIONS, **options)
    assert isinstance(reward, MemoryReward)
    return reward


def test_a_reward_is_one_over_the_root_of_the_visits() -> None:
    reward = counts()
    first = reward.rewards_and_update(visits(0, 0, 0, 0, 1))
    assert first.rewards.tolist() == [0.5, 0.5, 0.5, 0.5, 1.0]  # four visits and one
    assert first.metrics["states"] == 2
    second = reward.rewards_and_update(visits(0, 1, 2))
    assert second.rewards.tolist() == pytest.approx([5**-0.5, 2**-0.5, 1.0])
    assert second.rewards.dtype == torch.float32


def test_rewards_alone_change_nothing_and_updates_alone_count() -> None:
    reward = counts()
    assert reward.rewards(visits(3, 3)).tolist() == [1.0, 1.0]  # never counted: as if visited once
    assert reward.update(visits(3, 3, 3, 3)) == {"states": 1.0}
    assert reward.rewards(visits(3, 4)).tolist() == [0.5, 1.0]
    assert reward.rewards(visits(3, 4)).tolist() == [0.5, 1.0]


def test_the_order_of_visits_does_not_matter_and_rewards_fall_with_them() -> None:
    rng = np.random.default_rng(0)
    states = rng.choice(5, size=400, p=[0.4, 0.3, 0.2, 0.07, 0.03])
    one, other = counts(), counts()
    one.update(visits(*states.tolist()))
    other.update(visits(*rng.permutation(states).tolist()))
    every = visits(*range(5))
    assert torch.equal(one.rewards(every), other.rewards(every))
    seen = np.bincount(states, minlength=5)
    assert np.argsort(one.rewards(every).numpy()).tolist() == np.argsort(-seen).tolist()


def test_real_numbers_are_cut_into_bins_between_their_bounds() -> None:
    reward = counts(PLANE, bins=4)  # cells of 0.25 and 0.5
    batch = visits([0.1, -0.9], [0.24, -0.51], [0.26, -0.9], [1.0, 1.0], [0.76, 0.51])
    assert reward.rewards_and_update(batch).rewards.tolist() == pytest.approx([2**-0.5, 2**-0.5, 1.0, 2**-0.5, 2**-0.5])
    line = counts(spaces.Box(-np.inf, np.inf, (1,)), bins=2)  # cells of half a unit
    assert line.rewards_and_update(visits([0.1], [0.4], [0.6], [-0.1])).metrics["states"] == 3


def test_a_hash_is_the_sign_of_a_random_projection() -> None:
    space = spaces.Box(-1, 1, (12,))
    reward = counts(space, bits=16, seed=3)
    generator = torch.Generator().manual_seed(1)
    rows = torch.rand(200, 12, generator=generator) * 2 - 1
    rows[100:] = rows[:100] * 0.5  # the same signs
    codes = rows @ reward.memory.codes.projection.T > 0
    by_hand = [int((codes == own).all(1).sum()) ** -0.5 for own in codes]
    assert reward.rewards_and_update(visits(*rows.tolist())).rewards.tolist() == pytest.approx(by_hand)
    assert not torch.equal(counts(space, bits=16, seed=4).memory.codes.projection, reward.memory.codes.projection)


@pytest.mark.parametrize("space", [STATES, PLANE, spaces.Box(-1, 1, (12,)), spaces.Dict({"a": STATES, "b": PLANE})])
def test_a_resumed_memory_goes_on_bit_for_bit(space: Any) -> None:
    rows = [space.sample() for _ in range(64)]

    def batch(part: slice) -> Transitions:
        chosen = rows[part]
        if isinstance(space, spaces.Dict):
            obs: Any = {key: np.stack([row[key] for row in chosen]) for key in space}
        else:
            obs = np.stack(chosen)
        return Transitions(obs, np.zeros(len(chosen), dtype=np.int64), obs)

    whole, first = counts(space), counts(space)
    for reward in (whole, first):
        reward.rewards_and_update(batch(slice(0, 40)))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = counts(space, seed=7)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(
        whole.rewards_and_update(batch(slice(20, 64))).rewards, second.rewards_and_update(batch(slice(20, 64))).rewards
    )
    with pytest.raises(StateError):
        counts(space).load_state_dict({**first.state_dict(), "name": "others"})


def test_arguments_that_make_no_sense_are_refused_by_name() -> None:
    for options in ({"bins": 0}, {"bits": 0}, {"code": "none"}):
        with pytest.raises(MethodError, match=next(iter(options))):
            counts(**options)
    with pytest.raises(MethodError, match=r"options out of code, bins, bits, got cells"):
        counts(cells=3)
    with pytest.raises(MethodError, match="no options, got bins"):
        make_reward("rnd", PLANE, ACTIONS, bins=3)
    with pytest.raises(MethodError, match=r"counts\+gmc"):
        make_reward("counts+gmc", STATES, ACTIONS)


def test_agents_learn_with_counts_and_resume_exactly() -> None:
    def agent() -> PPO:
        env = make_env("MiniGrid-DoorKey-5x5-v0", num_envs=4)
        reward = make_reward("counts", env.single_observation_space, env.single_action_space)
        return PPO(env, PPOConfig(rollout_steps=32, epochs=1), reward)

    whole = agent()
    first = whole.iterate()
    assert first is not None
    assert 0 < first["score_mean"] < 1
    state = io.BytesIO()
    torch.save(whole.state_dict(), state)
    state.seek(0)
    resumed = agent()
    resumed.load_state_dict(torch.load(state, weights_only=True))
    expected, found = whole.iterate(), resumed.iterate()
    assert expected is not None
    assert found is not None
    assert expected["states"] > first["states"]
    np.testing.assert_equal(found, expected)
    for each in (whole, resumed):
        each.close()


def test_adapters_take_a_memory() -> None:
    env = IntrinsicRewardWrapper(make_env("MiniGrid-DoorKey-5x5-v0", num_envs=2), "counts", update_every=8)
    env.reset(seed=0)
    for _ in range(10):
        _, _, _, _, infos = env.step(np.array([6, 6]))  # stays where it is
    assert np.asarray(infos["intrinsic_reward"]).tolist() == pytest.approx([8**-0.5] * 2)  # two updates of 8
    env.close()
