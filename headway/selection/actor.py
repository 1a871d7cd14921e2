"""An actor that chooses among sources and learns from the scores that its choices bring.

It has no state to look at, so its policy is a distribution over the sources, trained by policy gradient:

    loss = -mean(log pi(a) * r) - entropy_weight * mean(H(pi))
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import SelectionError
from headway.selection.networks import Adam, PlainLogits, backpropagate, perceptron, record


@dataclass(frozen=True)
class ActorConfig:
    """How an actor is made and trained.

    Attributes:
        sources: the number of sources.
        kind: "network" for a perceptron on random inputs, "logits" for one number per source.
        inputs: random numbers that the network sees, drawn anew for every sample; None for as many as sources.
        hidden: widths of the hidden layers.
        learning_rate: of Adam.
        betas: of Adam.
        entropy_weight: how strongly the policy is kept from collapsing.
    """

    sources: int
    kind: str = "network"
    inputs: int | None = None
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 1e-5
    betas: tuple[float, float] = (0.99, 0.999)
    entropy_weight: float = 0.05

    def __post_init__(self) -> None:
        if self.sources < 1:
            raise SelectionError(f"expected at least one source, got {self.sources}")
        if self.kind not in ("network", "logits"):
            raise SelectionError(f"expected an actor 'network' or 'logits', got {self.kind!r}")


class Actor:
    """Draws sources for a batch and is trained with the scores of that batch.

    Args:
        config: what it is.
        generator: where its randomness comes from: initial weights, inputs and draws.
        device: where it lives.
    """

    def __init__(self, config: ActorConfig, generator: torch.Generator, device: str = "cpu") -> None:
        self.config = config
        self._generator = generator
        self._inputs = config.inputs or config.sources
        policy: nn.Module
        if config.kind == "network":
            policy = perceptron([self._inputs, *config.hidden, config.sources], generator)
        else:
            policy = PlainLogits(config.sources)
        self.policy = policy.to(device)
        self._device = device
        self._optimizer = Adam(list(self.policy.parameters()), config.learning_rate, config.betas)
        self._drawn: tuple[list[Tensor], Tensor, Tensor, Tensor] | None = None
        self.entropy = torch.zeros(())

    def draw(self, samples: int) -> Tensor:
        """Choose a source for each of B samples: [B]. The choice is kept for `learn`."""
        seen, log_policy, policy = self._evaluate(samples)
        # Inverse transform on the host's generator: the same draws on every device.
        edges = policy.cumsum(1)
        points = self._random(samples, 1).to(edges.dtype)
        sources = torch.searchsorted(edges, points * edges[:, -1:], right=True).squeeze(1)
        sources.clamp_(max=self.config.sources - 1)
        self._drawn = (seen, log_policy, policy, sources)
        return sources

    def probabilities(self, inputs: int = 256) -> Tensor:
        """The policy [sources]; that of a network is averaged over so many random inputs."""
        seen, _, _ = self._evaluate(1 if self.config.kind == "logits" else inputs)
        return seen[-1].softmax(1).mean(0)

    def _evaluate(self, samples: int) -> tuple[list[Tensor], Tensor, Tensor]:
        """What `record` says of B samples, the logarithm of the policy and the policy, each [B, sources]."""
        seen = record(self.policy, self._random(samples, self._inputs))
        log_policy = F.log_softmax(seen[-1], dim=1)
        return seen, log_policy, log_policy.exp()

    def _random(self, *shape: int) -> Tensor:
        """Random numbers of the host, on their way to the device; the host does not wait until they are there."""
        pinned = torch.device(self._device).type == "cuda"
        numbers = torch.rand(*shape, generator=self._generator, pin_memory=pinned)
        return numbers.to(self._device, non_blocking=True)

    def learn(self, scores: Tensor, sources: Tensor | None = None) -> None:
        """Take one step with the scores [B] of the samples that were drawn last, or of sources that are named.

        Args:
            scores: one per sample.
            sources: the sources that were chosen by `probabilities` rather than by `draw`; a network gets inputs
                drawn anew for them.

        Raises:
            SelectionError: nothing was drawn, or another number of samples.
        """
        if sources is not None:
            self._drawn = (*self._evaluate(len(sources)), sources.to(self._device))
        if self._drawn is None:
            raise SelectionError("expected scores for drawn sources, got scores before draw(); call draw() first")
        seen, log_policy, policy, sources = self._drawn
        if scores.shape != sources.shape:
            raise SelectionError(f"expected scores of shape {list(sources.shape)}, got {list(scores.shape)}")
        if scores.device.type == "cpu" and not math.isfinite(float(scores.sum())):
            raise SelectionError(
                "expected finite scores, got NaN or infinity, which would make every later draw meaningless; "
                "has the training diverged? Try a smaller learning rate"
            )
        self._drawn = None
        scores, entropy = scores.to(policy), -(policy * log_policy).sum(1, keepdim=True)
        # The gradient of the loss at the logits [B, sources], in closed form. Of -log pi(a) r: r (pi - e_a), with e_a
        # the unit vector of the chosen source. Of -w H: w pi (log pi + H).
        gradient = policy * scores.unsqueeze(1)
        gradient.scatter_add_(1, sources.unsqueeze(1), -scores.unsqueeze(1))
        gradient.add_(policy * (log_policy + entropy), alpha=self.config.entropy_weight)
        backpropagate(self.policy, seen, gradient.div_(len(scores)))
        self._optimizer.advance()
        self.entropy = entropy.mean()

    def state_dict(self) -> dict[str, Any]:
        """The policy and its optimizer; the generator belongs to whoever passed it in."""
        return {"policy": self.policy.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.policy.load_state_dict(state["policy"])
        self._optimizer.load_state_dict(state["optimizer"])
