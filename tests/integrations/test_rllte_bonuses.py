"""Bonuses beside those of rllte, on the same features; `make rllte` installs it apart and runs this.

rllte scores the observation that is acted on where headway scores the next one: each gets what it looks at.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
import torch
from gymnasium import spaces

from headway.rl import Transitions, make_reward
from tests.integrations import rllte_interface
from tests.integrations.worlds import SMALL

pytestmark = pytest.mark.filterwarnings("ignore")
SPACE, ACTIONS = spaces.Box(-1, 1, (4,)), spaces.Discrete(2)
PLAIN: dict[str, Any] = {"rwd_norm_type": "none", "obs_norm_type": "none"}


def modules() -> Any:
    pytest.importorskip("rllte", reason="`make rllte` installs it apart and runs this")
    from rllte.xplore import reward

    return reward


def envs() -> Any:
    return gymnasium.make_vec("CartPole-v1", rllte_interface.ENVS, vectorization_mode="sync")


def rollout() -> dict[str, torch.Tensor]:
    samples = rllte_interface.samples()
    samples["terminateds"][2, 0] = samples["truncateds"][3, 1] = 1
    return samples


def transitions(samples: dict[str, torch.Tensor]) -> Transitions:
    """Transitions into the observations of samples."""
    steps, count = samples["rewards"].shape
    obs = samples["observations"].flatten(0, 1)
    ended = (samples["terminateds"] + samples["truncateds"]).flatten().bool()
    return Transitions(obs, samples["actions"].flatten(), obs, ended=ended, envs=torch.arange(count).repeat(steps))


def test_e3b_is_that_of_rllte() -> None:
    theirs = modules().E3B(envs(), latent_dim=4, ridge=0.1, **PLAIN)
    theirs.encoder = torch.nn.Identity()
    theirs.update = lambda samples: None
    ours: Any = make_reward("e3b", SPACE, ACTIONS, SMALL)
    ours.memory.icm.encode = lambda batch: (batch.obs, batch.next_obs)
    samples = rollout()
    for _ in range(2):  # episodes go on in the second
        ours_now = ours.memory.remember_and_score(transitions(samples)).float().view(samples["rewards"].shape)
        torch.testing.assert_close(ours_now, theirs.compute(samples), rtol=1e-4, atol=1e-5)


def test_re3_is_that_of_rllte() -> None:
    one = gymnasium.make_vec("CartPole-v1", 1, vectorization_mode="sync")  # rllte keeps environments apart
    theirs = modules().RE3(one, latent_dim=4, k=2, **PLAIN)
    theirs.random_encoder = torch.nn.Identity()
    ours: Any = make_reward("re3", SPACE, ACTIONS, SMALL, neighbours=2)
    ours.memory.encoder = torch.nn.Identity()
    ours.memory.stored = torch.zeros(100, 4)
    samples = {key: value[:, :1] for key, value in rollout().items()}
    for step in range(len(samples["rewards"])):
        theirs.watch(**{key: value[step] for key, value in samples.items()})
    found = ours.rewards_and_update(transitions(samples)).rewards
    torch.testing.assert_close(found[:, None], theirs.compute(samples))


def test_disagreement_is_that_of_rllte_but_for_a_constant() -> None:
    theirs = modules().Disagreement(envs(), latent_dim=SMALL.features, ensemble_size=4, **PLAIN)
    ours: Any = make_reward("disagreement", SPACE, ACTIONS, SMALL, members=4)
    theirs.random_encoder, members = ours.predictor.encoder, ours.predictor.scored.members
    theirs.ensemble = [lambda x, a, own=own: own(torch.cat([x, a.flatten(1)], 1)) for own in members]
    theirs.update = lambda samples: None
    samples = rollout()
    found = ours.rewards(transitions(samples)).view(samples["rewards"].shape)
    torch.testing.assert_close(found * 4 / 3, theirs.compute(samples))  # it divides by members - 1
