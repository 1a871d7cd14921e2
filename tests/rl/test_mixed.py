"""Mixtures of intrinsic rewards, by hand."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces

from headway.errors import MethodError, StateError
from headway.rl import IntrinsicConfig, Transitions, make_reward
from headway.rl.methods import Method, MixedReward, methods_of
from tests.rl.batches import DISCRETE, VECTOR, transitions

SMALL = IntrinsicConfig(features=4, hidden=8)


def made(method: str, **options: int) -> MixedReward:
    reward = make_reward(method, VECTOR, DISCRETE, SMALL, **options)
    assert isinstance(reward, MixedReward)
    return reward


def test_names_have_parts_and_weights() -> None:
    icm, counts = Method("icm+gmc", "icm", "gmc"), Method("counts", "counts", "error")
    assert methods_of("icm+gmc & counts") == [icm, counts]
    assert methods_of("0.7*icm+gmc&0.3 * counts") == [icm._replace(weight=0.7), counts._replace(weight=0.3)]
    assert methods_of("2*rnd") == [Method("rnd", "rnd", "error", 2.0)]


def test_a_reward_is_the_weighted_sum_of_rewards_in_units_of_their_deviation() -> None:
    mixed = made("0.7*forward & 0.3*counts")
    one = make_reward("forward", VECTOR, DISCRETE, SMALL, seed=0)
    other = make_reward("counts", VECTOR, DISCRETE, SMALL, seed=1)
    assert one is not None
    assert other is not None
    history: list[list[torch.Tensor]] = [[], []]
    for seed in range(3):
        batch = transitions(20, seed, repeat=True)
        result = mixed.rewards_and_update(batch)
        total = torch.zeros(20)
        for weight, part, past in zip((0.7, 0.3), (one, other), history, strict=True):
            raw = part.rewards_and_update(batch).rewards
            past.append(raw)
            total += weight * raw / torch.cat(past).std(correction=0)
        torch.testing.assert_close(result.rewards, total)
    assert {"forward/predictor_loss", "counts/states", "score_mean"} <= set(result.metrics)


def test_a_part_without_rewards_so_far_adds_nothing() -> None:
    space = spaces.Discrete(4)
    reward = make_reward("icm+gmc & counts", space, DISCRETE, SMALL)
    assert reward is not None
    states = torch.tensor([0, 0, 0, 1])
    batch = Transitions(states, torch.zeros(4, dtype=torch.long), states)
    counts = torch.tensor([3**-0.5, 3**-0.5, 3**-0.5, 1.0])
    torch.testing.assert_close(reward.rewards_and_update(batch).rewards, counts / counts.std(correction=0))


def test_options_go_to_the_parts_that_have_them() -> None:
    mixed = made("counts & disagreement", members=3, bins=7)
    assert mixed.parts[0].bonus.codes.bins == 7
    assert len(mixed.parts[1].bonus.scored.members) == 3
    with pytest.raises(MethodError, match="neighbours"):
        made("counts & disagreement", neighbours=3)
    assert not torch.equal(*(next(part.bonus.parameters()).flatten()[:4] for part in made("icm & icm").parts))


def test_states_of_others_are_refused() -> None:
    with pytest.raises(StateError):
        made("icm & counts").load_state_dict(made("icm & rnd").state_dict())
    with pytest.raises(MethodError):
        MixedReward([], [])
