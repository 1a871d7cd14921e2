"""MC dropout: reward what a forward model is unsure about, as the networks within it disagree.

Y. Gal and Z. Ghahramani, Dropout as a Bayesian Approximation (2016).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.bonuses.bonus import Prediction, register_bonus
from headway.rl.bonuses.forward import Forward
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig


class MaskedPerceptron(nn.Module):
    """Linear layers with ReLU between them, whose hidden units are multiplied by a mask.

    Args:
        layers: Linear layers with ReLU between them.
    """

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    @property
    def hidden(self) -> list[int]:
        """The widths of hidden layers."""
        return [each.out_features for each in self.layers.children() if isinstance(each, nn.Linear)][:-1]

    def forward(self, inputs: Tensor, masks: list[Tensor]) -> Tensor:
        """Inputs [N, inputs], and a mask [N, width] or [width] for each hidden layer, to outputs [N, outputs]."""
        left = iter(masks)
        outputs = inputs
        for layer in self.layers.children():
            outputs = layer(outputs)
            if isinstance(layer, nn.ReLU):
                outputs = outputs * next(left)
        return outputs


@register_bonus("dropout")
class Dropout(Forward):
    """The forward model, trained with dropout; r(s, a, s') is the variance of its guesses over masks, mean over D.

    In training each transition has masks of its own; for rewards `passes` networks with one mask each guess about
    all transitions. Masks are drawn anew for each step of training, and rewards alone change nothing.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: widths and scales.
        generator: where the weights and the masks come from.
        rate: the share of hidden units that are left out.
        passes: networks that guess.

    Raises:
        EnvError: a space that has no coding.
        MethodError: a rate outside of (0, 1), or fewer than two passes.
    """

    draws: Tensor

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        rate: float = 0.1,
        passes: int = 10,
    ) -> None:
        super().__init__(observation_space, action_space, config, generator)
        if not 0 < rate < 1:
            raise MethodError(f"rate: expected a share between 0 and 1, got {rate}")
        if passes < 2:
            raise MethodError(f"passes: expected at least 2, got {passes}")
        self.rate, self.passes = rate, passes
        network = MaskedPerceptron(self.scored)
        self.scored, self._hidden = network, network.hidden
        self.register_buffer("draws", torch.randint(2**62, (), generator=generator))

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        inputs, targets = self.pairs(batch)
        generator = torch.Generator().manual_seed(int(self.draws))
        with torch.no_grad():
            masks = self._masks(self.passes, generator, inputs)
            guesses = torch.stack([self.scored(inputs, [mask[k] for mask in masks]) for k in range(self.passes)])
            errors = guesses.var(0, correction=0).mean(1)
        if train:
            self.draws += 1
        losses = (self.scored(inputs, self._masks(len(batch), generator, inputs)) - targets).square().mean(1)
        return Prediction(losses, errors, metrics={"forward_loss": losses.detach().mean()})

    def _masks(self, count: int, generator: torch.Generator, like: Tensor) -> list[Tensor]:
        """For each hidden layer a mask [count, width] of 0 and 1 / (1 - rate)."""
        kept = 1 - self.rate
        drawn = (torch.rand(count, width, generator=generator) < kept for width in self._hidden)
        return [mask.to(like) / kept for mask in drawn]
