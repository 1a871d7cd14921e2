"""The known environments as Stable-Baselines3 takes them."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from tests.integrations.worlds import Clock


def clocks(count: int = 2, **options: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda name=name: Monitor(Clock(name, **options)) for name in range(count)])
