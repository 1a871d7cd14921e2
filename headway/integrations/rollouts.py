"""Intrinsic rewards for whole rollouts, as training loops of one file keep them (CleanRL and its relatives).

from headway.integrations.rollouts import RolloutReward

pay = RolloutReward(envs, "icm+gmc")
rewards += pay(obs, actions, dones, next_obs)  # after the rollout, before the advantages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headway.errors import EnvError, MethodError
from headway.integrations.rewards import check_number, reward_of
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.normalise import RewardNormaliser
from headway.rl.reward import Reward
from headway.rl.spaces import pack

__all__ = ["RolloutReward"]


class RolloutReward:
    """Rewards rollouts, and trains the predictor with them.

    Args:
        envs: vector environments, which say their spaces, their number and how they begin new episodes. None if there
            are none at hand: then `spaces` must be given.
        method: such as "icm+gmc", or an `IntrinsicReward` of your own.
        coefficient: what the intrinsic reward is multiplied by.
        normalise: bring it to the scale of `headway.rl.RewardNormaliser`, in units of the task's return.
        centre: with `normalise`, take the mean off first, so that being alive is worth nothing.
        gamma: the discount of the sums.
        config: settings of the predictor and the scorer.
        seed: of the predictor's weights.
        device: where the predictor lives.
        spaces: observation space, action space and number of environments, instead of those of `envs`.

    Raises:
        MethodError: there is no such method, or it has no intrinsic reward.
        EnvError: neither environments nor spaces.
    """

    def __init__(
        self,
        envs: Any = None,
        method: str | Reward = "icm+gmc",
        *,
        coefficient: float = 0.05,
        normalise: bool = True,
        centre: bool = True,
        gamma: float = 0.99,
        config: IntrinsicConfig | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
        spaces: tuple[Any, Any, int] | None = None,
    ) -> None:
        check_number("coefficient", coefficient)
        if spaces is None:
            if envs is None:
                raise EnvError("expected vector environments, or spaces=(observation, action, number), got neither")
            spaces = envs.single_observation_space, envs.single_action_space, int(envs.num_envs)
        observations, actions, self.num_envs = spaces
        mode = (getattr(envs, "metadata", None) or {}).get("autoreset_mode")
        self.autoreset = getattr(mode, "name", "SAME_STEP")
        self.coefficient = coefficient
        self.reward = reward_of(method, (observations, actions), config, device, seed)
        self.normaliser = RewardNormaliser(self.num_envs, gamma, centre=centre) if normalise else None
        self.metrics: dict[str, float] = {}

    def __call__(self, obs: Any, actions: Any, dones: Any, last_obs: Any, last_done: Any = None) -> Tensor:
        """The rewards of a rollout as CleanRL keeps it: `obs`, `actions`, `dones`, `next_obs`, `next_done`.

        Rows that are no transitions are left out: where environments begin anew with a step of its own (NEXT_STEP),
        that step; where they do so at once (SAME_STEP), the step before, whose next observation is lost. Use `pay` if
        you kept it.

        Args:
            obs: what was acted on [T, N, ...].
            actions: [T, N, ...].
            dones: whether the observation came with the end of an episode [T, N].
            last_obs: what comes after the rollout [N, ...].
            last_done: the same as `dones` for it [N]; needed under SAME_STEP, and by bonuses of single episodes.

        Returns:
            [T, N], float32, zero where there was no transition.

        Raises:
            MethodError: shapes that do not fit; `last_done` is missing where it is needed; or a bonus of single
                episodes under SAME_STEP, whose steps at the ends of episodes are lost.
        """
        obs, last = torch.as_tensor(pack_time(obs)), torch.as_tensor(pack(last_obs))
        if last.shape != obs.shape[1:]:
            raise MethodError(f"last_obs: expected the shape {list(obs.shape[1:])}, as in obs, got {list(last.shape)}")
        following = torch.cat([obs[1:], last.to(obs)[None]])
        began = torch.as_tensor(dones, device=obs.device).bool()
        begins_with_a_step = self.autoreset == "NEXT_STEP"
        if begins_with_a_step and last_done is None and not self.reward.is_episodic:
            return self.pay(obs, actions, following, ~began)
        if last_done is None:
            raise MethodError(
                f"expected next_done under the autoreset mode {self.autoreset}, got none: without it a step that ended "
                f"an episode would lead into the next one"
            )
        ended = torch.cat([began[1:], torch.as_tensor(last_done, device=obs.device).bool()[None]])
        if begins_with_a_step:
            return self.pay(obs, actions, following, ~began, ended)
        if self.reward.is_episodic:
            raise MethodError(
                f"expected a bonus that does not look at single episodes, got {self.reward.name!r} under the autoreset "
                f"mode {self.autoreset}, where their last steps are lost; use pay(..., ended=...) with the true "
                f"next observations, or the mode NEXT_STEP"
            )
        return self.pay(obs, actions, following, ~ended)

    def pay(self, obs: Any, actions: Any, next_obs: Any, valid: Any = None, ended: Any = None) -> Tensor:
        """The rewards of a rollout whose next observations are the true ones.

        Args:
            obs: what was acted on [T, N, ...].
            actions: [T, N, ...].
            next_obs: what followed [T, N, ...].
            valid: where there was a transition [T, N]; None for everywhere.
            ended: where an episode ended, for good or cut off [T, N]; bonuses of single episodes need it.

        Returns:
            [T, N], float32, on the device of the observations.

        Raises:
            MethodError: shapes that do not fit, or `ended` is missing where it is needed.
        """
        obs, following = torch.as_tensor(pack_time(obs)), torch.as_tensor(pack_time(next_obs))
        shape = tuple(obs.shape[:2])
        if shape[1] != self.num_envs:
            raise MethodError(f"expected observations [steps, {self.num_envs}, ...], got {list(obs.shape)}")
        for name, each in {"actions": actions, "next_obs": following, "valid": valid, "ended": ended}.items():
            if each is not None and (got := tuple(torch.as_tensor(each).shape))[:2] != shape:
                raise MethodError(f"{name}: expected [{shape[0]}, {shape[1]}, ...], as in obs, got {list(got)}")
        kept = torch.ones(shape, dtype=torch.bool) if valid is None else torch.as_tensor(valid).bool().cpu()
        raw = torch.zeros(shape)
        if kept.any():
            ended = None if ended is None else torch.as_tensor(ended).bool()
            batch = Transitions.of_rollout(kept, obs=obs, actions=actions, next_obs=following, ended=ended)
            result = self.reward.rewards_and_update(batch)
            raw[kept] = result.rewards.cpu()
            self.metrics = dict(result.metrics)
        if self.normaliser is not None:
            self.normaliser.update(raw, kept)
            raw = self.normaliser(raw)
        return (self.coefficient * torch.where(kept, raw, 0.0)).to(obs.device)

    def state_dict(self) -> dict[str, Any]:
        """Everything that later rewards depend on."""
        normaliser = None if self.normaliser is None else self.normaliser.state_dict()
        return {"reward": self.reward.state_dict(), "normaliser": normaliser}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.reward.load_state_dict(state["reward"])
        if self.normaliser is not None and state["normaliser"] is not None:
            self.normaliser.resume(state["normaliser"])


def pack_time(values: Any) -> Any:
    """Observations [T, N, ...] as arrays or tensors, parts as rows [T, N, width]."""
    if not isinstance(values, Mapping | tuple):
        return values

    def joined(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: joined(part) for key, part in value.items()}
        return tuple(map(joined, value)) if isinstance(value, tuple) else value.reshape(-1, *value.shape[2:])

    first: Any = values
    while isinstance(first, Mapping | tuple):
        first = next(iter(first.values())) if isinstance(first, Mapping) else first[0]
    return pack(joined(values)).reshape(*first.shape[:2], -1)
