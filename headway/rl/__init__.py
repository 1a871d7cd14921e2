"""Exploration: what to predict, joined with how to score it, and the agents that are paid for it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.rl.agent import Policy
    from headway.rl.config import PPOConfig
    from headway.rl.envs.doorkey import DoorKeyVectorEnv
    from headway.rl.envs.drawing import render_grid
    from headway.rl.envs.farama import MiniGridVectorEnv
    from headway.rl.envs.make import env_ids, make_env
    from headway.rl.envs.noise import DoorNoise
    from headway.rl.episodes import Episodes, Step
    from headway.rl.intrinsic import IntrinsicConfig
    from headway.rl.normalise import RewardNormaliser
    from headway.rl.ppo import PPO
    from headway.rl.predictors import ICM, RND, Forward, Predictor, register_predictor
    from headway.rl.presets import PRESETS, Preset, preset
    from headway.rl.reward import IntrinsicResult, IntrinsicReward, make_reward
    from headway.rl.scorers import Scorer, SignalScorer, register_scorer
    from headway.rl.transitions import Transitions

__all__ = [
    "ICM",
    "PPO",
    "PRESETS",
    "RND",
    "DoorKeyVectorEnv",
    "DoorNoise",
    "Episodes",
    "Forward",
    "IntrinsicConfig",
    "IntrinsicResult",
    "IntrinsicReward",
    "MiniGridVectorEnv",
    "PPOConfig",
    "Policy",
    "Predictor",
    "Preset",
    "RewardNormaliser",
    "Scorer",
    "SignalScorer",
    "Step",
    "Transitions",
    "env_ids",
    "make_env",
    "make_reward",
    "preset",
    "register_predictor",
    "register_scorer",
    "render_grid",
]

_HOMES = {
    "ICM": "headway.rl.predictors",
    "PPO": "headway.rl.ppo",
    "PRESETS": "headway.rl.presets",
    "RND": "headway.rl.predictors",
    "DoorKeyVectorEnv": "headway.rl.envs.doorkey",
    "DoorNoise": "headway.rl.envs.noise",
    "Episodes": "headway.rl.episodes",
    "Forward": "headway.rl.predictors",
    "IntrinsicConfig": "headway.rl.intrinsic",
    "IntrinsicResult": "headway.rl.reward",
    "IntrinsicReward": "headway.rl.reward",
    "MiniGridVectorEnv": "headway.rl.envs.farama",
    "PPOConfig": "headway.rl.config",
    "Policy": "headway.rl.agent",
    "Predictor": "headway.rl.predictors",
    "Preset": "headway.rl.presets",
    "RewardNormaliser": "headway.rl.normalise",
    "Scorer": "headway.rl.scorers",
    "SignalScorer": "headway.rl.scorers",
    "Step": "headway.rl.episodes",
    "Transitions": "headway.rl.transitions",
    "env_ids": "headway.rl.envs.make",
    "make_env": "headway.rl.envs.make",
    "make_reward": "headway.rl.reward",
    "preset": "headway.rl.presets",
    "register_predictor": "headway.rl.predictors",
    "register_scorer": "headway.rl.scorers",
    "render_grid": "headway.rl.envs.drawing",
}


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
