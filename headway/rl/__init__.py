"""Exploration: what to predict, joined with how to score it, and the agents that are paid for it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.rl.envs.doorkey import DoorKeyVectorEnv
    from headway.rl.envs.drawing import render_grid
    from headway.rl.envs.make import env_ids, make_env
    from headway.rl.envs.farama import MiniGridVectorEnv
    from headway.rl.envs.noise import DoorNoise

__all__ = ["DoorKeyVectorEnv", "DoorNoise", "MiniGridVectorEnv", "env_ids", "make_env", "render_grid"]

_HOMES = {
    "DoorKeyVectorEnv": "headway.rl.envs.doorkey",
    "DoorNoise": "headway.rl.envs.noise",
    "MiniGridVectorEnv": "headway.rl.envs.farama",
    "env_ids": "headway.rl.envs.make",
    "make_env": "headway.rl.envs.make",
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
