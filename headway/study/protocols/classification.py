"""Protocols: every choice on which the numbers of the controlled study depend.

The paper's text and its authors' released code differ in many details, and the published figures come from the
code. Each detail is a field here; `Protocol.paper()` follows the text and `Protocol.released()` the code. Nothing
else in the package asks which of the two is meant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

from headway.errors import ProtocolError
from headway.study.protocols.fields import Fields


@dataclass(frozen=True, kw_only=True)
class Protocol(Fields):
    """The choices of a controlled run. The defaults are those of the paper's text.

    A field that is added here needs an entry in `headway.runs.spec`, so that the runs before it keep their ids.
    """

    experiment = "controlled"

    # GMC and its variants
    beta: float = 0.999
    """Decay rate of both moments ..."""
    beta_v: float | None = None
    """... and of the second one, if it has a rate of its own."""
    floor: float = 1e-8
    """The least value of the second moment."""
    gate_level: float | None = None
    """Noise-gated GMC: how far a momentum must stand out of the noise; none for the usual level of the gate."""
    floor_unit: Literal["sample", "batch", "relative"] = "sample"
    """What the floor is compared with: a sample's own squared gradient, that of its share 1/B in the batch mean, or the
    mean of the second moment over all parameters."""
    bias_correction: bool = False
    """Divide both moments by 1 - beta^t."""
    scored: Literal["before-update"] = "before-update"
    """A batch is scored with the moments of the batches before it."""
    dot_over: Literal["all", "tensor"] = "all"
    """Dot Product: sum over all parameters before the absolute value, or over each tensor."""
    dot_scale: float = 1.0
    """Dot Product: factor on the score."""
    cosine_over: Literal["all", "tensor"] = "all"
    """Cosine: one angle over all parameters, or one for each tensor."""
    cosine_against: Literal["m", "m/v"] = "m"
    """Cosine: the direction to compare with."""
    cosine_scale: float = 1.0
    """Cosine: factor on the score."""

    # Baselines
    norm: Literal["l1", "l2-squared"] = "l1"
    """NormAll and NormLast: which norm."""
    norm_unit: Literal["sample", "batch"] = "sample"
    """NormAll and NormLast: of a sample's own gradient, or of its share 1/B."""
    norm_all_scale: float = 0.0011
    """NormAll: factor on the score. The paper's are not known: `benchmarks/calibrate.py` derives this one ..."""
    norm_last_part: Literal["layer", "bias"] = "layer"
    """NormLast: the whole last layer, or its bias."""
    norm_last_scale: float = 0.011
    """NormLast: factor on the score; ... this one ..."""
    delta_window: int | None = 1000
    """DeltaLoss: samples in the rolling window, or none to compare epochs."""
    delta_absolute: bool = False
    """DeltaLoss: take the change without its sign."""
    delta_scale: float = 52000.0
    """DeltaLoss: factor on the score; ... and this one, so that mean scores are about as large as Curiosity's."""
    delta_empty: Literal["skip", "stop"] = "skip"
    """DeltaLoss over epochs: an epoch without samples of an arm is left out, or ends the arm's record for good."""
    uniform: Literal["arms", "actor"] = "arms"
    """Uniform: every arm is drawn with the same probability, or an actor draws that gets a score of zero."""

    # Actor
    actor: Literal["network", "logits"] = "network"
    """The policy: a network on random inputs, or one number per arm."""
    actor_inputs: int | None = 4
    """Random inputs of the network; none for as many as there are arms."""
    actor_hidden: int = 256
    """Width of its two hidden layers."""
    actor_learning_rate: float = 1e-5
    """Of its Adam."""
    actor_beta1: float = 0.99
    """Of its Adam."""
    actor_beta2: float = 0.999
    """Of its Adam."""
    entropy_weight: float = 0.05
    """Weight of the entropy in the policy loss."""
    actor_scores: Literal["raw", "scaled"] = "raw"
    """Scores reach the actor as they are, or divided by the greatest running mean of an arm."""

    # Data
    curriculum_arm: Literal["true-class", "scrambled-label"] = "true-class"
    """Curriculum: an arm is a class of images, or a label that images were given."""
    centre_pixels: bool = True
    """Pixels from -1 to 1 instead of 0 to 1."""
    replacement: bool = False
    """Draw an arm's images at random each time, instead of using them up before they repeat."""
    test_images: Literal["train", "test"] = "train"
    """The split that test images come from; scrambled labels can be learned only from the training split."""
    test_draw: Literal["equal", "uniform"] = "equal"
    """Test arms: the same number from each, or drawn at random."""
    test_batches: int = 100
    """Batches of the test at the end of each epoch."""
    shared_stream: bool = False
    """Training and test draw from the same shuffled stream, so that a sample waits its turn in both."""

    # Training
    hidden: int = 256
    """Width of the two hidden layers of the dynamics model."""
    learning_rate: float = 1e-3
    """Of its Adam."""
    batch_size: int = 256
    """Samples per batch; an epoch has floor(N / batch_size) batches."""
    epochs: int = 100
    """Length of a run ..."""
    epochs_curriculum_mnist: int = 400
    """... and of one in the curriculum condition on MNIST; a command that sets `epochs` alone means both."""

    # Evaluation
    epochs_used: int = 400
    """Epochs of a curve that count."""
    curve_block: int = 1
    """Curves longer than 100 points are averaged in blocks of this many."""
    auc_weights: Literal["test-count", "equal"] = "test-count"
    """Weights of the arms in the area under the test-loss curve."""
    stars: Literal["paper", "released"] = "paper"
    """Marks of significance: ** p<0.001, * p<0.05; or *** p<0.001, ** p<0.01, * p<0.05."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        sizes = ("actor_hidden", "hidden", "batch_size", "test_batches")
        lengths = ("epochs", "epochs_curriculum_mnist", "epochs_used", "curve_block")
        rates = ("beta", "beta_v", "actor_beta1", "actor_beta2")
        self._check(sizes + lengths, lambda value: value >= 1, "at least 1")
        self._check(("actor_inputs", "delta_window"), lambda value: value is None or value >= 1, "at least 1 or none")
        self._check(
            ("floor", "learning_rate", "actor_learning_rate"), lambda value: 0 < value < inf, "a number above 0"
        )
        self._check(rates, lambda value: value is None or 0 <= value < 1, "a decay rate in [0, 1)")
        self._check(("gate_level",), lambda value: value is None or 0 < value < inf, "a number above 0 or none")
        self._check(("entropy_weight",), lambda value: 0 <= value < inf, "a number of at least 0")
        if self.shared_stream and self.test_images == "test":
            raise ProtocolError("shared_stream: expected false with test_images=test, got true; set it to false")

    @classmethod
    def paper(cls) -> Protocol:
        """The choices of the paper's text."""
        return cls()

    @classmethod
    def released(cls) -> Protocol:
        """The choices of the authors' released code, which made the published figures."""
        return cls(
            floor_unit="batch",
            bias_correction=True,
            dot_over="tensor",
            dot_scale=5.0,
            cosine_over="tensor",
            cosine_against="m/v",
            cosine_scale=50.0,
            norm="l2-squared",
            norm_unit="batch",
            norm_all_scale=1e4,
            norm_last_part="bias",
            norm_last_scale=1e5,
            delta_window=None,
            delta_absolute=True,
            delta_scale=1e5,
            delta_empty="stop",
            actor_inputs=None,
            curriculum_arm="scrambled-label",
            test_draw="uniform",
            shared_stream=True,
            epochs_curriculum_mnist=500,
            curve_block=5,
            stars="released",
        )

    @classmethod
    def demo(cls) -> Protocol:
        """The released choices in small: on the 8x8 digits, where a run takes seconds.

        Smaller networks and batches, and an actor that learns fifty times as fast. The floor is chosen so that
        it does here what the released one does on MNIST: nearly all parameters lie under it.
        """
        return dataclasses.replace(
            cls.released(),
            floor=0.1,
            floor_unit="sample",
            hidden=64,
            actor_hidden=32,
            actor_learning_rate=5e-4,
            batch_size=64,
            test_batches=10,
            epochs=50,
            norm_all_scale=1e4 * (64 / 256) ** 2,
            norm_last_scale=1e5 * (64 / 256) ** 2,
        )

    @classmethod
    def presets(cls) -> dict[str, Callable[[], Protocol]]:
        """What makes each preset, by its name."""
        return {"paper": cls.paper, "released": cls.released, "demo": cls.demo}

    def epochs_for(self, dataset: str, condition: str) -> int:
        """The length of a run."""
        return self.epochs_curriculum_mnist if (dataset, condition) == ("mnist", "curriculum") else self.epochs
