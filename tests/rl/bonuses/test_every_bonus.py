"""What holds for every bonus: spaces, exact resumption, agents, and rewards that change nothing."""

from __future__ import annotations

import inspect
import io
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from headway.errors import MethodError
from headway.rl import PPO, IntrinsicConfig, PPOConfig, Reward, Transitions, make_env, make_reward
from headway.rl.bonuses import BONUSES
from tests.rl.batches import CONTINUOUS, DISCRETE, IMAGE, VECTOR, transitions

LEARNED = ("disagreement", "dropout", "gain", "vime", "noveld", "ngu")
METHODS = [*BONUSES.names(), *(f"{name}+gmc" for name in LEARNED), "0.7*icm+gmc & 0.3*counts", "e3b & rnd+gmc"]
SMALL = IntrinsicConfig(features=8, hidden=16, rnd_features=8, minibatches=2)
OTHERS = spaces.Dict({"place": VECTOR, "kind": spaces.Discrete(3)})

pytestmark = pytest.mark.filterwarnings("ignore:gmc. .* of the parameters have a second moment under the floor")


def episodes(samples: int, seed: int = 0, **of: Any) -> Transitions:
    """Random transitions of three environments, whose episodes end now and then."""
    made, rng = transitions(samples, seed, repeat=True, **of), np.random.default_rng(seed)
    return Transitions(
        made.obs, made.actions, made.next_obs, ended=rng.random(samples) < 0.2, envs=np.arange(samples) % 3
    )


def reward(method: str, observations: Any = VECTOR, actions: Any = DISCRETE, seed: int = 0) -> Reward:
    made = make_reward(method, observations, actions, SMALL, seed=seed)
    assert made is not None
    return made


def saved(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("observations", "actions"), [(VECTOR, DISCRETE), (IMAGE, CONTINUOUS)])
def test_a_resumed_reward_goes_on_bit_for_bit(method: str, observations: Any, actions: Any) -> None:
    of = {"observations": observations, "actions": actions}
    whole, other = reward(method, **of), reward(method, **of, seed=5)
    whole.observe(episodes(8, 3, **of))
    for seed in range(2):
        result = whole.rewards_and_update(episodes(24, seed, **of))
        assert result.rewards.shape == (24,)
        assert result.rewards.isfinite().all()
    other.load_state_dict(saved(whole.state_dict()))
    for seed in range(2, 4):
        batch = episodes(24, seed, **of)
        ours, theirs = whole.rewards_and_update(batch), other.rewards_and_update(batch)
        assert torch.equal(ours.rewards, theirs.rewards)
        assert ours.metrics == theirs.metrics


@pytest.mark.parametrize("method", METHODS)
def test_rewards_alone_change_nothing(method: str) -> None:
    made = reward(method)
    made.update(episodes(24))
    before = saved(made.state_dict())
    first, second = (made.rewards(episodes(24, 1)) for _ in range(2))
    assert torch.equal(first, second)
    assert_equal(before, saved(made.state_dict()))


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for ours, theirs in zip(one, other, strict=True):
            assert_equal(ours, theirs)
    else:
        assert one == other


@pytest.mark.parametrize("method", BONUSES.names())
def test_observations_may_have_several_parts(method: str) -> None:
    rng = np.random.default_rng(0)

    def observe() -> dict[str, np.ndarray]:
        return {"place": rng.normal(size=(12, 6)).astype(np.float32), "kind": rng.integers(0, 3, 12)}

    batch = Transitions(
        observe(), rng.integers(0, 3, 12), observe(), ended=np.zeros(12, bool), envs=np.zeros(12, np.int64)
    )
    assert reward(method, OTHERS).rewards_and_update(batch).rewards.isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_agents_learn_with_it_and_resume_exactly(method: str) -> None:
    def agent() -> PPO:
        env = make_env("MiniGrid-DoorKey-5x5-v0", num_envs=3)
        made = reward(method, env.single_observation_space, env.single_action_space)
        return PPO(env, PPOConfig(rollout_steps=16, epochs=1, channels=(4,), hidden=(8,)), made)

    whole, resumed = agent(), agent()
    first = whole.iterate()
    assert first is not None
    assert np.isfinite(first["score_mean"])
    resumed.load_state_dict(saved(whole.state_dict()))
    np.testing.assert_equal(resumed.iterate(), whole.iterate())
    for each in (whole, resumed):
        each.close()


def test_bonuses_of_episodes_need_to_know_them() -> None:
    for method in ("e3b", "noveld", "ride", "ngu", "icm & e3b"):
        made = reward(method)
        assert made.is_episodic
        with pytest.raises(MethodError, match="envs and ended"):
            made.rewards_and_update(transitions(8))
    assert not reward("icm & counts").is_episodic


def test_names_that_there_are_not_list_those_that_there_are() -> None:
    for wrong in ("e3c", "icm & e3c", "0.5*e3c"):
        with pytest.raises(MethodError, match=r"disagreement, .*e3b"):
            reward(wrong)
    for wrong in ("ppo & icm", "x*icm & rnd", "-1*icm", "icm &", "0*icm", "inf*icm", "nan*icm"):
        with pytest.raises(MethodError):
            reward(wrong)
    for alone in ("e3b+gmc", "ride+gmc", "re3+norm_all"):
        with pytest.raises(MethodError, match="score of its own"):
            reward(alone)


@pytest.mark.parametrize(
    ("method", "option"),
    [
        ("disagreement", {"members": 1}),
        ("dropout", {"rate": 1.0}),
        ("dropout", {"passes": 1}),
        ("e3b", {"ridge": 0.0}),
        ("gain", {"rate": 0.0}),
        ("ngu", {"neighbours": 0}),
        ("noveld", {"alpha": -1.0}),
        ("re3", {"capacity": 0}),
        ("vime", {"prior": 0.0}),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(method: str, option: dict[str, Any]) -> None:
    with pytest.raises(MethodError, match=next(iter(option))):
        make_reward(method, VECTOR, DISCRETE, SMALL, **option)


@pytest.mark.parametrize("name", [each for each in BONUSES.names() if BONUSES.find(each).__module__[:7] == "headway"])
def test_a_signature_names_the_arguments(name: str) -> None:
    arguments = inspect.signature(BONUSES.find(name)).parameters.values()
    common = [each.name for each in arguments if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert common == ["observation_space", "action_space", "config", "generator"]
    assert all(each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) for each in arguments)
