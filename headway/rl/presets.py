"""Agents with the constants of a paper: its reward, and how it is mixed with the task's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from headway.errors import MethodError, did_you_mean
from headway.rl.config import IntrinsicConfig, PPOConfig
from headway.rl.methods import make_reward
from headway.rl.ppo import PPO


@dataclass(frozen=True)
class Preset:
    """A method with all its constants.

    Attributes:
        method: what is predicted and how it is scored.
        ppo: the agent, and how it mixes the two rewards.
        intrinsic: the predictor and the scorer.
        num_envs: the environments that the constants are meant for.
    """

    method: str
    ppo: PPOConfig
    intrinsic: IntrinsicConfig
    num_envs: int

    def make(self, env: Any, *, seed: int = 0, device: str | torch.device = "cpu", **options: Any) -> PPO:
        """The agent in a Gymnasium vector environment; `options` are others of `PPO`."""
        spaces = env.single_observation_space, env.single_action_space
        reward = make_reward(self.method, *spaces, self.intrinsic, device, seed)
        return PPO(env, self.ppo, reward, seed=seed, device=device, **options)


PAPER_PPO = PPOConfig(extrinsic_scale=10.0, intrinsic_scale=0.02, normalise_intrinsic=False, centre_intrinsic=False)
"""The agent of the GMC paper."""

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        # The GMC paper: its text, and its authors' released code.
        "gmc": Preset("icm+gmc", PAPER_PPO, IntrinsicConfig.paper(), 1),
        "released": Preset(
            "icm+gmc",
            PPOConfig(**{**vars(PAPER_PPO), "truncation": "terminate"}),
            IntrinsicConfig.released(),
            1,
        ),
        # Y. Burda et al., Exploration by Random Network Distillation (2018), and its code.
        "rnd-burda": Preset(
            "rnd",
            PPOConfig(
                rollout_steps=128,
                extrinsic_scale=2.0,
                intrinsic_scale=1.0,
                centre_intrinsic=False,  # its value does not end with the episode: staying alive gains nothing
                warm_up_steps=128 * 50,
                value_heads=2,
                gamma=0.999,
                intrinsic_gamma=0.99,
                intrinsic_episodic=False,
                epochs=4,
                minibatch_size=1024,  # a quarter of a rollout in 32 environments
                clip=0.1,
                entropy_weight=0.001,
                policy_learning_rate=1e-4,
                value_learning_rate=1e-4,
                max_grad_norm=None,
                initialisation="orthogonal",
            ),
            IntrinsicConfig(learning_rate=1e-4, epochs=4, minibatches=4, max_grad_norm=None),
            32,
        ),
        # D. Pathak et al., Curiosity-driven Exploration by Self-supervised Prediction (2017), and its code, with PPO in
        # place of A3C. Losses and rewards are half the sum over 288 features of the squared error.
        "icm-pathak": Preset(
            "icm",
            PPOConfig(
                rollout_steps=20,
                intrinsic_scale=0.01,
                normalise_intrinsic=False,
                centre_intrinsic=False,
                gae_lambda=1.0,
                policy_learning_rate=1e-4,
                value_learning_rate=1e-4,
                max_grad_norm=40.0,
            ),
            IntrinsicConfig(
                features=288,
                normalise_observations=False,
                learning_rate=1e-3,
                max_grad_norm=40.0,
                epochs=1,
                minibatches=1,
                icm_forward_factor=0.5 * 288,
            ),
            20,
        ),
    }
)
"""By name."""


def preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        MethodError: there is none; the message lists them.
    """
    if name not in PRESETS:
        raise MethodError(f"expected a preset out of {', '.join(PRESETS)}, got {name!r}{did_you_mean(name, PRESETS)}")
    return PRESETS[name]
