"""How scores become shares: multiplicative weights, or the paper's actor.

A rule is configuration; `begin` gives the object that learns. It is told, for each source, the smoothed score and the
mean score and number of samples of the latest batch, and answers with shares that add up to 1.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from headway.errors import SelectionError
from headway.selection.actor import Actor, ActorConfig
from headway.selection.draws import generator_for


@dataclass(frozen=True)
class Feedback:
    """What a batch has said about the sources.

    Attributes:
        smoothed: the smoothed score of every source [S]; of one that was never seen, the mean of the others.
        means: the mean score of the batch's samples of each source [S], zero where it had none.
        counts: the samples of each source in the batch [S].
        batches: how many batches it stands for: itself, and those since the latest that was scored.
    """

    smoothed: Tensor
    means: Tensor
    counts: Tensor
    batches: int = 1


class Learner(Protocol):
    """What a rule becomes when it begins: shares that follow scores."""

    def learn(self, feedback: Feedback) -> None:
        """Take in a batch."""
        ...

    def shares(self) -> Tensor:
        """The share of each source [S]; they add up to 1."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that later shares depend on."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        ...


@runtime_checkable
class Rule(Protocol):
    """How scores become shares."""

    def begin(self, sources: int, seed: int) -> Learner:
        """Start with equal shares."""
        ...


@dataclass(frozen=True)
class MultiplicativeWeights:
    """Weights that are multiplied by what a source's score earns, and slowly forget.

        w <- w^(1 - rate) * exp(rate * strength * score / best)

    with the smoothed scores divided by the greatest of them in absolute value, so that their unit does not matter. At
    rest, a source with half the best score has exp(-strength / 2) of the best one's share. A batch that stands for k
    moves the weights at the rate 1 - (1 - rate)^k, so that they are as fast with each eighth batch scored as with all.

    Attributes:
        strength: how much scores count; 0 keeps the shares equal.
        rate: how fast weights move with each batch, in (0, 1].
        least: scores are divided by no less than this. Where all scores lie far below it, shares become equal; it is
            in the scores' own unit, and 0 leaves it out.
    """

    strength: float = 3.0
    rate: float = 0.05
    least: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise SelectionError(f"expected a rate above 0 and up to 1, got {self.rate}")
        if not self.strength >= 0 or not self.least >= 0:
            raise SelectionError(f"expected strength and least from 0, got {self.strength} and {self.least}")

    def begin(self, sources: int, seed: int) -> Learner:
        """Start with equal shares; nothing here is random."""
        return _Weights(self, sources)


class _Weights:
    """Logarithms of multiplicative weights [S]."""

    def __init__(self, rule: MultiplicativeWeights, sources: int) -> None:
        self._rule = rule
        self._log = torch.zeros(sources, dtype=torch.float64)

    def learn(self, feedback: Feedback) -> None:
        best = max(float(feedback.smoothed.abs().max()), self._rule.least)
        gain = feedback.smoothed / best if best > 0 else torch.zeros_like(self._log)
        rate = self._rule.rate if feedback.batches == 1 else 1 - (1 - self._rule.rate) ** feedback.batches
        self._log.lerp_(self._rule.strength * gain, rate)

    def shares(self) -> Tensor:
        return self._log.softmax(0)

    def state_dict(self) -> dict[str, Any]:
        return {"log_weights": self._log.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._log = state["log_weights"].clone()


@dataclass(frozen=True)
class PolicyGradient:
    """An actor like the paper's: a policy over the sources, trained by policy gradient with the batch's scores.

    Batches that workers have prefetched are scored after the policy has moved on; the gradient is taken at the policy
    as it is then.

    Attributes:
        kind: "logits" for one number per source, "network" for the paper's perceptron on random inputs.
        hidden: widths of the network's hidden layers.
        learning_rate: of Adam.
        betas: of Adam.
        entropy_weight: how strongly the policy is kept from collapsing.
        scaled: divide scores by the greatest smoothed score, so that the entropy weight means the same for every
            signal; False takes them as they are, as the paper does.
    """

    kind: str = "logits"
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 1e-2
    betas: tuple[float, float] = field(default=(0.9, 0.999))
    entropy_weight: float = 0.2
    scaled: bool = True

    def begin(self, sources: int, seed: int) -> Learner:
        """Start with a policy that is drawn from the seed."""
        config = ActorConfig(
            sources,
            self.kind,
            hidden=self.hidden,
            learning_rate=self.learning_rate,
            betas=self.betas,
            entropy_weight=self.entropy_weight,
        )
        return _Policy(self, config, seed)


class _Policy:
    """An actor, and the generator that it draws from."""

    def __init__(self, rule: PolicyGradient, config: ActorConfig, seed: int) -> None:
        self._rule = rule
        self._generator = generator_for(seed, "actor")
        self._actor = Actor(config, self._generator)
        self._shares = self._read()

    def learn(self, feedback: Feedback) -> None:
        """Every sample stands in with the mean score of its source: the gradient at plain logits is the same."""
        sources = torch.repeat_interleave(torch.arange(len(feedback.counts)), feedback.counts)
        best = float(feedback.smoothed.abs().max()) if self._rule.scaled else 1.0
        scores = feedback.means[sources] / (best if best > 0 else 1.0)
        with torch.enable_grad():
            self._actor.learn(scores.float(), sources)
        self._shares = self._read()

    def _read(self) -> Tensor:
        shares = self._actor.probabilities().double()
        return shares / shares.sum()

    def shares(self) -> Tensor:
        return self._shares

    def state_dict(self) -> dict[str, Any]:
        return {
            "actor": copy.deepcopy(self._actor.state_dict()),  # its tensors change in place
            "generator": self._generator.get_state(),
            "shares": self._shares.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._actor.load_state_dict(copy.deepcopy(state["actor"]))
        self._generator.set_state(state["generator"])
        self._shares = state["shares"].clone()
