"""Environments for exploration by name: the grids of `headway.rl`, and those that users add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from headway.errors import EnvError, MissingExtraError, StateError
from headway.registry import Registry
from headway.rl import make_env
from headway.study.protocols.minigrid import ExplorationProtocol

try:
    import gymnasium
    from gymnasium.utils import seeding
    from gymnasium.vector import AutoresetMode, SyncVectorEnv
except ImportError:
    raise MissingExtraError("gymnasium", "rl") from None

MakeEnv: TypeAlias = Callable[[], "gymnasium.Env[Any, Any]"]
"""Makes one environment."""
OWN: Registry[MakeEnv] = Registry("environment", EnvError)


def register_env(name: str) -> Callable[[MakeEnv], MakeEnv]:
    """Add an environment: a class of `gymnasium.Env`, or a function that makes one.

    Its randomness must come from `self.np_random` alone, so that a stopped run resumes exactly.

    Args:
        name: what `headway run doorkey --env` calls it; letters, digits, dashes and underscores.

    Raises:
        EnvError: the name is taken or not valid.
    """
    return OWN.register(name)


def make_envs(
    protocol: ExplorationProtocol, env_id: str, noise: str, seed: int, num_envs: int, autoreset_mode: str = "same_step"
) -> Any:
    """The environments of a run, which are stepped together.

    Raises:
        EnvError: there is no such environment, or it does not go together with the noise or the protocol.
    """
    if env_id not in OWN.names():
        channel = True if protocol.noise_channel == "always" else None
        return make_env(
            env_id,
            num_envs,
            noise,
            protocol.backend,
            seed,
            protocol.view,
            noise_channel=channel,
            autoreset_mode=autoreset_mode,
        )
    if noise != "none":
        raise EnvError(f"expected noise none with the environment {env_id}, got {noise!r}, which needs doors")
    return ReplayableVectorEnv(OWN.find(env_id), num_envs, AutoresetMode[autoreset_mode.upper()])


class ReplayableVectorEnv(SyncVectorEnv):
    """N environments of a user, one after the other, with a state: how their episodes came about."""

    def __init__(self, make: MakeEnv, num_envs: int, autoreset_mode: AutoresetMode) -> None:
        self._replayed = [_Replayable(make()) for _ in range(num_envs)]
        super().__init__([partial(_same, env) for env in self._replayed], autoreset_mode=autoreset_mode)

    def state_dict(self) -> dict[str, Any]:
        """The beginning of each episode, and the actions since."""
        return {"episodes": [env.state_dict() for env in self._replayed]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Play the episodes of a state again.

        Raises:
            StateError: there are more or fewer, or one comes out differently.
        """
        if len(state["episodes"]) != self.num_envs:
            raise StateError(f"expected episodes of {self.num_envs} environments, got {len(state['episodes'])}")
        for env, episode in zip(self._replayed, state["episodes"], strict=True):
            env.load_state_dict(episode)


class _Replayable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose state is the generator at the beginning of the episode, and the actions since."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._start: Mapping[str, Any] | None = None
        self._actions: list[Any] = []
        self._seen: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        generator = self.unwrapped.np_random if seed is None else seeding.np_random(seed)[0]
        self._start, self._actions = generator.bit_generator.state, []
        self._seen, infos = self.env.reset(seed=seed, options=options)
        return self._seen, infos

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act."""
        self._actions.append(np.asarray(action).tolist())
        self._seen, *rest = self.env.step(action)
        return (self._seen, *rest)

    def state_dict(self) -> dict[str, Any]:
        """How the episode came about, and what is seen now, to tell whether it comes out the same."""
        return {"start": self._start, "actions": list(self._actions), "seen": np.asarray(self._seen).tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Play the episode of a state again."""
        if state["start"] is None:
            return
        self.unwrapped.np_random.bit_generator.state = state["start"]
        self.reset()
        for action in state["actions"]:
            self.step(np.asarray(action) if isinstance(action, list) else action)
        if np.asarray(self._seen).tolist() != state["seen"]:
            raise StateError(
                "expected the episode to come out as it was saved, got another one; does all randomness of the "
                "environment come from self.np_random?"
            )


def _same(env: _Replayable) -> _Replayable:
    return env
