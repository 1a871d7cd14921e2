"""Protocols of exploration: every choice on which the numbers of the DoorKey experiment depend.

As in the controlled study's, each detail in which the paper's text and its authors' released code differ, or that the
text leaves open, is a field. `fast` and `quick` are the released choices with more environments and in small.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headway.errors import MethodError, ProtocolError
from headway.rl.config import PPOConfig
from headway.rl.intrinsic import IntrinsicConfig
from headway.study.protocols.fields import Fields


@dataclass(frozen=True, kw_only=True)
class ExplorationProtocol(Fields):
    """The choices of an exploration run. The defaults are those of the paper's text, or common practice.

    A field that is added here needs an entry in `headway.runs.later`, so that the runs before it keep their ids.
    """

    experiment = "doorkey"

    # Environment
    env_id: str = "MiniGrid-DoorKey-8x8-v0"
    """Where the agent is, unless a run says otherwise."""
    backend: Literal["vector", "minigrid"] = "vector"
    """Arrays, or Farama's own environments: the same rules, other layouts for the same seed."""
    view: Literal["full", "partial"] = "full"
    """The whole grid, or what the agent sees (with the backend "minigrid")."""
    noise_channel: Literal["always", "with-noise"] = "with-noise"
    """When observations have a fourth channel; it is zero where there is no noise."""
    observation_scale: float = 1.0
    """A factor on the codes of the grid; 1 takes them as they are."""
    num_envs: int = 1
    """Environments that are stepped together."""
    rollout_steps: int = 2048
    """Steps in each of them between two updates."""
    steps: int = 3_000_000
    """Length of a run in steps of all environments, rounded up to whole rollouts, unless a run says otherwise."""
    truncation: Literal["bootstrap", "terminate"] = "bootstrap"
    """What follows an episode that ran out of time: the value of its last observation, or nothing."""

    # Networks of the agent
    networks: Literal["separate"] = "separate"
    """Policy and values have a network each."""
    network: Literal["auto", "cnn", "mlp"] = "cnn"
    """Convolutions and then layers, or layers alone."""
    channels: tuple[int, ...] = (32, 64, 64)
    """Outputs of the convolutions (3x3, padding 1, ReLU)."""
    hidden: tuple[int, ...] = (128,)
    """Widths of the layers before the output (ReLU)."""
    initialisation: Literal["uniform", "orthogonal"] = "uniform"
    """torch's usual one, or orthogonal weights with a policy that starts almost uniform."""

    # PPO
    policy_learning_rate: float = 3e-4
    """Of the policy's Adam."""
    value_learning_rate: float = 1e-3
    """Of the value network's Adam."""
    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.95
    """Weight of later steps in the advantages."""
    clip: float = 0.2
    """The probability ratio counts within 1 - clip and 1 + clip."""
    value_clip: float | None = None
    """Values count within this distance of the old ones; none for all."""
    entropy_weight: float = 0.01
    """How strongly the policy is kept random."""
    max_grad_norm: float | None = 0.5
    """The gradients of the policy and of the value network are each cut to this length."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatch_size: int = 256
    """Transitions per step."""
    normalise_advantages: Literal["rollout", "minibatch", "none"] = "rollout"
    """Over what advantages get mean 0 and deviation 1."""

    # Rewards
    extrinsic_scale: float = 10.0
    """A factor on the rewards of the environment."""
    intrinsic_scale: float = 0.02
    """A factor on the intrinsic rewards; both are added before the advantages are estimated."""
    normalise_intrinsic: bool = False
    """Divide intrinsic rewards by the running deviation of their discounted sums, before the factor."""
    value_heads: Literal[1, 2] = 1
    """Values of the sum of both rewards, or of each apart."""
    intrinsic_gamma: float = 0.99
    """Discount of intrinsic rewards, with two heads."""
    intrinsic_episodic: bool = True
    """Intrinsic returns end with the episode, with two heads."""

    # Predictors
    predictor_hidden: int = 256
    """Width of their hidden layers."""
    predictor_learning_rate: float = 1e-4
    """Of their Adam."""
    predictor_max_grad_norm: float | None = 0.5
    """Their gradient is cut to this length."""
    predictor_epochs: int = 1
    """Passes over a rollout in each update ..."""
    predictor_minibatches: int = 1
    """... in so many parts. One pass in one part is one step, after the reward is read from the same pass."""
    icm_features: int = 64
    """ICM: features of an observation."""
    icm_hidden_layer: bool = False
    """ICM: a layer of 128 between the convolutions and the features; the released encoder has none."""
    icm_inverse_weight: float = 0.8
    """ICM: weight of the inverse loss."""
    icm_forward_weight: float = 0.2
    """ICM: weight of the forward loss."""
    icm_forward_factor: float = 0.5
    """ICM: the forward loss, which is also the reward, is this times the mean squared error."""
    icm_scored_loss: Literal["mean-squared-error"] = "mean-squared-error"
    """ICM+GMC: the loss whose gradients are scored, on features without a graph: without that factor."""
    rnd_features: int = 512
    """RND: outputs of the random network."""

    # GMC
    beta: float = 0.99
    """Decay rate of both moments, per rollout ..."""
    beta_v: float | None = None
    """... and of the second one, if it has a rate of its own."""
    floor: float = 1e-8
    """The least value of the second moment."""
    floor_unit: Literal["sample", "batch", "relative"] = "sample"
    """What the floor is compared with: a sample's own squared gradient, that of its share 1/B in the batch mean, or the
    mean of the second moment over all parameters."""
    bias_correction: bool = False
    """Divide both moments by 1 - beta^t."""

    # Evaluation
    return_window: int = 10
    """Episodes over which the logged return is averaged; more than there are environments, which end in step."""
    curve_block: int = 1
    """Curves are averaged in blocks of this many rollouts."""
    interval_ddof: Literal[0, 1] = 1
    """The deviation behind a confidence interval: of the population (0), or of a sample (1)."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ProtocolError: a value has no meaning.
        """
        for name in ("num_envs", "steps", "return_window", "curve_block"):
            if getattr(self, name) < 1:
                raise ProtocolError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.view == "partial" and self.backend == "vector":
            raise ProtocolError("view: expected full with backend=vector, got partial; set backend=minigrid")
        try:
            self.ppo()
            self.intrinsic()
        except MethodError as error:
            raise ProtocolError(str(error)) from error

    @classmethod
    def paper(cls) -> ExplorationProtocol:
        """The choices of the paper's text."""
        return cls()

    @classmethod
    def released(cls) -> ExplorationProtocol:
        """The choices of the authors' released code, which made the published figures."""
        return cls(
            noise_channel="always",
            truncation="terminate",
            floor_unit="batch",
            bias_correction=True,
            curve_block=10,
            interval_ddof=0,
        )

    @classmethod
    def fast(cls) -> ExplorationProtocol:
        """The released choices with 16 environments; a rollout has as many steps as before."""
        return dataclasses.replace(cls.released(), num_envs=16, rollout_steps=128, return_window=32)

    @classmethod
    def quick(cls) -> ExplorationProtocol:
        """A small grid and small networks that solve it in a minute or two."""
        return dataclasses.replace(
            cls.released(),
            env_id="MiniGrid-DoorKey-5x5-v0",
            num_envs=32,
            rollout_steps=64,
            return_window=64,
            steps=200_000,
            channels=(16, 32),
            hidden=(64,),
            initialisation="orthogonal",
            policy_learning_rate=1e-3,
            curve_block=1,
        )

    @classmethod
    def presets(cls) -> dict[str, Callable[[], ExplorationProtocol]]:
        """What makes each preset, by its name."""
        return {"released": cls.released, "paper": cls.paper, "fast": cls.fast, "quick": cls.quick}

    def steps_for(self, steps: int | None = None) -> int:
        """The length of a run: `steps`, or the protocol's, rounded up to whole rollouts."""
        rollout = self.num_envs * self.rollout_steps
        return -(-(steps or self.steps) // rollout) * rollout

    def ppo(self) -> PPOConfig:
        """The settings of PPO; grids have their channels last."""
        names = {field.name for field in dataclasses.fields(PPOConfig)} & self.to_dict().keys()
        return PPOConfig(channels_first=False, centre_intrinsic=False, **{name: getattr(self, name) for name in names})

    def intrinsic(self) -> IntrinsicConfig:
        """The settings of predictors and scorers."""
        return IntrinsicConfig(
            features=self.icm_features,
            icm_hidden_layer=self.icm_hidden_layer,
            hidden=self.predictor_hidden,
            observation_scale=self.observation_scale,
            normalise_observations=False,
            learning_rate=self.predictor_learning_rate,
            max_grad_norm=self.predictor_max_grad_norm,
            epochs=self.predictor_epochs,
            minibatches=self.predictor_minibatches,
            beta_m=self.beta,
            beta_v=self.beta if self.beta_v is None else self.beta_v,
            floor=self.floor,
            floor_unit=self.floor_unit,
            bias_correction=self.bias_correction,
            icm_inverse_weight=self.icm_inverse_weight,
            icm_forward_weight=self.icm_forward_weight,
            icm_forward_factor=self.icm_forward_factor,
            rnd_features=self.rnd_features,
        )
