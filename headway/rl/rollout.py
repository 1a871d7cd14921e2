"""Rollouts: what an agent did and what came of it, step by step in N environments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headway.rl.actions import ActionHead
from headway.rl.episodes import Episodes, Step
from headway.rl.transitions import Transitions

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Act = Callable[[Array], Array]
"""The outputs of a policy [N, outputs] for observations [N, ...]."""


@dataclass(frozen=True)
class Rollout:
    """T steps in N environments.

    Attributes:
        obs: what was acted on [T, N, ...].
        actions: as they were drawn [T, N, ...] ...
        env_actions: ... and as the environment took them [T, N, ...].
        outputs: of the policy, from which the actions were drawn [T, N, outputs].
        rewards: of the environment [T, N].
        next_obs: what really followed [T, N, ...]; where an episode ended, its last observation.
        terminated: the episode ended, for good [T, N].
        truncated: the episode was cut off [T, N].
        valid: there was a transition [T, N], see `headway.rl.episodes.Step`.
        noise_on: the next observation carried noise [T, N].
        last_obs: what is acted on next [N, ...].
    """

    obs: Array
    actions: Array
    env_actions: Array
    outputs: Array
    rewards: Array
    next_obs: Array
    terminated: Mask
    truncated: Mask
    valid: Mask
    noise_on: Mask
    last_obs: Array

    @property
    def ended(self) -> Mask:
        """The episode ended, one way or the other [T, N]."""
        return self.terminated | self.truncated

    def transitions(self) -> Transitions:
        """Those steps in which there was a transition, in the order of time."""
        keep = self.valid
        obs, actions, following, terminated, noise_on = (
            torch.from_numpy(each[keep])
            for each in (self.obs, self.env_actions, self.next_obs, self.terminated, self.noise_on)
        )
        return Transitions(obs, actions, following, terminated, noise_on)


def remembering(act: Act) -> Act:
    """A policy that answers an observation of a single environment from memory when it comes again.

    In a grid world the agent sees the same things again and again. Make one for each rollout: what it keeps is then no
    more than the rollout has, and the policy does not change meanwhile.

    Args:
        act: the policy.
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
    """Act for some steps.

    Args:
        episodes: the environments, which have been reset.
        act: the policy.
        head: how actions are drawn from its outputs.
        steps: how many.
        generator: where the randomness of the actions comes from.
        should_stop: asked before each step.

    Returns:
        the rollout; None if asked to stop, which leaves the environments where they are.
    """
    made: list[tuple[Step, Array, Array]] = []
    for noise in head.noise(steps, episodes.env.num_envs, generator):
        if should_stop():
            return None
        outputs = act(episodes.obs)
        actions = head.sample(outputs, noise)
        made.append((episodes.step(head.to_env(actions)), outputs, actions))
    taken, outputs_, actions_ = zip(*made, strict=True)
    return Rollout(
        obs=np.stack([step.obs for step in taken]),
        actions=np.stack(actions_),
        env_actions=np.stack([step.actions for step in taken]),
        outputs=np.stack(outputs_),
        rewards=np.stack([step.rewards for step in taken]),
        next_obs=np.stack([step.next_obs for step in taken]),
        terminated=np.stack([step.terminated for step in taken]),
        truncated=np.stack([step.truncated for step in taken]),
        valid=np.stack([step.valid for step in taken]),
        noise_on=np.stack([step.info("noise_on").astype(bool) for step in taken]),
        last_obs=episodes.obs.copy(),
    )
