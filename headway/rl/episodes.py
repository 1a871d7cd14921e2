"""Steps of vector environments, with what really followed each action also where episodes end.

Gymnasium's vector environments begin a new episode in one of three ways (`AutoresetMode`), and each puts the last
observation of an episode elsewhere:

| mode | the step that ends an episode returns | the new episode begins |
|---|---|---|
| NEXT_STEP | the last observation | with the step after it, whose action is ignored |
| SAME_STEP | the first observation of the new episode; the last one is in `infos["final_obs"]` | at once |
| DISABLED | the last observation | when `reset` is called with a mask |

`Episodes` hides the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from headway.errors import EnvError, MethodError, StateError
from headway.rl.envs.make import gymnasium
from headway.rl.spaces import Array, Mask, is_joint, leaves, pack, pack_one, pick, width

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode


@dataclass(frozen=True)
class Step:
    """One step of N environments: in each, an observation, an action, and what really followed.

    Attributes:
        obs: the observations that the actions were chosen on [N, ...].
        actions: the actions [N, ...].
        rewards: [N].
        next_obs: the observations that followed [N, ...]; where an episode ended, its last one.
        terminated: the episode ended, for good [N].
        truncated: the episode was cut off [N].
        valid: there was a transition [N]. False where an environment only began a new episode and ignored the
            action: leave such entries out of whatever is learned.
        infos: as the environment gave them.
    """

    obs: Array
    actions: Array
    rewards: Array
    next_obs: Array
    terminated: Mask
    truncated: Mask
    valid: Mask
    infos: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> Mask:
        """The episode ended, one way or the other [N]."""
        return self.terminated | self.truncated

    def info(self, key: str, missing: float = 0.0) -> Array:
        """A number that the environments report with `next_obs` [N]; `missing` where one reports nothing."""
        values = _reported(self.infos, key, len(self.valid), missing)
        final = self.infos.get("final_info")
        if isinstance(final, Mapping):  # SAME_STEP: the rest of the infos are about the new episode
            last = np.asarray(self.infos.get("_final_info", self.ended), dtype=bool)
            values = np.where(last, _reported(final, key, len(self.valid), missing), values)
        return values


class Episodes:
    """Steps a Gymnasium vector environment and tells what really followed each action.

        episodes = Episodes(env)
        obs = episodes.reset(seed=0)
        for _ in range(steps):
            step = episodes.step(policy(obs))  # step.next_obs is what followed, step.valid where there was anything
            obs = episodes.obs  # what to act on next

    Args:
        env: a vector environment. Observations of several parts (Dict, Tuple) become one row each.

    Raises:
        EnvError: it is no vector environment, does not say how it begins new episodes, or has
            observations that are no arrays.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.mode = autoreset_mode(env)
        space = env.single_observation_space
        self._shape = (env.num_envs, *((width(space),) if is_joint(space) else dict(leaves(space))[""].shape))
        self._obs: Array | None = None
        self._over = np.zeros(env.num_envs, dtype=bool)

    @property
    def obs(self) -> Array:
        """The observations to act on next [N, ...]."""
        if self._obs is None:
            raise StateError("expected an environment that was reset, got one that was not; call reset() first")
        return self._obs

    def reset(self, seed: int | Sequence[int] | None = None) -> Array:
        """Begin new episodes everywhere, with a seed as `VectorEnv.reset` takes it; returns observations [N, ...]."""
        return self.begin(self.env.reset(seed=seed)[0])

    def begin(self, obs: Any, began: Mask | None = None) -> Array:
        """Take in the observations that a reset returned; only some environments [N] may have begun anew."""
        self._obs = np.array(pack(obs))  # a copy: some environments use their arrays again
        self._over = np.zeros_like(self._over) if began is None else self._over & ~began
        return self._obs

    def step(self, actions: Array) -> Step:
        """Act in all environments: actions [N, ...]."""
        _ = self.obs  # an environment that was not reset is refused before it acts
        step = self.take(actions, *self.env.step(actions))
        if self.mode.name == "DISABLED" and step.ended.any():
            self.begin(self.env.reset(options={"reset_mask": step.ended})[0])
        return step

    def take(
        self,
        actions: Array,
        obs: Any,
        rewards: Array,
        terminated: Any,
        truncated: Any,
        infos: Mapping[str, Any],
    ) -> Step:
        """The step that led from `self.obs` to what the environments returned.

        Under DISABLED, environments whose episode ended wait for a reset; see `begin`.
        """
        before, valid = self.obs, ~self._over
        self._obs = following = np.array(pack(obs))
        ends = np.array(terminated, dtype=bool), np.array(truncated, dtype=bool)
        ended = ends[0] | ends[1]
        if self.mode.name == "NEXT_STEP":
            self._over = ended
        elif self.mode.name == "SAME_STEP" and ended.any():
            following = with_last_observations(following, ended, infos)
        return Step(before, np.array(actions), np.array(rewards), following, *ends, valid, infos)

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on besides the environment itself; no observations before the first reset."""
        return {"obs": None if self._obs is None else self._obs.copy(), "over": self._over.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of such environments, which have to be put back by other means."""
        over, shape = np.array(state["over"], dtype=bool), self._shape
        obs = None if state["obs"] is None else np.array(state["obs"])
        if over.shape != shape[:1] or (obs is not None and obs.shape != shape):
            got = list(over.shape if obs is None else obs.shape)
            raise StateError(f"expected observations of shape {list(shape)}, got {got}")
        self._obs, self._over = obs, over


