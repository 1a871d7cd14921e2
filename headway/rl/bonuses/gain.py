"""Prediction gain: how much better a model would foretell a transition after learning from it.

M. Bellemare et al., Unifying Count-Based Exploration and Intrinsic Motivation (2016); A. Graves et al., Automated
Curriculum Learning for Neural Networks (2017).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.bonuses.bonus import register_bonus
from headway.rl.bonuses.forward import Forward
from headway.rl.intrinsic import IntrinsicConfig


@torch.no_grad()
def layer_gradients(network: nn.Module, inputs: Tensor, targets: Tensor) -> list[tuple[nn.Linear, Tensor, Tensor]]:
    """The gradients of each sample's mean squared error, layer by layer, as outer products.

    Args:
        network: Linear layers with ReLU between them.
        inputs: [N, inputs].
        targets: [N, outputs].

    Returns:
        for each Linear layer its inputs a [N, in] and b [N, out], such that sample i has the gradient b_i a_i' for the
        weight and b_i for the bias.
    """
    layers = [each for each in network.children() if isinstance(each, nn.Linear)]
    given = [inputs]
    for layer in layers:
        outputs = F.linear(given[-1], layer.weight, layer.bias)
        given.append(outputs.relu())
    slope = 2 * (outputs - targets) / targets.shape[1]
    found = []
    for layer, own in zip(reversed(layers), reversed(given[:-1]), strict=True):
        found.append((layer, own, slope))
        slope = (slope @ layer.weight) * (own > 0)
    return found[::-1]


@register_bonus("gain")
class Gain(Forward):
    """The forward model, rewarded by r_i = L_i(w) - L_i(w - rate grad L_i(w)).

    L_i is the loss of transition i, and w are the weights. Noise has a gain as well: a model can learn one sample of it
    by heart. To each transition belong weights of its own, which are never built: W - rate b a' turns x into
    W x - rate b (a . x).

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: widths and scales.
        generator: where the weights come from.
        rate: the length of the step.

    Raises:
        EnvError: a space that has no coding.
        MethodError: a rate that is not above 0.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        rate: float = 0.1,
    ) -> None:
        super().__init__(observation_space, action_space, config, generator)
        if not rate > 0:
            raise MethodError(f"rate: expected a number above 0, got {rate}")
        self.rate = rate

    def errors(self, losses: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The gains [N]."""
        outputs = inputs
        for index, (layer, own, slope) in enumerate(layer_gradients(self.scored, inputs, targets)):
            outputs = outputs.relu() if index else outputs
            step = self.rate * slope * ((own * outputs).sum(1, keepdim=True) + 1)  # of the weight and of the bias
            outputs = F.linear(outputs, layer.weight, layer.bias) - step
        return losses - (outputs - targets).square().mean(1)
