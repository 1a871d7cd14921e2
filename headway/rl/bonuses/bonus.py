"""What a bonus rewards: what it predicts, or what it remembers.

A `Predictor` learns, and any scorer turns how it fared into rewards. A `Memory` has nothing to train: it scores
transitions by what it has stored. `register_bonus` gives either a name for `make_reward`, also from a package of your
own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Signature, signature
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headway.errors import MethodError
from headway.registry import Registry
from headway.rl.config import IntrinsicConfig
from headway.rl.episodes import Transitions
from headway.rl.normalise import ObservationNormaliser
from headway.rl.spaces import Coding, Observations, coding_of


@dataclass(frozen=True)
class Prediction:
    """What a predictor makes of N transitions.

    It is trained with `weight * (mean of the losses) + rest`. The two parts share no parameter, so one backward pass
    through the losses serves both the scores and the training.

    Attributes:
        losses: one per transition [N], or one per distinct transition [U]; their graph leads to the predictor's
            `scored` module and nowhere else.
        errors: the prediction errors as a reward [N], without a graph; or a function that computes them, where that
            takes time: they are not needed for each minibatch.
        weight: of the mean of the losses in training.
        rest: what else is trained, a loss [] that does not depend on the scored module; None for nothing.
        indices: with losses of distinct transitions, the place [N] of each transition among them; otherwise None.
        metrics: losses [] by name, for whoever watches.
    """

    losses: Tensor
    errors: Tensor | Callable[[], Tensor]
    weight: float = 1.0
    rest: Tensor | None = None
    indices: Tensor | None = None
    metrics: Mapping[str, Tensor] = field(default_factory=dict)

    def error_rewards(self) -> Tensor:
        """The prediction errors as a reward [N], without a graph."""
        return self.errors if isinstance(self.errors, Tensor) else self.errors()

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
    """Guesses something about transitions, and learns to guess better.

    Those of headway, and its memories, are made with the four arguments that `register_bonus` names and with options of
    their own; an option out of its range raises MethodError.

    Attributes:
        scored: the module whose gradients scorers look at.
        actions: how actions are written as numbers; None if the predictor does not look at them.
        merges_duplicates: whether its losses are those of distinct transitions.
        learning_rate: of Adam, if the settings do not say.
        is_episodic: whether it looks at single episodes to learn; transitions then need `envs` and `ended`.
        normaliser: running statistics of observations, with which networks see them; None for none.
    """

    scored: nn.Module
    merges_duplicates: bool = False
    learning_rate: float = 5e-4
    actions: Coding | None = None
    is_episodic: bool = False
    normaliser: ObservationNormaliser | None
    _observations: Observations

    def __init__(self) -> None:
        super().__init__()
        self.normaliser = None

    def _read_spaces(self, observation_space: Any, action_space: Any, config: IntrinsicConfig) -> None:
        """Look at observations, normalised if the settings say so, and at actions."""
        self._observations = Observations(observation_space, config)
        self.actions = coding_of(action_space, "action")
        if config.normalise_observations:
            self.normaliser = ObservationNormaliser(self._observations.shape, config.rnd_clip)

    @abstractmethod
    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """Guess, and say how wrong the guesses are.

        Args:
            batch: the transitions, on the predictor's device.
            train: False if the predictor will not be trained with the result, so that `rest` is not needed.
        """

    def prepare(self, batch: Transitions) -> Transitions:
        """The transitions of an update, before they are cut into minibatches."""
        return batch

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


Score = Callable[[Transitions], Tensor]
"""Scores [N] of transitions; nothing changes."""


class Memory(nn.Module, ABC):
    """Stores transitions, and scores others by what it has stored.

    State of a fixed shape goes into buffers. For a table that grows define `get_extra_state` and `set_extra_state` of
    `torch.nn.Module`, with tensors, numbers and text.

    A memory may have predictors, for their features or their scores. It names those of its attributes in `trained`:
    they learn from all transitions after these were scored, and `measures` gives their scores.

    Attributes:
        actions: how actions are written as numbers; None if the memory does not look at them.
        is_episodic: whether it looks at single episodes; transitions then need `envs` and `ended`.
        trained: the names of its predictors.
        scored: the name of the predictor that any scorer goes with; None if the memory only has its own score.
        scorer: the name of that scorer.
        measures: how each predictor scores transitions, by its name; those other than `scored` by their error.
    """

    actions: Coding | None = None
    is_episodic: bool = False
    trained: tuple[str, ...] = ()
    scored: str | None = None
    scorer: str = "error"
    measures: Mapping[str, Score]

    @abstractmethod
    def score(self, batch: Transitions) -> Tensor:
        """The scores of transitions [N]; nothing changes."""

    @abstractmethod
    def remember(self, batch: Transitions) -> None:
        """Store transitions."""

    def remember_and_score(self, batch: Transitions) -> Tensor:
        """The scores [N] of transitions that are new to the memory.

        By default they are stored first, all at once. A memory of single episodes goes through them in the order of
        time instead; `batch.envs` and `batch.ended` say which belong together.
        """
        self.remember(batch)
        return self.score(batch)

    def end_episodes(self, envs: Sequence[int] | None = None) -> None:
        """Note that environments were reset in the middle of an episode; None for all of them."""

    def metrics(self) -> dict[str, float]:
        """Numbers worth watching, by name."""
        return {}


def check_least(least: int, **numbers: float) -> None:
    """Refuse options below a number, by name."""
    for name, number in numbers.items():
        if not number >= least:
            raise MethodError(f"{name}: expected at least {least}, got {number}")


def check_above_zero(**numbers: float) -> None:
    """Refuse options that are not above zero, by name."""
    for name, number in numbers.items():
        if not number > 0:
            raise MethodError(f"{name}: expected a number above 0, got {number}")


def with_options(init: Callable[..., None]) -> Callable[..., None]:
    """Make a constructor `(self, *given, option=...)` take by name what `register_bonus` says, and its options."""

    def make(
        self: Any,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        **options: Any,
    ) -> None:
        init(self, observation_space, action_space, config, generator, **options)

    common = [*signature(make).parameters.values()][:-1]
    own = [each for each in signature(init).parameters.values() if each.kind is each.KEYWORD_ONLY]
    make.__signature__ = Signature([*common, *own])  # type: ignore[attr-defined]
    return make


MakeBonus = Callable[..., Predictor | Memory]
"""Makes a bonus from observation space, action space, settings, a generator for its weights, and options of its own."""

BONUSES: Registry[MakeBonus] = Registry("bonus")
_Make = TypeVar("_Make", bound=MakeBonus)


def register_bonus(name: str) -> Callable[[_Make], _Make]:
    """Add a bonus: a `Predictor` or `Memory` class, or a function that makes one.

    It is called with the observation space and the action space of one environment, an `IntrinsicConfig`, and the
    `torch.Generator` that weights come from; options of its own are keyword-only, and `make_reward` passes them on.

    Args:
        name: what methods call it; letters, digits, dashes and underscores.

    Raises:
        MethodError: the name is taken or not valid.
    """
    return BONUSES.register(name)


register_predictor = register_bonus
"""The former name of `register_bonus`."""