def autoreset_mode(env: Any) -> AutoresetMode:
    """How a vector environment begins new episodes.

    Raises:
        EnvError: it is no vector environment, or does not say.
    """
    modes = gymnasium().vector.AutoresetMode
    if not hasattr(env, "num_envs"):
        raise EnvError(
            f"expected a vector environment, got {type(env).__name__}; make one with gymnasium.make_vec(...)"
        )
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    if not isinstance(mode, modes):
        known = ", ".join(each.name for each in modes)
        raise EnvError(
            f"expected env.metadata['autoreset_mode'] to be an AutoresetMode ({known}), got {mode!r}; "
            f"set it to what the environment does at the end of an episode"
        )
    return cast("AutoresetMode", mode)


def has_state(env: Any) -> bool:
    """Whether `env.state_dict()` is there and is the whole state.

    A wrapper may have one without what it wraps; it then has an attribute `carries_environment` that says so.
    """
    return hasattr(env, "state_dict") and bool(getattr(env, "carries_environment", True))


def with_last_observations(obs: Array, ended: Mask, infos: Mapping[str, Any]) -> Array:
    """A copy of observations [N, ...], with the last ones of episodes that ended [N] in place of the first of new ones.

    Under SAME_STEP they are in the infos, as `final_obs`: an array [N, ...], or one of N objects.
    """
    final = infos.get("final_obs")
    if final is None:
        raise EnvError("expected infos['final_obs'] where an episode ended (autoreset mode SAME_STEP), got none")
    following = obs.copy()
    for index in np.flatnonzero(ended):
        last = pick(final, int(index))
        if last is None:
            raise EnvError(f"expected infos['final_obs'] of environment {index}, whose episode ended, got none")
        following[index] = pack_one(last)
    return following


def _reported(infos: Mapping[str, Any], key: str, count: int, missing: float) -> Array:
    """Values of a key [N], with `missing` where the mask beside it says that there is none."""
    values = infos.get(key)
    if values is None:
        return np.full(count, missing)
    values = np.asarray(values)
    has = infos.get(f"_{key}")
    return values if has is None else np.where(np.asarray(has, dtype=bool), values, missing)


