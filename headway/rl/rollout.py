"""Rollouts: what an agent did and what came of it, step by step in N environments."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headway.rl.agent import ActionHead
from headway.rl.episodes import Episodes, Step, Transitions
from headway.rl.spaces import Array, Mask

Act = Callable[[Array], Array]
"""The outputs of a policy [N, outputs] for observations [N, ...]."""


@dataclass(frozen=True)
class Rollout:
    """T steps in N environments."""

    obs: Array  # what was acted on [T, N, ...]
    actions: Array  # as they were drawn [T, N, ...] ...
    env_actions: Array  # ... and as the environment took them [T, N, ...]
    outputs: Array  # of the policy, from which the actions were drawn [T, N, outputs]
    rewards: Array  # of the environment [T, N]
    next_obs: Array  # what really followed [T, N, ...]; where an episode ended, its last observation
    terminated: Mask  # the episode ended, for good [T, N]
    truncated: Mask  # the episode was cut off [T, N]
    valid: Mask  # there was a transition [T, N], see `headway.rl.episodes.Step`
    noise_on: Mask  # the next observation carried noise [T, N]
    last_obs: Array  # what is acted on next [N, ...]

    @property
    def ended(self) -> Mask:
        """The episode ended, one way or the other [T, N]."""
        return self.terminated | self.truncated

    def transitions(self) -> Transitions:
        """Those steps in which there was a transition, in the order of time."""
        same = {name: getattr(self, name) for name in ("obs", "next_obs", "terminated", "noise_on", "ended")}
        return Transitions.of_rollout(self.valid, actions=self.env_actions, **same)


def remembering(act: Act) -> Act:
    """A policy that answers an observation of a single environment from memory when it comes again.

    In a grid world the agent sees the same things again and again. Make one for each rollout: what it keeps is then no
    more than the rollout has, and the policy does not change meanwhile.
    """
    known: dict[bytes, Array] = {}

    def answer(observations: Array) -> Array:
        if len(observations) > 1:
            return act(observations)
        key = observations.tobytes()
        if key not in known:
            known[key] = act(observations)
        return known[key]

    return answer


def collect(
    episodes: Episodes,
    act: Act,
    head: ActionHead,
    steps: int,
    generator: torch.Generator,
    should_stop: Callable[[], bool],
) -> Rollout | None:
    """Act for some steps in environments that have been reset; the head draws actions from the policy's outputs.

    If asked to stop before a step, it returns None and leaves the environments where they are.
    """
    made: list[tuple[Step, Array, Array]] = []
    for noise in head.noise(steps, episodes.env.num_envs, generator):
        if should_stop():
            return None
        outputs = act(episodes.obs)
        actions = head.sample(outputs, noise)
        made.append((episodes.step(head.to_env(actions)), outputs, actions))
    taken, outputs_, actions_ = zip(*made, strict=True)
    same = ("obs", "rewards", "next_obs", "terminated", "truncated", "valid")
    return Rollout(
        **{name: np.stack([getattr(step, name) for step in taken]) for name in same},
        actions=np.stack(actions_),
        env_actions=np.stack([step.actions for step in taken]),
        outputs=np.stack(outputs_),
        noise_on=np.stack([step.info("noise_on").astype(bool) for step in taken]),
        last_obs=episodes.obs.copy(),
    )


class EpisodeLog:
    """Adds up the rewards of episodes over rollouts, and remembers the last ones, as many as `window` says."""

    def __init__(self, envs: int, window: int) -> None:
        self.count = 0
        self._returns: deque[float] = deque(maxlen=window)
        self._lengths: deque[int] = deque(maxlen=window)
        self._return = np.zeros(envs)
        self._length = np.zeros(envs, dtype=np.int64)

    def add(self, rewards: Array, ended: Mask, valid: Mask) -> None:
        """Take in a rollout; all arrays are [T, N]. Episodes are remembered in the order in which they ended."""
        sums = np.where(valid, rewards, 0.0).cumsum(axis=0)
        steps = valid.cumsum(axis=0)
        before, steps_before = -self._return, -self._length
        for step, env in np.argwhere(ended & valid):
            self._returns.append(float(sums[step, env] - before[env]))
            self._lengths.append(int(steps[step, env] - steps_before[env]))
            before[env], steps_before[env] = sums[step, env], steps[step, env]
            self.count += 1
        self._return, self._length = sums[-1] - before, steps[-1] - steps_before

    def metrics(self) -> dict[str, float]:
        """How many episodes have ended, and the means of the remembered ones.

        These are NaN while fewer have ended than there are environments: environments begin together, the first
        episodes to end are the short ones, and their mean would mislead.
        """
        known = self.count >= len(self._return)
        return {
            "episodes": self.count,
            "episode_return": float(np.mean(self._returns)) if known else math.nan,
            "episode_length": float(np.mean(self._lengths)) if known else math.nan,
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain numbers."""
        return {
            "count": self.count,
            "returns": list(self._returns),
            "lengths": list(self._lengths),
            "return": self._return.tolist(),
            "length": self._length.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.count = state["count"]
        self._returns = deque(state["returns"], maxlen=self._returns.maxlen)
        self._lengths = deque(state["lengths"], maxlen=self._lengths.maxlen)
        self._return = np.array(state["return"])
        self._length = np.array(state["length"], dtype=np.int64)
