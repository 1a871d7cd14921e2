"""Presets have the constants of their papers, and agents that are made of them work."""

from __future__ import annotations

import math

import pytest
import torch

from headway.errors import MethodError
from headway.rl import PRESETS, make_env, preset
from headway.study.protocols.minigrid import ExplorationProtocol


def test_gmc_and_released_are_those_of_the_study() -> None:
    for name, protocol in (("gmc", ExplorationProtocol.paper()), ("released", ExplorationProtocol.released())):
        found = preset(name)
        assert found.intrinsic == protocol.reward
        study = protocol.ppo
        differing = {key for key in vars(study) if getattr(study, key) != getattr(found.ppo, key)}
        assert differing <= {"channels_first", "network"}  # grids say so, a library cannot know
        assert (found.method, found.num_envs) == ("icm+gmc", protocol.num_envs)


def test_rnd_of_burda() -> None:
    ppo, intrinsic = preset("rnd-burda").ppo, preset("rnd-burda").intrinsic
    assert (ppo.value_heads, ppo.intrinsic_episodic, ppo.gamma, ppo.intrinsic_gamma) == (2, False, 0.999, 0.99)
    assert (ppo.extrinsic_scale, ppo.intrinsic_scale, ppo.clip, ppo.entropy_weight) == (2, 1, 0.1, 0.001)
    assert (ppo.rollout_steps, ppo.epochs, ppo.gae_lambda, ppo.warm_up_steps) == (128, 4, 0.95, 6400)
    assert ppo.minibatch_size * 4 == ppo.rollout_steps * preset("rnd-burda").num_envs
    assert (intrinsic.learning_rate, intrinsic.epochs, intrinsic.minibatches) == (1e-4, 4, 4)
    assert (intrinsic.rnd_features, intrinsic.rnd_clip, intrinsic.rnd_normalise) == (512, 5, True)


def test_icm_of_pathak() -> None:
    ppo, intrinsic = preset("icm-pathak").ppo, preset("icm-pathak").intrinsic
    assert (ppo.intrinsic_scale, ppo.entropy_weight, ppo.gae_lambda, ppo.rollout_steps) == (0.01, 0.01, 1, 20)
    assert (intrinsic.features, intrinsic.icm_forward_weight, intrinsic.icm_inverse_weight) == (288, 0.2, 0.8)
    assert intrinsic.icm_forward_factor == 288 / 2
    assert intrinsic.learning_rate == 10 * ppo.policy_learning_rate


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_an_agent_of_a_preset_learns_a_rollout(name: str) -> None:
    chosen = preset(name)
    small = {**vars(chosen.ppo), "rollout_steps": 8, "warm_up_steps": min(5, chosen.ppo.warm_up_steps)}
    chosen = type(chosen)(chosen.method, type(chosen.ppo)(**small), chosen.intrinsic, chosen.num_envs)
    ppo = chosen.make(make_env("MiniGrid-DoorKey-5x5-v0", num_envs=3), seed=1)
    for _ in range(2):
        row = ppo.iterate()
    assert row is not None
    assert math.isfinite(row["intrinsic_mean"])
    assert ppo.agent.values(torch.zeros(1, 5, 5, 3)).shape == (1, chosen.ppo.value_heads)


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(MethodError, match=r"expected a preset out of gmc, released, .* did you mean rnd-burda\?"):
        preset("rnd-bruda")
