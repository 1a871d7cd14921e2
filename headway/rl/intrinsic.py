"""The settings of intrinsic rewards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headway.errors import MethodError


@dataclass(frozen=True, kw_only=True)
class IntrinsicConfig:
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

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            MethodError: a value has no meaning.
        """
        for name in ("features", "hidden", "epochs", "minibatches", "rnd_features"):
            if getattr(self, name) < 1:
                raise MethodError(f"{name}: expected at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "floor", "rnd_clip"):
            value = getattr(self, name)
            if not (value is None and name == "learning_rate") and not 0 < value < float("inf"):
                raise MethodError(f"{name}: expected a number above 0, got {getattr(self, name)}")
        for name in ("beta_m", "beta_v"):
            if not 0 <= getattr(self, name) < 1:
                raise MethodError(f"{name}: expected a decay rate in [0, 1), got {getattr(self, name)}")
        for name in ("icm_inverse_weight", "icm_forward_weight", "icm_forward_factor"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise MethodError(f"{name}: expected a number of at least 0, got {getattr(self, name)}")
        if self.encoder not in ("auto", "grid", "nature", "impala"):
            raise MethodError(f"encoder: expected one of auto, grid, nature, impala, got {self.encoder!r}")
        if self.floor_unit not in ("sample", "batch", "relative"):
            raise MethodError(f"floor_unit: expected 'sample', 'batch' or 'relative', got {self.floor_unit!r}")
        if not 0 < self.train_share <= 1:
            raise MethodError(f"train_share: expected a share above 0 and up to 1, got {self.train_share}")
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise MethodError(f"max_grad_norm: expected a number above 0 or none, got {self.max_grad_norm}")

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
