"""The settings of PPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headway.errors import MethodError


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """How an agent acts, is rewarded and learns.

    The defaults are those of the GMC paper's hyper-parameter table and, where it is silent, common practice; but its
    intrinsic rewards, which reward staying alive, are centred and normalised. `headway.rl.presets` has the constants
    of papers. A rollout has `rollout_steps` steps in each of N environments; the number of environments is that of the
    environment that the agent is given.
    """

    # Rollouts
    rollout_steps: int = 2048
    """Steps in each environment between two updates."""
    truncation: Literal["bootstrap", "terminate"] = "bootstrap"
    """What follows a cut-off episode: the value of its last observation, or nothing, as after a real end."""

    # Rewards
    extrinsic_scale: float = 1.0
    """A factor on the rewards of the environment."""
    intrinsic_scale: float = 0.05
    """A factor on the intrinsic rewards: once centred and normalised, the return of one deviation more at each step."""
    normalise_intrinsic: bool = True
    """Bring intrinsic rewards to the scale of `RewardNormaliser`, before the factor."""
    centre_intrinsic: bool = True
    """Take their mean off before: being alive alone is then worth nothing."""
    warm_up_steps: int = 0
    """Steps of random actions in each environment before the first rollout, from which a predictor takes its statistics
    of observations; they do not count as steps."""
    value_heads: Literal[1, 2] = 1
    """Values of the sum of both rewards, or of each apart: two heads of one network, whose advantages are added."""
    intrinsic_gamma: float = 0.99
    """Discount of intrinsic rewards, with two heads."""
    intrinsic_episodic: bool = True
    """Intrinsic returns end with the episode, with two heads; otherwise they go on into the next one."""

    # Advantages
    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.95
    """Weight of later steps in generalised advantage estimation."""
    normalise_advantages: Literal["rollout", "minibatch", "none"] = "rollout"
    """Over what advantages get mean 0 and deviation 1."""

    # Updates
    epochs: int = 4
    """Passes over a rollout."""
    minibatch_size: int = 256
    """Transitions per step; the last minibatch of a pass may be smaller."""
    clip: float = 0.2
    """The probability ratio counts within 1 - clip and 1 + clip."""
    value_clip: float | None = None
    """Values count within this distance of the old ones; none for all."""
    entropy_weight: float = 0.01
    """How strongly the policy is kept random."""
    policy_learning_rate: float = 3e-4
    """Of the policy's Adam."""
    value_learning_rate: float = 1e-3
    """Of the value network's Adam."""
    adam_epsilon: float = 1e-8
    """Of both."""
    max_grad_norm: float | None = 0.5
    """The gradients of the policy and of the value network are each cut to this length; none for as they are."""

    # Networks: one for the policy and one for the values, alike but for their outputs
    network: Literal["auto", "cnn", "mlp", "nature", "impala"] = "auto"
    """Convolutions and then layers, or layers alone; "auto" takes convolutions for images. "nature" (DQN's) and
    "impala" have convolutions and a last layer of their own, for pixels. Observations of several parts (Dict) have
    an encoder for each part, of the last width of `hidden`."""
    channels_first: bool | None = None
    """Images are [C, H, W] instead of [H, W, C]. None takes [H, W, C], and refuses images that look like the other."""
    channels: tuple[int, ...] = (32, 64, 64)
    """Outputs of the convolutions (3x3, padding 1, ReLU)."""
    hidden: tuple[int, ...] = (128,)
    """Widths of the layers before the output (ReLU)."""
    observation_scale: float = 1.0
    """A factor on the observations; grids are taken as they are."""
    initialisation: Literal["uniform", "orthogonal"] = "uniform"
    """torch's usual one, or orthogonal weights with a policy that starts almost uniform."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            MethodError: a value has no meaning.
        """
        for name in ("rollout_steps", "epochs", "minibatch_size"):
            if getattr(self, name) < 1:
                raise MethodError(f"{name}: expected at least 1, got {getattr(self, name)}")
        for name in ("policy_learning_rate", "value_learning_rate", "adam_epsilon", "clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise MethodError(f"{name}: expected a number above 0, got {getattr(self, name)}")
        for name in ("value_clip", "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise MethodError(f"{name}: expected a number above 0 or none, got {value}")
        for name in ("gamma", "gae_lambda", "intrinsic_gamma"):
            if not 0 <= getattr(self, name) <= 1:
                raise MethodError(f"{name}: expected a number in [0, 1], got {getattr(self, name)}")
        for name in ("extrinsic_scale", "intrinsic_scale", "entropy_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise MethodError(f"{name}: expected a number of at least 0, got {getattr(self, name)}")
        for name in ("channels", "hidden"):
            if any(width < 1 for width in getattr(self, name)):
                raise MethodError(f"{name}: expected widths of at least 1, got {getattr(self, name)}")
        if self.warm_up_steps < 0:
            raise MethodError(f"warm_up_steps: expected a number of at least 0, got {self.warm_up_steps}")
        if self.value_heads not in (1, 2):
            raise MethodError(f"value_heads: expected 1 or 2, got {self.value_heads}")
        self._check_names()

    def _check_names(self) -> None:
        known = {
            "truncation": ("bootstrap", "terminate"),
            "normalise_advantages": ("rollout", "minibatch", "none"),
            "network": ("auto", "cnn", "mlp", "nature", "impala"),
            "initialisation": ("uniform", "orthogonal"),
        }
        for name, names in known.items():
            if getattr(self, name) not in names:
                raise MethodError(f"{name}: expected one of {', '.join(names)}, got {getattr(self, name)!r}")
