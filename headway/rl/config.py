"""The settings of PPO and of intrinsic rewards, and agents with the constants of a paper."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from headway.errors import MethodError, check_known

if TYPE_CHECKING:
    import torch

    from headway.rl.ppo import PPO


_Range = tuple[str, Callable[[Any], bool]]
_COUNT: _Range = "at least 1", lambda value: value >= 1
_POSITIVE: _Range = "a number above 0", lambda value: 0 < value < math.inf
_WEIGHT: _Range = "a number of at least 0", lambda value: 0 <= value < math.inf
_LIMIT: _Range = "a number above 0 or none", lambda value: value is None or value > 0
_DISCOUNT: _Range = "a number in [0, 1]", lambda value: 0 <= value <= 1
_WIDTHS: _Range = "widths of at least 1", lambda widths: all(width >= 1 for width in widths)


class _Checked:
    """Settings that are checked when they are made.

    Attributes:
        ranges: what values have to be, by the names of fields.
    """

    ranges: ClassVar[Mapping[str, _Range]]

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            MethodError: one has no meaning.
        """
        ranges = {name: each for names, each in self.ranges.items() for name in names.split()}
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal:
                choices = get_args(hint)
                ranges[name] = f"one of {', '.join(map(str, choices))}", choices.__contains__
        for name, (expected, is_valid) in ranges.items():
            if not is_valid(getattr(self, name)):
                raise MethodError(f"{name}: expected {expected}, got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class PPOConfig(_Checked):
    """How an agent acts, is rewarded and learns.

    The defaults are those of the GMC paper's hyper-parameter table and, where it is silent, common practice; but its
    intrinsic rewards, which reward staying alive, are centred and normalised. `headway.rl.PRESETS` has the constants
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

    ranges: ClassVar[Mapping[str, _Range]] = {
        "rollout_steps epochs minibatch_size": _COUNT,
        "policy_learning_rate value_learning_rate adam_epsilon clip": _POSITIVE,
        "value_clip max_grad_norm": _LIMIT,
        "gamma gae_lambda intrinsic_gamma": _DISCOUNT,
        "extrinsic_scale intrinsic_scale entropy_weight": _WEIGHT,
        "warm_up_steps": ("a number of at least 0", lambda value: value >= 0),
        "channels hidden": _WIDTHS,
    }


@dataclass(frozen=True, kw_only=True)
class IntrinsicConfig(_Checked):
    """How predictors are made and trained, and how scorers look at them.

    The defaults are for use: predictors see normalised observations and take several steps per rollout. `released` and
    `paper` are the choices of the GMC paper, whose predictors take a single step per rollout.
    """

    # Networks
    features: int = 64
    """ICM: the number of features of an observation."""
    hidden: int = 256
    """Width of hidden layers."""
    encoder: Literal["auto", "grid", "nature", "impala"] = "auto"
    """Convolutions of ICM and RND: those of the GMC paper for grids, those of DQN (Nature, 2015), or IMPALA's residual
    ones. "auto" takes "grid" up to 24 cells a side, and else "nature"."""
    observation_scale: float = 1.0
    """A factor on the observations, such as 1/255 for pixels; grids are taken as they are."""
    channels_first: bool = False
    """Images are [C, H, W] instead of [H, W, C]."""
    normalise_observations: bool = True
    """ICM and forward models see observations normalised with their running mean and deviation, as RND does."""

    # Training
    learning_rate: float | None = None
    """Of Adam; none for the predictor's own: 5e-4 for forward models and ICM, 1e-4 for RND."""
    max_grad_norm: float | None = 0.5
    """The gradient of the predictor is cut to this length; none for as it is."""
    epochs: int = 2
    """Passes over the transitions in each update ..."""
    minibatches: int = 8
    """... in so many parts, shuffled. One pass in one part is one step, which shares its work with the scoring."""
    train_share: float = 1.0
    """The share of the transitions that each update learns from, drawn at random; all of them are scored."""

    # GMC and other signals with moments
    beta_m: float = 0.99
    """Decay rate of the first moment, per training step."""
    beta_v: float = 0.99
    """Decay rate of the second moment."""
    floor: float = 0.1
    """The least value of the second moment."""
    floor_unit: Literal["sample", "batch", "relative"] = "relative"
    """What the floor is compared with: a sample's own squared gradient, that of its share 1/B in the batch mean, or the
    mean of the second moment over all parameters."""
    bias_correction: bool = True
    """Divide both moments by 1 - beta^t."""

    # ICM
    icm_hidden_layer: bool = False
    """A layer between the convolutions of the encoder and the features; the released encoder has none."""
    icm_inverse_weight: float = 0.8
    """Weight of the inverse loss."""
    icm_forward_weight: float = 0.2
    """Weight of the forward loss."""
    icm_forward_factor: float = 0.5
    """The forward loss, and the reward of the scorer "error", is this times the mean squared error."""

    # RND
    rnd_features: int = 512
    """Outputs of the random network, and the width of the predictor's last layers."""
    rnd_normalise: bool = True
    """Normalise observations with their running mean and deviation."""
    rnd_clip: float = 5.0
    """Normalised observations are kept within this distance of zero."""

    ranges: ClassVar[Mapping[str, _Range]] = {
        "features hidden epochs minibatches rnd_features": _COUNT,
        "floor rnd_clip": _POSITIVE,
        "learning_rate": ("a number above 0", lambda value: value is None or 0 < value < math.inf),
        "beta_m beta_v": ("a decay rate in [0, 1)", lambda value: 0 <= value < 1),
        "icm_inverse_weight icm_forward_weight icm_forward_factor": _WEIGHT,
        "train_share": ("a share above 0 and up to 1", lambda value: 0 < value <= 1),
        "max_grad_norm": _LIMIT,
    }

    @classmethod
    def released(cls) -> IntrinsicConfig:
        """The choices of the authors' released code: one step of Adam per rollout, on observations as they are."""
        return cls(
            normalise_observations=False,
            learning_rate=1e-4,
            epochs=1,
            minibatches=1,
            floor=1e-8,
            floor_unit="batch",
        )

    @classmethod
    def paper(cls) -> IntrinsicConfig:
        """The choices of the paper's text: the floor in a sample's own unit, no bias correction."""
        return dataclasses.replace(cls.released(), floor_unit="sample", bias_correction=False)

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as JSON can hold them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IntrinsicConfig:
        """A configuration from what `to_dict` gave; missing fields have their defaults.

        Raises:
            MethodError: there is no such field.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(names))
        if unknown:
            raise MethodError(f"expected fields out of {', '.join(names)}, got {', '.join(unknown)}")
        return cls(**values)


@dataclass(frozen=True)
class Preset:
    """A method with all its constants.

    Attributes:
        method: what is predicted and how it is scored.
        ppo: the agent, and how it mixes the two rewards.
        intrinsic: the predictor and the scorer.
        num_envs: the environments that the constants are meant for.
    """

    method: str
    ppo: PPOConfig
    intrinsic: IntrinsicConfig
    num_envs: int

    def make(self, env: Any, *, seed: int = 0, device: str | torch.device = "cpu", **options: Any) -> PPO:
        """The agent in a Gymnasium vector environment; `options` are others of `PPO`."""
        from headway.rl.methods import make_reward  # here, since settings are read without torch
        from headway.rl.ppo import PPO

        spaces = env.single_observation_space, env.single_action_space
        reward = make_reward(self.method, *spaces, self.intrinsic, device, seed)
        return PPO(env, self.ppo, reward, seed=seed, device=device, **options)


PAPER_PPO = PPOConfig(extrinsic_scale=10.0, intrinsic_scale=0.02, normalise_intrinsic=False, centre_intrinsic=False)
"""The agent of the GMC paper."""

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        # The GMC paper: its text, and its authors' released code.
        "gmc": Preset("icm+gmc", PAPER_PPO, IntrinsicConfig.paper(), 1),
        "released": Preset(
            "icm+gmc", dataclasses.replace(PAPER_PPO, truncation="terminate"), IntrinsicConfig.released(), 1
        ),
        # Y. Burda et al., Exploration by Random Network Distillation (2018), and its code.
        "rnd-burda": Preset(
            "rnd",
            PPOConfig(
                rollout_steps=128,
                extrinsic_scale=2.0,
                intrinsic_scale=1.0,
                centre_intrinsic=False,  # its value does not end with the episode: staying alive gains nothing
                warm_up_steps=128 * 50,
                value_heads=2,
                gamma=0.999,
                intrinsic_gamma=0.99,
                intrinsic_episodic=False,
                epochs=4,
                minibatch_size=1024,  # a quarter of a rollout in 32 environments
                clip=0.1,
                entropy_weight=0.001,
                policy_learning_rate=1e-4,
                value_learning_rate=1e-4,
                max_grad_norm=None,
                initialisation="orthogonal",
            ),
            IntrinsicConfig(learning_rate=1e-4, epochs=4, minibatches=4, max_grad_norm=None),
            32,
        ),
        # D. Pathak et al., Curiosity-driven Exploration by Self-supervised Prediction (2017), and its code, with PPO in
        # place of A3C. Losses and rewards are half the sum over 288 features of the squared error.
        "icm-pathak": Preset(
            "icm",
            PPOConfig(
                rollout_steps=20,
                intrinsic_scale=0.01,
                normalise_intrinsic=False,
                centre_intrinsic=False,
                gae_lambda=1.0,
                policy_learning_rate=1e-4,
                value_learning_rate=1e-4,
                max_grad_norm=40.0,
            ),
            IntrinsicConfig(
                features=288,
                normalise_observations=False,
                learning_rate=1e-3,
                max_grad_norm=40.0,
                epochs=1,
                minibatches=1,
                icm_forward_factor=0.5 * 288,
            ),
            20,
        ),
    }
)
"""By name."""


def preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        MethodError: there is none; the message lists them.
    """
    check_known("a preset", [name], PRESETS, MethodError)
    return PRESETS[name]
