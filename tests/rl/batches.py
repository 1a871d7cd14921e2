"""Spaces, and random transitions of them, that several tests share."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from headway.rl.episodes import Transitions

IMAGE = spaces.Box(0, 255, (5, 5, 4), np.uint8)
FLOAT_IMAGE = spaces.Box(-np.inf, np.inf, (5, 5, 4), np.float32)
VECTOR = spaces.Box(-np.inf, np.inf, (6,), np.float32)
DISCRETE = spaces.Discrete(3)
CONTINUOUS = spaces.Box(-1, 1, (2,), np.float32)


def transitions(
    samples: int, seed: int = 0, observations=VECTOR, actions=DISCRETE, repeat: bool = False
) -> Transitions:
    """Transitions as an environment would give them; with `repeat`, few observations occur many times."""
    rng = np.random.default_rng(seed)

    def observe() -> np.ndarray:
        if observations.dtype == np.uint8:
            drawn = rng.integers(0, 11, (samples, *observations.shape)).astype(np.uint8)
        else:
            drawn = rng.normal(size=(samples, *observations.shape)).astype(observations.dtype)
        return drawn[rng.integers(0, 1 + samples // 4, samples)] if repeat else drawn

    actions.seed(seed)
    chosen = np.stack([np.asarray(actions.sample()) for _ in range(samples)])
    obs = observe()
    next_obs = np.concatenate([obs[1:], observe()[-1:]]) if repeat else observe()
    return Transitions(obs, chosen, next_obs, torch.zeros(samples, dtype=torch.bool))
