"""Intrinsic rewards with the interface of RLeXplore's reward modules (rllte.xplore.reward).

A loop that is written for them takes this one instead:

    irs = RLeXploreReward(envs, device="cpu", beta=0.1, method="icm+gmc")
    irs.watch(observations, actions, rewards, terminateds, truncateds, next_observations)
    rewards += irs.compute(samples, sync=True)

It does not need rllte. Where it differs on purpose: making it does not step the environments; `sync=False` leaves
everything but the step count as it is; with `gamma`, rewards are divided by the deviation of their discounted sums,
and not replaced by those sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headway.errors import EnvError, MethodError, StateError
from headway.integrations.rewards import check_number, reward_of
from headway.integrations.versions import require
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.normalise import ObservationNormaliser, RewardNormaliser, RunningMoments
from headway.rl.reward import Reward
from headway.rl.spaces import is_image, looks_channels_first

require("gymnasium")

__all__ = ["KEYS", "RLeXploreReward"]

KEYS = ("observations", "actions", "rewards", "terminateds", "truncateds", "next_observations")
"""What samples consist of: tensors [n_steps, n_envs, ...]."""


class RLeXploreReward:
    """An intrinsic reward that is used like a reward module of RLeXplore.

    Attributes:
        global_step: how often `compute` was called.
        metrics: lists of [global_step, value] by name: "loss", "intrinsic_rewards" (their mean before scaling), and
            whatever else the method measures.

    Args:
        envs: vector environments: Gymnasium's, rllte's or those of Stable-Baselines3.
        device: where the predictor lives.
        beta: the weight of the rewards at first ...
        kappa: ... which falls by this share with every call of `compute`.
        gamma: with "rms", divide by the deviation of discounted sums instead of that of the rewards themselves.
        rwd_norm_type: "rms" divides rewards by their running deviation, "minmax" moves those of a call to [0, 1],
            "none" leaves them.
        obs_norm_type: "rms" normalises observations with their running mean and deviation, "none" leaves them; images
            of bytes (uint8) are then divided by 255.
        method: such as "icm+gmc", or an `IntrinsicReward` of your own.
        true_next_observations: whether `next_observations` are true also where an episode ended. If they are only the
            observations one step on, which belong to the next episode there, say False: such transitions are then
            left out. Under Gymnasium's NEXT_STEP mode the observations one step on are true, and it is the step after
            the end, which only begins the next episode, that is left out by itself.
        config: settings of the predictor and the scorer; None for the released ones, with the layout of images that
            their shape tells.
        seed: of the predictor's weights.

    Raises:
        MethodError: an argument has no meaning.
        EnvError: spaces that the predictor cannot handle, or images whose shape does not tell their layout.
    """

    def __init__(
        self,
        envs: Any,
        device: str | torch.device = "cpu",
        beta: float = 1.0,
        kappa: float = 0.0,
        gamma: float | None = None,
        rwd_norm_type: Literal["rms", "minmax", "none"] = "rms",
        obs_norm_type: Literal["rms", "none"] = "rms",
        *,
        method: str | Reward = "icm+gmc",
        true_next_observations: bool = True,
        config: IntrinsicConfig | None = None,
        seed: int = 0,
    ) -> None:
        if rwd_norm_type not in (known := ("rms", "minmax", "none")):
            raise MethodError(f"rwd_norm_type: expected one of {', '.join(known)}, got {rwd_norm_type!r}")
        if obs_norm_type not in ("rms", "none"):
            raise MethodError(f"obs_norm_type: expected one of rms, none, got {obs_norm_type!r}")
        check_number("beta", beta)
        check_number("kappa", kappa, "a number from 0 to 1")
        if not 0 <= kappa <= 1:
            raise MethodError(f"kappa: expected a number from 0 to 1, got {kappa}; the weight falls by this share")
        if gamma is not None and rwd_norm_type != "rms":
            raise MethodError(f"gamma: expected none with rwd_norm_type={rwd_norm_type!r}, got {gamma}; use 'rms'")
        single = "single_" if hasattr(envs, "single_observation_space") else ""
        self.observation_space = getattr(envs, f"{single}observation_space")
        self.action_space = getattr(envs, f"{single}action_space")
        self.n_envs = int(envs.num_envs)
        self.device = torch.device(device)
        self.beta, self.kappa = beta, kappa
        self.rwd_norm_type, self.obs_norm_type = rwd_norm_type, obs_norm_type
        self.true_next_observations = true_next_observations
        mode = (getattr(envs, "metadata", None) or {}).get("autoreset_mode")
        self._begins_with_a_step = getattr(mode, "name", None) == "NEXT_STEP"
        self._over = torch.zeros(self.n_envs, dtype=torch.bool, device=self.device)
        self.global_step = 0
        self.metrics: dict[str, list[list[float]]] = {"loss": [], "intrinsic_rewards": []}
        self.obs_norm: ObservationNormaliser | None = None
        if obs_norm_type == "rms":
            if type(self.observation_space).__name__ != "Box":
                raise EnvError(
                    f"expected a Box of observations to normalise, got {self.observation_space}; use "
                    f"obs_norm_type='none'"
                )
            self.obs_norm = ObservationNormaliser(tuple(self.observation_space.shape)).to(self.device)
        self.rwd_norm = RunningMoments() if rwd_norm_type == "rms" and gamma is None else None
        self.discounted = None if gamma is None else RewardNormaliser(self.n_envs, gamma, centre=False)
        settings = self._settings() if config is None and isinstance(method, str) else config
        self.reward = reward_of(method, (self.observation_space, self.action_space), settings, self.device, seed)
        if self.reward.is_episodic and not true_next_observations:
            raise MethodError(
                f"expected true_next_observations=True for {self.reward.name!r}, which looks at single episodes, got "
                f"False: their last steps are left out"
            )

    # What RLeXplore's modules have

    @property
    def weight(self) -> float:
        """The weight of the intrinsic rewards: beta (1 - kappa)^global_step."""
        return float(self.beta * (1 - self.kappa) ** self.global_step)

    def watch(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        terminateds: Tensor,
        truncateds: Tensor,
        next_observations: Tensor,
    ) -> None:
        """Take note of a step [n_envs, ...]. Episodes are followed in `compute` and `update`: only shapes are checked.

        Raises:
            MethodError: a shape is wrong.
        """
        given = (observations, actions, rewards, terminateds, truncateds, next_observations)
        for key, value in zip(KEYS, given, strict=True):
            self._check_shape(key, tuple(value.shape), (self.n_envs,))

    def compute(self, samples: Mapping[str, Tensor], sync: bool = True) -> Tensor:
        """The intrinsic rewards of a rollout, scaled and weighted.

        Args:
            samples: the six `KEYS`, each [n_steps, n_envs, ...]. Under NEXT_STEP they go on where those of the last
                training ended.
            sync: also train with the samples, as `update` does. Without it nothing changes but `global_step`:
                call `update` when it is time.

        Returns:
            [n_steps, n_envs], float32, on the device.

        Raises:
            MethodError: a key is missing or a shape is wrong.
        """
        self._check_samples(samples)
        self.global_step += 1
        raw, valid = self._rewards(samples, learn=sync)
        if valid.any():
            self.metrics["intrinsic_rewards"].append([self.global_step, float(raw[valid].double().mean())])
        return self._scaled(raw, valid)

    def update(self, samples: Mapping[str, Tensor]) -> None:
        """Train the predictor with samples, and take them into the running statistics.

        Args:
            samples: as for `compute`.

        Raises:
            MethodError: a key is missing or a shape is wrong.
        """
        self._check_samples(samples)
        self._rewards(samples, learn=True)

    def scale(self, rewards: Tensor) -> Tensor:
        """Rewards [n_steps, n_envs], normalised as `rwd_norm_type` says and multiplied by the weight.

        While nothing was learned from yet, "rms" divides by the deviation of these rewards.
        """
        return self._scaled(rewards, torch.ones_like(rewards, dtype=torch.bool))

    # State

    def state_dict(self) -> dict[str, Any]:
        """Everything that later rewards depend on."""
        return {
            "reward": self.reward.state_dict(),
            "global_step": self.global_step,
            "over": self._over,
            "metrics": {name: [list(pair) for pair in pairs] for name, pairs in self.metrics.items()},
            **{name: None if each is None else each.state_dict() for name, each in self._statistics().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            StateError: it is that of another method, or of other settings.
        """
        for name, own in self._statistics().items():
            if (own is None) != (state[name] is None):
                raise StateError(
                    f"expected a state {'without' if own is None else 'with'} {name}, got one "
                    f"{'with' if own is None else 'without'}; gamma and the two norm types must be as they were"
                )
        self.reward.load_state_dict(state["reward"])
        for name, own in self._statistics().items():
            if own is not None:
                own.load_state_dict(state[name])
        self.global_step = int(state["global_step"])
        over = state.get("over", self._over).to(self.device)
        self._over = over if len(over) == self.n_envs else torch.zeros_like(self._over)  # others have just begun
        self.metrics = {name: [list(pair) for pair in pairs] for name, pairs in state["metrics"].items()}

    # Parts

    def _statistics(self) -> dict[str, nn.Module | None]:
        return {"obs_norm": self.obs_norm, "rwd_norm": self.rwd_norm, "discounted": self.discounted}

    def _settings(self) -> IntrinsicConfig:
        """The default settings, but for the layout and the scale of images.

        Raises:
            EnvError: images whose shape does not tell where their channels are.
        """
        space = self.observation_space
        is_new = self.obs_norm is None  # once is enough
        config = IntrinsicConfig(rnd_normalise=is_new, normalise_observations=is_new)
        if not is_image(space):
            return config
        if self.obs_norm is None and space.dtype == "uint8":
            config = replace(config, observation_scale=1 / 255)
        first = looks_channels_first(space.shape)
        if first is None:
            raise EnvError(
                f"expected images whose shape tells where their channels are, got {list(space.shape)}; use "
                f"config=IntrinsicConfig(channels_first=..., observation_scale={config.observation_scale:.6g}, "
                f"rnd_normalise={config.rnd_normalise}) with True for [C, H, W] or False for [H, W, C]"
            )
        return replace(config, channels_first=first)

    def _rewards(self, samples: Mapping[str, Tensor], learn: bool) -> tuple[Tensor, Tensor]:
        """Raw rewards, and where there are any, [n_steps, n_envs] each; perhaps learn from the samples, too."""
        ended = (samples["terminateds"].bool() | samples["truncateds"].bool()).to(self.device)
        valid = torch.ones_like(ended) if self.true_next_observations else ~ended
        if self._begins_with_a_step:
            valid &= ~torch.cat([self._over[None], ended[:-1]])
        obs, actions, following = (
            samples[key].to(self.device).reshape(*valid.shape, *self._shape(key))
            for key in ("observations", "actions", "next_observations")
        )
        if learn and self.obs_norm is not None:
            self.obs_norm.update(obs.flatten(0, 1))
        raw = torch.zeros(valid.shape, device=self.device)
        if valid.any():
            batch = Transitions.of_rollout(valid, obs=obs, actions=actions, next_obs=following, ended=ended)
            if self.obs_norm is not None:
                now, later = batch.obs.float(), batch.next_obs.float()
                batch = replace(batch, obs=self.obs_norm(now, now), next_obs=self.obs_norm(later, now))
            if learn:
                result = self.reward.rewards_and_update(batch)
                raw[valid] = result.rewards
                for name, value in result.metrics.items():
                    key = "loss" if name == "predictor_loss" else name
                    self.metrics.setdefault(key, []).append([self.global_step, value])
            else:
                raw[valid] = self.reward.rewards(batch)
        if learn and len(valid):
            if self.rwd_norm is not None:
                self.rwd_norm.update(raw[valid].cpu())
            if self.discounted is not None:
                self.discounted.update(raw, valid)
            self._over = ended[-1]
        return raw, valid

    def _scaled(self, rewards: Tensor, valid: Tensor) -> Tensor:
        """See `scale`; where there is no valid transition, the reward is zero, and nothing counts."""
        counted = rewards[valid]
        if self.rwd_norm_type == "none" or not len(counted):
            scaled = rewards
        elif self.rwd_norm_type == "minmax":
            least, range_ = counted.min(), counted.max() - counted.min()
            scaled = (rewards - least) / torch.where(range_ > 0, range_, 1.0)
        else:
            moments = self.rwd_norm if self.discounted is None else self.discounted.moments
            assert moments is not None
            deviation = counted.double().std(correction=0) if moments.is_empty else moments.deviation
            scaled = rewards / torch.where(deviation > 0, deviation, 1.0).to(rewards)
        return torch.where(valid, scaled * self.weight, 0.0)

    def _shape(self, key: str) -> tuple[int, ...]:
        """The shape of one value."""
        if key in ("observations", "next_observations"):
            return tuple(self.observation_space.shape or ())
        return tuple(self.action_space.shape or ()) if key == "actions" else ()

    def _check_samples(self, samples: Mapping[str, Tensor]) -> None:
        """Check keys and shapes."""
        missing = [key for key in KEYS if key not in samples]
        if missing:
            raise MethodError(f"expected samples with the keys {', '.join(KEYS)}, got none of {', '.join(missing)}")
        steps = len(samples["observations"])
        for key in KEYS:
            if not isinstance(samples[key], Tensor):
                kind = type(samples[key]).__name__
                raise MethodError(f"{key}: expected a tensor, got {kind}; use torch.as_tensor")
            self._check_shape(key, tuple(samples[key].shape), (steps, self.n_envs))

    def _check_shape(self, key: str, found: tuple[int, ...], leading: tuple[int, ...]) -> None:
        wanted = leading + self._shape(key)
        if found != wanted and found != (*wanted, 1):  # discrete actions often have a last dimension of 1
            raise MethodError(f"{key}: expected shape {list(wanted)}, got {list(found)}")
