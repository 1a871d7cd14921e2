"""Watching an agent: what happened in some episodes, shot by shot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.errors import EnvError

Array = npt.NDArray[Any]
Choose = Callable[[Array], Array]
"""Actions [N, ...] for observations [N, ...]."""


@dataclass(frozen=True)
class Shot:
    """One moment of an episode.

    Attributes:
        grid: the codes of the whole grid [width, height, 3].
        noise: the noise channel of the observation [any width, any height]; None if it has none.
        episode: the number of the episode, from 1.
        step: steps so far.
        reward: of the last step.
        total: all rewards of the episode so far.
        noise_on: whether the observation carries noise.
        ended: how the episode ended, "solved" (with a reward), "over" (without) or "cut off"; empty while it goes on.
    """

    grid: Array
    noise: Array | None
    episode: int
    step: int
    reward: float
    total: float
    noise_on: bool
    ended: str = ""


def watch(env: Any, choose: Choose, episodes: int, seed: int | None = None) -> Iterator[Shot]:
    """Play episodes and show each of their moments, the first and the last included.

    Args:
        env: one environment from `headway.rl.make_env(..., num_envs=1, autoreset_mode="disabled")`.
        choose: the agent.
        episodes: how many.
        seed: of the environment; None goes on with its random stream.

    Raises:
        EnvError: several environments, or one that begins new episodes by itself.
    """
    mode = env.metadata["autoreset_mode"].name
    if env.num_envs != 1 or mode != "DISABLED":
        raise EnvError(
            f"expected one environment with autoreset disabled, got {env.num_envs} with {mode}; "
            f"make it with make_env(..., num_envs=1, autoreset_mode='disabled')"
        )
    for episode in range(1, episodes + 1):
        obs, infos = env.reset(seed=seed if episode == 1 else None)
        step, total, ended = 0, 0.0, ""
        yield _shot(env, obs, infos, episode=episode, step=0, reward=0.0, total=0.0)
        while not ended:
            obs, rewards, terminated, truncated, infos = env.step(choose(obs))
            step, total = step + 1, total + float(rewards[0])
            if terminated[0]:
                ended = "solved" if rewards[0] > 0 else "over"
            elif truncated[0]:
                ended = "cut off"
            yield _shot(env, obs, infos, episode=episode, step=step, reward=float(rewards[0]), total=total, ended=ended)


def _shot(env: Any, obs: Array, infos: dict[str, Any], **facts: Any) -> Shot:
    seen = np.array(obs[0])
    noise = seen[..., 3] if seen.shape[-1] == 4 else None
    noise_on = bool(np.asarray(infos.get("noise_on", [False]))[0])
    return Shot(grid=np.array(env.unwrapped.grids()[0]), noise=noise, noise_on=noise_on, **facts)
