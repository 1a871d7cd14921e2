"""The protocol of the arena: every choice on which its numbers depend, and what its rooms are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from headway.rl.config import IntrinsicConfig, PPOConfig
from headway.study.protocols.fields import Fields, whole_rollouts

TELEVISIONS: Mapping[str, str] = {
    "house-none": "House, no television",
    "house-button": "House, button",
    "house-remote": "House, remote control",
    "house-sticky": "House, sticky noise",
    "house-slow": "House, slow noise",
    "house-digits": "House, digits",
    "house-door": "House, noise on the way",
    "house-dynamics": "House, random moves",
}
"""Titles of the television rooms."""
_TASKS = {
    **{f"doorkey-{size}": f"DoorKey {size}x{size}" for size in (5, 6, 7, 8)},
    "keycorridor": "KeyCorridor S3R1",
    "multiroom": "MultiRoom N4-S5",
    "chain": "Chain",
    "pointmass": "Point mass",
    "pendulum": "Pendulum",
}
EXPLORATION: Mapping[str, str] = {
    name + end: text + more for name, text in _TASKS.items() for end, more in (("", ""), ("-tv", ", television"))
}
"""Titles of the exploration rooms, each without and with a television."""
ROOMS: Mapping[str, str] = {**TELEVISIONS, **EXPLORATION}
"""Titles of all rooms."""
METHODS = tuple(
    """
    ppo forward forward+gmc icm icm+gmc rnd rnd+gmc counts disagreement disagreement+gmc noveld ride ngu e3b re3
    multistep multistep+gmc vime dropout gain iac
    """.split()  # noqa: SIM905 - a list of names reads better as a text
)
"""The methods of the whole arena."""


@dataclass(frozen=True, kw_only=True)
class ArenaProtocol(Fields):
    """The choices of a run in the arena.

    A bonus b is calibrated by an agent that acts at random, with a bonus of its own that is thrown away after it: f is
    1 over the mean of abs(b) in the second half of `calibration_rollouts`. The agent then earns

        reward of the room + intrinsic_scale * (f b - mean of f b over the rollout)

    so that all bonuses have the same mean size at first and differ in where they are high; none rewards staying alive.
    """

    experiment = "arena"
    parts: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "ppo": {},
        "reward": {
            **{name: f"predictor_{name}" for name in ("hidden", "learning_rate", "epochs", "minibatches")},
            "max_grad_norm": "reward_max_grad_norm",
            "beta_m": "beta",
        },
    }
    order = """
        num_envs steps calibration_rollouts re3_capacity rollout_steps network hidden initialisation
        policy_learning_rate value_learning_rate gamma gae_lambda clip entropy_weight max_grad_norm epochs
        minibatch_size extrinsic_scale intrinsic_scale features predictor_hidden predictor_learning_rate
        predictor_epochs predictor_minibatches rnd_features beta beta_v floor floor_unit
    """

    num_envs: int = 64
    """Rooms that are stepped together."""
    steps: int = 100_000
    """Length of a run in steps of all rooms, rounded up to whole rollouts."""
    calibration_rollouts: int = 8
    """Rollouts of random actions that the size of a bonus is taken from; they do not count as steps."""
    re3_capacity: int = 2048
    """States that RE3 stores, which decides what it costs."""
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(
            rollout_steps=32,
            extrinsic_scale=10.0,
            network="mlp",
            hidden=(64, 64),
            initialisation="orthogonal",
            policy_learning_rate=1e-3,
            minibatch_size=512,
            intrinsic_scale=0.1,
            normalise_intrinsic=False,
            centre_intrinsic=False,
        )
    )
    """The agent: networks of two layers of 64 for the policy and for the values."""
    reward: IntrinsicConfig = field(
        default_factory=lambda: IntrinsicConfig(
            features=16, hidden=64, rnd_features=32, learning_rate=3e-3, epochs=4, minibatches=8
        )
    )
    """Predictors: layers of 64, features of 16 numbers, random networks with 32 outputs; 32 steps per rollout."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        self._check(("num_envs", "steps", "re3_capacity"), lambda value: value >= 1, "at least 1")
        self._check(("calibration_rollouts",), lambda value: value >= 2, "at least 2")

    @classmethod
    def presets(cls) -> dict[str, Callable[[], ArenaProtocol]]:
        """What makes each preset, by its name."""
        return {"standard": cls, "long": lambda: cls(steps=200_000)}

    def steps_for(self, steps: int | None = None) -> int:
        """The length of a run: `steps`, or the protocol's, rounded up to whole rollouts."""
        return whole_rollouts(steps or self.steps, self.num_envs, self.ppo.rollout_steps)
