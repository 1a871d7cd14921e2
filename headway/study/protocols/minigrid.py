"""Protocols of exploration: every choice on which the numbers of the DoorKey experiment depend.

As in the controlled study's, each detail in which the paper's text and its authors' released code differ, or that the
text leaves open, is a field. `fast` and `quick` are the released choices with more environments and in small.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from headway.errors import MethodError, ProtocolError
from headway.rl.config import IntrinsicConfig, PPOConfig
from headway.study.protocols.fields import Fields, whole_rollouts


@dataclass(frozen=True, kw_only=True)
class ExplorationProtocol(Fields):
    """The choices of an exploration run. The defaults are those of the paper's text, or common practice.

    The settings of the agent and of intrinsic rewards are those of `PPOConfig` and `IntrinsicConfig`. A field that is
    added here needs an entry in `headway.runs.spec`, so that the runs before it keep their ids; one that is added to
    those two enters a spec where it does not have its default.
    """

    experiment = "doorkey"

    parts: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "ppo": {},
        "reward": {
            **{name: f"predictor_{name}" for name in ("hidden", "learning_rate", "epochs", "minibatches")},
            "max_grad_norm": "predictor_max_grad_norm",
            "features": "icm_features",
            "beta_m": "beta",
        },
    }
    derived = ("beta_v",)
    order = """
        env_id backend view noise_channel observation_scale num_envs rollout_steps steps truncation networks network
        channels hidden initialisation policy_learning_rate value_learning_rate gamma gae_lambda clip value_clip
        entropy_weight max_grad_norm epochs minibatch_size normalise_advantages extrinsic_scale intrinsic_scale
        normalise_intrinsic value_heads intrinsic_gamma intrinsic_episodic predictor_hidden predictor_learning_rate
        predictor_max_grad_norm predictor_epochs predictor_minibatches icm_features icm_hidden_layer
        icm_inverse_weight icm_forward_weight icm_forward_factor icm_scored_loss rnd_features beta beta_v floor
        floor_unit bias_correction return_window curve_block interval_ddof
    """

    env_id: str = "MiniGrid-DoorKey-8x8-v0"
    """Where the agent is, unless a run says otherwise."""
    backend: Literal["vector", "minigrid"] = "vector"
    """Arrays, or Farama's own environments: the same rules, other layouts for the same seed."""
    view: Literal["full", "partial"] = "full"
    """The whole grid, or what the agent sees (with the backend "minigrid")."""
    noise_channel: Literal["always", "with-noise"] = "with-noise"
    """When observations have a fourth channel; it is zero where there is no noise."""
    num_envs: int = 1
    """Environments that are stepped together."""
    steps: int = 3_000_000
    """Length of a run in steps of all environments, rounded up to whole rollouts, unless a run says otherwise."""
    networks: Literal["separate"] = "separate"
    """Policy and values have a network each."""
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(
            channels_first=False,  # grids have their channels last
            network="cnn",
            extrinsic_scale=10.0,
            intrinsic_scale=0.02,
            normalise_intrinsic=False,
            centre_intrinsic=False,
        )
    )
    """How the agent acts, is rewarded and learns."""
    reward: IntrinsicConfig = field(default_factory=IntrinsicConfig.paper)
    """How predictors are made and trained, and how scorers look at them."""
    beta_v: float | None = None
    """Decay rate of the second moment of GMC, if not that of the first (`beta`)."""
    icm_scored_loss: Literal["mean-squared-error"] = "mean-squared-error"
    """ICM+GMC: the loss whose gradients are scored, on features without a graph: without `icm_forward_factor`."""
    return_window: int = 10
    """Episodes over which the logged return is averaged; more than there are environments, which end in step."""
    curve_block: int = 1
    """Curves are averaged in blocks of this many rollouts."""
    interval_ddof: Literal[0, 1] = 1
    """The deviation behind a confidence interval: of the population (0), or of a sample (1)."""

    def __post_init__(self) -> None:
        """Check the ranges, and complete the settings of rewards."""
        lengths = ("num_envs", "steps", "return_window", "curve_block")
        self._check(lengths, lambda value: value >= 1, "at least 1")
        if self.view == "partial" and self.backend == "vector":
            raise ProtocolError("view: expected full with backend=vector, got partial; set backend=minigrid")
        second = self.reward.beta_m if self.beta_v is None else self.beta_v
        try:
            object.__setattr__(self, "reward", dataclasses.replace(self.reward, beta_v=second))
        except MethodError as error:
            raise ProtocolError(str(error)) from error

    @classmethod
    def paper(cls) -> ExplorationProtocol:
        """The choices of the paper's text."""
        return cls()

    @classmethod
    def released(cls) -> ExplorationProtocol:
        """The choices of the authors' released code, which made the published figures."""
        return cls().replaced(
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
        return cls.released().replaced(num_envs=16, rollout_steps=128, return_window=32)

    @classmethod
    def quick(cls) -> ExplorationProtocol:
        """A small grid and small networks that solve it in a minute or two."""
        return cls.released().replaced(
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
        return whole_rollouts(steps or self.steps, self.num_envs, self.ppo.rollout_steps)
