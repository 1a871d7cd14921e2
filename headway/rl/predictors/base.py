"""What a predictor is: it guesses something about transitions, and learns to guess better."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.normalise import ObservationNormaliser
from headway.rl.packing import is_joint, leaves, width
from headway.rl.predictors.encoders import Layout, channels_first
from headway.rl.spaces import Coding, Numbers, coding_of, is_image
from headway.rl.transitions import Transitions


@dataclass(frozen=True)
class Prediction:
    """What a predictor makes of N transitions.

    It is trained with `weight * (mean of the losses) + rest`. The two parts share no parameter, so one backward pass
    through the losses serves both the scores and the training.

    Attributes:
        losses: one per transition [N], or one per distinct transition [U]; their graph leads to the predictor's
            `scored` module and nowhere else.
        errors: the prediction errors as a reward [N], without a graph.
        weight: of the mean of the losses in training.
        rest: what else is trained, a loss [] that does not depend on the scored module; None for nothing.
        indices: with losses of distinct transitions, the place [N] of each transition among them; otherwise None.
        metrics: losses [] by name, for whoever watches.
    """

    losses: Tensor
    errors: Tensor
    weight: float = 1.0
    rest: Tensor | None = None
    indices: Tensor | None = None
    metrics: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def mean(self) -> Tensor:
        """The mean loss over the N transitions [], with its graph."""
        return self.losses.mean() if self.indices is None else self.losses.index_select(0, self.indices).mean()

    @property
    def total(self) -> Tensor:
        """The loss of the whole predictor [], without a graph."""
        total = self.weight * self.mean.detach()
        return total if self.rest is None else total + self.rest.detach()


class Predictor(nn.Module, ABC):
    """Guesses something about transitions.

    Attributes:
        scored: the module whose gradients scorers look at.
        actions: how actions are written as numbers; None if the predictor does not look at them.
        joins_repeats: whether its losses are those of distinct transitions.
        learning_rate: of Adam, if the settings do not say.
        normaliser: running statistics of observations, with which networks see them; None for none.
    """

    scored: nn.Module
    joins_repeats: bool = False
    learning_rate: float = 5e-4
    actions: Coding | None = None
    normaliser: ObservationNormaliser | None
    _observations: Observations

    def __init__(self) -> None:
        """Without statistics of observations; a subclass may set them."""
        super().__init__()
        self.normaliser = None

    @abstractmethod
    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """Guess, and say how wrong the guesses are.

        Args:
            batch: the transitions, on the predictor's device.
            train: False if the predictor will not be trained with the result, so that `rest` is not needed.
        """

    @property
    def is_new(self) -> bool:
        """Whether the predictor keeps running statistics and has none yet; it then observes before it is trained."""
        return self.normaliser is not None and self.normaliser.moments.is_empty

    def observe(self, batch: Transitions) -> None:
        """Take transitions into running statistics, if the predictor has any."""
        if self.normaliser is not None:
            self.normaliser.update(self._observations.read(batch.next_obs))

    def seen(self, observations: Tensor, batch: Transitions) -> Tensor:
        """Observations [N, ...] of a batch as networks see them [N, *shape], normalised if there are statistics.

        A predictor without any yet takes those of the batch.
        """
        numbers = self._observations.read(observations)
        if self.normaliser is None:
            return numbers
        every = self._observations.read(batch.next_obs) if self.is_new else None
        seen: Tensor = self.normaliser(numbers, every)
        return seen


class Observations:
    """Turns observations of a space into what networks take.

    Attributes:
        shape: of one observation as networks see it: [C, H, W] for an image, [D] for anything else. For several parts
            (Dict, Tuple) a `Layout`: rows with all of them; the factor on observations is then one on images alone.

    Args:
        space: the observation space of one environment.
        config: its scale, and where images have their channels.

    Raises:
        EnvError: a space, or a part of it, that has no coding.
    """

    def __init__(self, space: Any, config: Any) -> None:
        """Find the coding."""
        self._parts: list[tuple[Observations, tuple[int, ...]]] = []
        self._scale = config.observation_scale
        if is_joint(space):
            self._parts = [(Observations(part, config), tuple(part.shape)) for _, part in leaves(space)]
            for (part, _), (_, its_space) in zip(self._parts, leaves(space), strict=True):
                part._scale = self._scale if is_image(its_space) else 1.0
            self._given: tuple[int, ...] = (width(space),)
            self.shape: tuple[int, ...] = Layout([part.shape for part, _ in self._parts])
            return
        self._coding: Coding = coding_of(space, "observation")
        self._given = tuple(space.shape)
        self._permute = is_image(space) and not config.channels_first
        if not is_image(space):
            self.shape = (self._coding.size,)
        elif config.channels_first:
            self.shape = self._given
        else:
            self.shape = (self._given[2], *self._given[:2])

    @property
    def size(self) -> int:
        """Numbers in one observation."""
        return math.prod(self.shape)

    def normaliser(self, config: IntrinsicConfig) -> ObservationNormaliser | None:
        """Running statistics of these observations, if the settings ask for them."""
        return ObservationNormaliser(self.shape, config.rnd_clip) if config.normalise_observations else None

    def read(self, values: Tensor) -> Tensor:
        """Observations [N, ...] as [N, *shape].

        Raises:
            MethodError: they have another shape than the space.
        """
        if tuple(values.shape[1:]) != self._given:
            raise MethodError(
                f"expected observations of shape {list(self._given)} each, got {list(values.shape[1:])}; "
                f"make the predictor with the observation space of one environment (env.single_observation_space)"
            )
        if self._parts:
            columns = values.split([math.prod(given) for _, given in self._parts], dim=1)
            parts = zip(self._parts, columns, strict=True)
            return torch.cat([part.read(own.reshape(-1, *given)).flatten(1) for (part, given), own in parts], dim=1)
        if len(self.shape) == 1:
            numbers = self._coding.encode(values)
        else:
            numbers = (channels_first(values) if self._permute else values).to(torch.get_default_dtype())
        scaled = isinstance(self._coding, Numbers) and self._scale != 1
        return numbers * self._scale if scaled else numbers
