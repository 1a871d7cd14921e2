"""Exploration: what to predict or remember, joined with how to score it, and the agents that are rewarded for it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.rl.agent import Policy
    from headway.rl.bonuses import (
        ICM,
        RND,
        Counts,
        EpisodicMemory,
        Forward,
        Memory,
        Prediction,
        Predictor,
        register_bonus,
        register_predictor,
    )
    from headway.rl.config import PRESETS, IntrinsicConfig, PPOConfig, Preset, preset
    from headway.rl.envs.doorkey_env import DoorKeyVectorEnv
    from headway.rl.envs.farama import MiniGridVectorEnv
    from headway.rl.envs.grids import render_grid
    from headway.rl.envs.make import env_ids, make_env
    from headway.rl.envs.noise import DoorNoise
    from headway.rl.episodes import Episodes, Step, Transitions
    from headway.rl.methods import MixedReward, make_reward
    from headway.rl.normalise import RewardNormaliser
    from headway.rl.ppo import PPO
    from headway.rl.reward import IntrinsicResult, IntrinsicReward, MemoryReward, Reward
    from headway.rl.scorers import Scorer, SignalScorer, register_scorer

__all__ = [
    "ICM",
    "PPO",
    "PRESETS",
    "RND",
    "Counts",
    "DoorKeyVectorEnv",
    "DoorNoise",
    "Episodes",
    "EpisodicMemory",
    "Forward",
    "IntrinsicConfig",
    "IntrinsicResult",
    "IntrinsicReward",
    "Memory",
    "MemoryReward",
    "MiniGridVectorEnv",
    "MixedReward",
    "PPOConfig",
    "Policy",
    "Prediction",
    "Predictor",
    "Preset",
    "Reward",
    "RewardNormaliser",
    "Scorer",
    "SignalScorer",
    "Step",
    "Transitions",
    "env_ids",
    "make_env",
    "make_reward",
    "preset",
    "register_bonus",
    "register_predictor",
    "register_scorer",
    "render_grid",
]

_NAMES = {
    "agent": "Policy",
    "bonuses": "ICM RND Counts EpisodicMemory Forward Memory Prediction Predictor register_bonus register_predictor",
    "config": "IntrinsicConfig PPOConfig PRESETS Preset preset",
    "envs.doorkey_env": "DoorKeyVectorEnv",
    "envs.farama": "MiniGridVectorEnv",
    "envs.grids": "render_grid",
    "envs.make": "env_ids make_env",
    "envs.noise": "DoorNoise",
    "episodes": "Episodes Step Transitions",
    "methods": "MixedReward make_reward",
    "normalise": "RewardNormaliser",
    "ppo": "PPO",
    "reward": "IntrinsicResult IntrinsicReward MemoryReward Reward",
    "scorers": "Scorer SignalScorer register_scorer",
}
_HOMES = {name: f"headway.rl.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: most of them need packages of the `rl` extra."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headway.rl' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