@dataclass(frozen=True)
class Transitions:
    """N transitions, those of one environment in the order of time. Arrays are taken as tensors.

    Attributes:
        obs: observations [N, H, W, C] or [N, D], as the environment gave them; a dictionary of such for a Dict space.
        actions: [N] for discrete actions, [N, A] for others.
        next_obs: what followed, shaped as `obs`; where an episode ended its last observation, never the first of
            the next (see `headway.rl.episodes`).
        terminated: where the episode ended for good [N], or None if nobody asks.
        noise_on: where the next observation carried noise [N], or None.
        ended: where the episode ended, for good or cut off [N], or None; memories of single episodes need it ...
        envs: ... and the number of the environment [N].
        later_obs: an observation further on in the episode [N, ...], for bonuses that look ahead, or None ...
        later_steps: ... and how many steps after `obs` it is [N].
    """

    obs: Tensor
    actions: Tensor
    next_obs: Tensor
    terminated: Tensor | None = None
    noise_on: Tensor | None = None
    ended: Tensor | None = None
    envs: Tensor | None = None
    later_obs: Tensor | None = None
    later_steps: Tensor | None = None

    def __post_init__(self) -> None:
        """Take arrays as tensors, and check that the lengths agree.

        Raises:
            MethodError: they do not, or there is no transition.
        """
        for name, value in self._given():
            object.__setattr__(self, name, torch.as_tensor(pack(value)))
        lengths = {name: len(value) if value.dim() else None for name, value in self._given()}
        if len(set(lengths.values())) != 1 or None in lengths.values():
            found = ", ".join(f"{name} {list(value.shape)}" for name, value in self._given())
            raise MethodError(f"expected the same number of observations, actions and the rest, got {found}")
        if not len(self):
            raise MethodError("expected at least one transition, got none")
        if self.obs.shape != self.next_obs.shape:
            raise MethodError(
                f"expected next_obs of shape {list(self.obs.shape)}, as obs, got {list(self.next_obs.shape)}"
            )

    @classmethod
    def of_rollout(cls, valid: Any = None, **parts: Any) -> Transitions:
        """The transitions of a rollout of T steps in N environments, in the order of time.

        Args:
            valid: where there was a transition [T, N]; None for everywhere.
            parts: attributes by name, each [T, N, ...]; `envs` follows where `ended` is among them.
        """
        given = {name: torch.as_tensor(value) for name, value in parts.items() if value is not None}
        shape = given["obs"].shape[:2]
        if "ended" in given:
            given["envs"] = torch.arange(shape[1]).expand(shape)
        kept = torch.ones(shape, dtype=torch.bool) if valid is None else torch.as_tensor(valid)
        return cls(**{name: each[kept.to(each.device)] for name, each in given.items()})

    def __len__(self) -> int:
        """N."""
        return len(self.obs)

    def __getitem__(self, index: Any) -> Transitions:
        """Those transitions that a slice, a mask [N] or indices pick."""
        return Transitions(**{name: value[index] for name, value in self._given()})

    def to(self, device: str | torch.device) -> Transitions:
        """The same on a device."""
        return Transitions(**{name: value.to(device) for name, value in self._given()})

    def _given(self) -> Iterator[tuple[str, Tensor]]:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                yield each.name, value


def segments(batch: Transitions) -> Iterator[tuple[int, Tensor, bool]]:
    """The pieces of episodes in a batch: the environment, the places [n] in the order of time, and whether it ended.

    Raises:
        MethodError: the transitions do not say which belong together.
    """
    if batch.envs is None or batch.ended is None:
        missing = " and ".join(name for name in ("envs", "ended") if getattr(batch, name) is None)
        raise MethodError(
            f"expected transitions in the order of time that tell episodes apart, got none of {missing}; "
            f"use Transitions(obs, actions, next_obs, ended=..., envs=...), or a bonus that is not episodic"
        )
    envs, ended = batch.envs.cpu().numpy(), batch.ended.cpu().numpy().astype(bool)
    order = np.argsort(envs, kind="stable")
    cuts = np.flatnonzero(ended[order][:-1] | (np.diff(envs[order]) != 0)) + 1
    for places in np.split(order, cuts):
        yield int(envs[places[0]]), torch.from_numpy(places).to(batch.envs.device), bool(ended[places[-1]])
