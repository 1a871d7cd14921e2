"""Rollouts as CleanRL keeps them: reset rows are masked, rewards reach the advantages as theory says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from headway.errors import EnvError, MethodError
from headway.integrations.rollouts import RolloutReward
from tests.integrations.worlds import Clock, Known, assert_within_episodes

STEPS, GAMMA, LAMBDA = 24, 0.9, 0.8


def clocks(mode: AutoresetMode) -> Any:
    return SyncVectorEnv([lambda name=name: Clock(name, length=3 + name) for name in range(3)], autoreset_mode=mode)


def rollout(envs: Any) -> dict[str, torch.Tensor]:
    """CleanRL's loop: what it stores, under its names."""
    obs, actions = torch.zeros(STEPS, 3, 3), torch.zeros(STEPS, 3, dtype=torch.long)
    dones, rewards = torch.zeros(STEPS, 3), torch.zeros(STEPS, 3)
    next_obs, next_done = torch.tensor(envs.reset(seed=0)[0]), torch.zeros(3)
    for step in range(STEPS):
        obs[step], dones[step] = next_obs, next_done
        actions[step] = torch.full((3,), step % 3)
        seen, reward, terminations, truncations, _ = envs.step(actions[step].numpy())
        rewards[step] = torch.tensor(reward)
        next_obs, next_done = torch.tensor(seen), torch.tensor(terminations | truncations).float()
    return {
        "obs": obs,
        "actions": actions,
        "dones": dones,
        "rewards": rewards,
        "next_obs": next_obs,
        "next_done": next_done,
    }


def gae(rewards: torch.Tensor, data: dict[str, torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """CleanRL's loop."""
    advantages, last = torch.zeros_like(rewards), 0
    for t in reversed(range(STEPS)):
        nonterminal = 1 - (data["next_done"] if t == STEPS - 1 else data["dones"][t + 1])
        following = values[t + 1]
        delta = rewards[t] + GAMMA * following * nonterminal - values[t]
        advantages[t] = last = delta + GAMMA * LAMBDA * nonterminal * last
    return advantages


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_reset_rows_are_masked_and_advantages_rise_by_the_discounted_sum(mode: AutoresetMode) -> None:
    envs, known = clocks(mode), Known()
    pay = RolloutReward(envs, known, coefficient=0.5, normalise=False)
    data = rollout(envs)
    paid = pay(data["obs"], data["actions"], data["dones"], data["next_obs"], data["next_done"])
    for batch in known.shown:
        assert_within_episodes(batch)
    ended = torch.cat([data["dones"][1:], data["next_done"][None]]).bool()
    left_out = data["dones"].bool() if mode == AutoresetMode.NEXT_STEP else ended
    steps = data["obs"][..., 2]
    theory = 0.5 * (2 * steps + 0.5 * (steps + 1) + data["obs"][..., 0])
    torch.testing.assert_close(paid, torch.where(left_out, 0.0, theory))
    values = torch.rand(STEPS + 1, 3, generator=torch.Generator().manual_seed(0))
    change = gae(data["rewards"] + paid, data, values) - gae(data["rewards"], data, values)
    for t in range(STEPS):
        for n in range(3):
            last = next((k for k in range(t, STEPS) if ended[k, n]), STEPS - 1)
            expected = sum((GAMMA * LAMBDA) ** (k - t) * float(paid[k, n]) for k in range(t, last + 1))
            assert float(change[t, n]) == pytest.approx(expected, abs=1e-4)


def test_a_state_resumes_and_constant_rewards_pay_nothing() -> None:
    envs = clocks(AutoresetMode.NEXT_STEP)
    data = rollout(envs)
    given = data["obs"], data["actions"], data["dones"], data["next_obs"]
    one, other = RolloutReward(envs, "icm+gmc"), RolloutReward(envs, "icm+gmc", seed=5)
    one(*given)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(*given), other(*given))
    assert one.metrics["predictor_loss"] > 0
    still = RolloutReward(envs, "icm+uniform")
    assert (still(*given) == 0).all()


def test_misuse_is_told() -> None:
    envs = clocks(AutoresetMode.SAME_STEP)
    data = rollout(envs)
    with pytest.raises(MethodError, match="expected next_done under the autoreset mode SAME_STEP"):
        RolloutReward(envs)(data["obs"], data["actions"], data["dones"], data["next_obs"])
    with pytest.raises(EnvError, match="got neither"):
        RolloutReward()
    with pytest.raises(MethodError, match=r"got \[24, 2, 3\]"):
        RolloutReward(envs).pay(data["obs"][:, :2], data["actions"][:, :2], data["obs"][:, :2])
    for name, wrong in (("actions", 1), ("valid", 3), ("ended", 4)):
        given = [data["obs"], data["actions"], data["obs"], data["dones"], data["dones"]]
        given[wrong] = given[wrong][:5]
        with pytest.raises(MethodError, match=rf"{name}: .*got \[5, 3\]"):
            RolloutReward(envs).pay(*given)
    with pytest.raises(MethodError, match=r"last_obs: .*got \[2, 3\]"):
        RolloutReward(envs)(data["obs"], data["actions"], data["dones"], data["next_obs"][:2], data["next_done"])


def test_dictionaries_of_rollouts_are_rows() -> None:
    from gymnasium import spaces

    space = spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(3)})
    pay = RolloutReward(spaces=(space, spaces.Discrete(2), 2))
    obs = {"b": np.ones((5, 2), int), "a": np.random.default_rng(0).random((5, 2, 2), np.float32)}
    assert pay.pay(obs, np.zeros((5, 2), int), obs).shape == (5, 2)
