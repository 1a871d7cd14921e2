"""Multi-step inverse dynamics: which observation is k steps on, and what features then hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from headway.rl import IntrinsicConfig, IntrinsicReward, Transitions, make_reward
from tests.rl.batches import DISCRETE

LINE = spaces.Box(-np.inf, np.inf, (2,), np.float32)
SMALL = IntrinsicConfig(features=4, hidden=8, normalise_observations=False)


def made(config: IntrinsicConfig = SMALL, **options: int) -> IntrinsicReward:
    reward = make_reward("multistep", LINE, DISCRETE, config, **options)
    assert isinstance(reward, IntrinsicReward)
    return reward


def walks(steps: int) -> Transitions:
    """Two environments in turn; observations are their number and the time, episodes end where time is 6."""
    envs, times = np.arange(2 * steps) % 2, np.arange(2 * steps) // 2
    obs = np.stack([envs, times % 7], 1).astype(np.float32)
    following = obs + np.array([0, 1], np.float32)
    actions = np.random.default_rng(0).integers(0, 3, len(envs))
    return Transitions(obs, actions, following, ended=times % 7 == 6, envs=envs)


def test_later_observations_are_k_steps_on_within_the_episode() -> None:
    bonus, batch = made(steps=3).predictor, walks(17)
    seen = set()
    for _ in range(10):
        ready = bonus.prepare(batch)
        assert torch.equal(ready.later_obs[:, 0], batch.obs[:, 0])
        assert torch.equal(ready.later_obs[:, 1] - batch.obs[:, 1], ready.later_steps.float())
        assert (ready.later_steps[batch.ended] == 1).all()
        seen |= set(ready.later_steps.tolist())
    assert seen == {1, 2, 3}


def test_the_loss_is_the_cross_entropy_of_the_first_action() -> None:
    bonus, batch = made(steps=3).predictor, walks(10)
    ready = bonus.prepare(batch)
    with torch.no_grad():
        before, later = (torch.tanh(bonus.encoder(each)) for each in (ready.obs, ready.later_obs))
        inputs = torch.cat([before, later, torch.eye(3)[ready.later_steps - 1]], 1)
        wanted = -bonus.inverse(inputs).log_softmax(1)[torch.arange(20), ready.actions]
        torch.testing.assert_close(bonus.inverse_losses(ready, before, before), wanted)


def test_one_step_is_icm() -> None:
    ready = made(steps=1).predictor.prepare(walks(10))
    assert torch.equal(ready.later_obs, ready.next_obs)


@pytest.mark.slow
def test_noise_does_not_reach_the_features_and_what_actions_decide_does() -> None:
    """The first number adds up actions, the second is noise."""
    reward = made(IntrinsicConfig(features=4, hidden=32, learning_rate=3e-3), steps=3)
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(0, 3, (8, 32))
        place = np.concatenate([np.zeros((8, 1)), (actions - 1).cumsum(1)], 1)
        obs = np.stack([place, 3 * rng.normal(size=place.shape)], 2).astype(np.float32)
        flags = {"ended": np.tile(np.arange(32) == 31, 8), "envs": np.repeat(np.arange(8), 32)}
        rows = (obs[:, :-1].reshape(-1, 2), actions.reshape(-1), obs[:, 1:].reshape(-1, 2))
        metrics = reward.update(Transitions(*rows, **flags))
    assert metrics["inverse_loss"] < 0.9  # chance is log 3 = 1.1
    here = obs[:, :-1].reshape(-1, 2)
    moved, noisy = here + np.array([3, 0], np.float32), here + np.array([0, 3], np.float32)

    def change(other: np.ndarray) -> float:
        batch = Transitions(here, actions.reshape(-1), other)
        with torch.no_grad():
            before, after = reward.predictor.encode(batch)
        return float((after - before).norm(dim=1).mean())

    assert change(moved) > 1.5 * change(noisy)
