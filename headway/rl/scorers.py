"""Scorers: what an agent is rewarded for, given how a predictor fared on its transitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headway.errors import MethodError, StateError
from headway.meter import Meter
from headway.registry import Registry
from headway.rl.bonuses import Prediction, Predictor
from headway.rl.config import IntrinsicConfig
from headway.rl.distinct import WeightedSignal, weighted_losses
from headway.rl.spaces import Choices
from headway.signals import (
    GMC,
    Cosine,
    Curiosity,
    DeltaLoss,
    DotProduct,
    MomentSignal,
    NormAll,
    NormLast,
    Projection,
    Signal,
    Uniform,
)


class Scorer(ABC):
    """Gives every transition a score, and runs the backward pass of the scored module on the way.

    Attributes:
        name: what methods call it.
        uses_gradients: whether scores without training need gradients too.
    """

    name: str
    uses_gradients: bool = False

    def bind(self, predictor: Predictor) -> None:  # noqa: B027 - a scorer may have nothing to prepare
        """Prepare for a predictor. Called once, before anything else."""

    @abstractmethod
    def backward(self, prediction: Prediction, actions: Tensor) -> Tensor:
        """Add the gradient of the mean of the losses to the scored module; return scores [N], made before that.

        Args:
            prediction: of N transitions.
            actions: of these [N, ...], for scorers that tell them apart.
        """

    def train(self, predict: Callable[[], Prediction], actions: Tensor) -> Prediction:
        """Make a prediction and add its gradient as `backward` does, where nobody asks for scores; return it.

        A scorer whose scores cost something leaves them out; whatever else `backward` does is done here too.
        """
        prediction = predict()
        self.backward(prediction, actions)
        return prediction

    @abstractmethod
    def score(self, prediction: Prediction, actions: Tensor) -> Tensor:
        """The scores [N] alone; nothing changes."""

    def end_update(self) -> None:  # noqa: B027 - most scorers do not count updates
        """Note that an update has ended."""

    def metrics(self, samples: int) -> dict[str, float]:
        """Numbers worth watching after N samples were scored, by name."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything that later scores depend on."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of such a scorer."""
        if state:
            raise StateError(f"expected the empty state of a scorer {self.name!r}, got one with {sorted(state)}")


class ErrorScorer(Scorer):
    """The prediction error, as the predictor defines it."""

    name = "error"

    def backward(self, prediction: Prediction, actions: Tensor) -> Tensor:
        """See `Scorer.backward`."""
        scores = prediction.error_rewards()
        prediction.mean.backward()
        return scores

    def train(self, predict: Callable[[], Prediction], actions: Tensor) -> Prediction:
        """See `Scorer.train`."""
        prediction = predict()
        prediction.mean.backward()
        return prediction

    def score(self, prediction: Prediction, actions: Tensor) -> Tensor:
        """See `Scorer.score`."""
        return prediction.error_rewards()


class SignalScorer(Scorer):
    """Any signal of the library, on the scored module's gradients.

    One backward pass gives the scores and the gradient for training.

    Args:
        signal: such as `headway.GMC(beta=0.99)`.
        by_action: tell the signal the action of each transition as its group, if actions are a single choice.
    """

    uses_gradients = True

    def __init__(self, signal: Signal, *, by_action: bool = False) -> None:
        if not isinstance(signal, Signal):
            raise MethodError(f"expected a signal such as headway.GMC(), got {signal!r}")
        self.signal = signal
        self.name = signal.name
        self._by_action = by_action
        self._choices: Choices | None = None
        self._meter: Meter | None = None

    @property
    def meter(self) -> Meter:
        """The meter on the scored module."""
        if self._meter is None:
            raise StateError("expected a scorer that is bound to a predictor, got one that is not; use IntrinsicReward")
        return self._meter

    def bind(self, predictor: Predictor) -> None:
        """See `Scorer.bind`."""
        if self._meter is not None:
            raise StateError("expected a scorer of its own for each reward, got one that is in use already")
        if self._by_action and isinstance(predictor.actions, Choices) and predictor.actions.is_single:
            self._choices = predictor.actions
        signal = WeightedSignal(self.signal) if predictor.merges_duplicates else self.signal
        self._meter = Meter(predictor.scored, signal, layout="samples-first")

    def backward(self, prediction: Prediction, actions: Tensor) -> Tensor:
        """See `Scorer.backward`."""
        return self._run(self.meter.backward, prediction, actions)

    def train(self, predict: Callable[[], Prediction], actions: Tensor) -> Prediction:
        """See `Scorer.train`; the moments and the signal's memory take the batch in."""
        with self.meter.unscored():
            prediction = predict()
            self._run(self.meter.backward, prediction, actions)
        return prediction

    def score(self, prediction: Prediction, actions: Tensor) -> Tensor:
        """See `Scorer.score`."""
        return self._run(self.meter.score, prediction, actions)

    def _run(self, measure: Callable[..., Tensor], prediction: Prediction, actions: Tensor) -> Tensor:
        if prediction.indices is None:
            groups = None if self._choices is None else self._choices.indices(actions)
            return measure(prediction.losses, groups=groups)
        counts = torch.bincount(prediction.indices, minlength=len(prediction.losses))
        scores = measure(weighted_losses(prediction.losses, counts), groups=counts)
        return scores if scores is None else scores.index_select(0, prediction.indices)

    def end_update(self) -> None:
        """See `Scorer.end_update`."""
        self.meter.end_epoch()

    def metrics(self, samples: int) -> dict[str, float]:
        """The share of parameters whose second moment is under the floor, for signals that have one."""
        if not isinstance(self.signal, MomentSignal):
            return {}
        moments = self.meter.moments()
        return {"under_floor": float(moments.share_under(self.signal.floor_for(samples, moments)))}

    def state_dict(self) -> dict[str, Any]:
        """See `Scorer.state_dict`."""
        return self.meter.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Scorer.load_state_dict`."""
        self.meter.load_state_dict(state)


MakeScorer = Callable[[IntrinsicConfig, Predictor], Scorer]
"""Makes a scorer for a predictor with the settings at hand."""

SCORERS: Registry[MakeScorer] = Registry("scorer")


def register_scorer(name: str) -> Callable[[MakeScorer], MakeScorer]:
    """Add a scorer: a function that makes one.

    Args:
        name: what methods call it; letters, digits, dashes and underscores.

    Raises:
        MethodError: the name is taken or not valid.
    """
    return SCORERS.register(name)


register_scorer("error")(lambda config, predictor: ErrorScorer())


def _with_moments(make: Callable[..., Signal], config: IntrinsicConfig, predictor: Predictor) -> Scorer:
    beta = config.beta_m if config.beta_m == config.beta_v else (config.beta_m, config.beta_v)
    others = {"unit": config.floor_unit, "bias_correction": config.bias_correction}
    return SignalScorer(make(beta=beta, floor=config.floor, **others))


def _plain(make: Callable[[], Signal], config: IntrinsicConfig, predictor: Predictor) -> Scorer:
    return SignalScorer(make())


_MAKE: dict[str, MakeScorer] = {
    "gmc": partial(_with_moments, GMC),
    "gmc_hard": partial(_with_moments, partial(GMC, gate="hard", name="gmc_hard")),
    "gmc_soft": partial(_with_moments, partial(GMC, gate="soft", name="gmc_soft")),
    "dot": partial(_with_moments, DotProduct),
    "cosine": partial(_with_moments, Cosine),
    "projection": partial(_with_moments, Projection),
    "norm_all": partial(_plain, NormAll),
    "norm_last": partial(_plain, NormLast),
    "curiosity": partial(_plain, Curiosity),
    "uniform": partial(_plain, Uniform),
}
for _name, _make in _MAKE.items():
    register_scorer(_name)(_make)


@register_scorer("delta_loss")
def _delta_loss(config: IntrinsicConfig, predictor: Predictor) -> Scorer:
    """How far the loss of an action fell between the last two updates; one group if actions are no single choice."""
    coding = predictor.actions
    groups = coding.size if isinstance(coding, Choices) and coding.is_single else 1
    return SignalScorer(DeltaLoss(groups=groups, window=None), by_action=True)
