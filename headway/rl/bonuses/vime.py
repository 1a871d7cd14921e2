"""VIME: reward what tells most about the weights of a Bayesian forward model.

R. Houthooft et al., VIME: Variational Information Maximizing Exploration (2016).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.errors import MethodError
from headway.rl.bonuses.bonus import register_bonus
from headway.rl.bonuses.forward import Forward
from headway.rl.bonuses.gain import layer_gradients
from headway.rl.episodes import Transitions
from headway.rl.intrinsic import IntrinsicConfig


@register_bonus("vime")
class VIME(Forward):
    """The forward model with a normal distribution N(w_j, s_j^2) over each weight, rewarded by the information gain.

        r_i = 1/2 sum over j of s_j^2 g_ij^2, with g_i the gradient of the negative log likelihood of transition i

    This is the second-order form of the divergence between the distributions after and before a step of length 1
    (the paper's equation for it, for the means). The likelihood is normal with variance 1 in each of the D numbers of
    an observation, so that g is D / 2 times the gradient of the mean squared error. The means are the weights, which
    learn as ever. The variances are those that minimise the paper's bound, with the likelihood to second order:

        1 / s_j^2 = 1 / prior^2 + sum of g_ij^2 over all transitions so far

    so no weights are drawn. What comes again tells less and less, and so does noise.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: widths and scales.
        generator: where the weights come from.
        prior: the deviation of a weight before anything is seen.

    Raises:
        EnvError: a space that has no coding.
        MethodError: a prior that is not above 0.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: IntrinsicConfig,
        generator: torch.Generator,
        *,
        prior: float = 0.5,
    ) -> None:
        super().__init__(observation_space, action_space, config, generator)
        if not prior > 0:
            raise MethodError(f"prior: expected a number above 0, got {prior}")
        for name, parameter in self.scored.named_parameters():
            self.register_buffer(_precision(name), torch.full_like(parameter, prior**-2))

    def errors(self, losses: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The information gains [N]."""
        total = torch.zeros_like(losses)
        for weight, bias, own, slope in self._squares(inputs, targets):
            total += ((own @ weight.reciprocal().T + bias.reciprocal()) * slope).sum(1)
        return total / 2

    @torch.no_grad()
    def observe(self, batch: Transitions) -> None:
        """Take transitions into statistics of observations, and into the variances of weights."""
        super().observe(batch)
        for weight, bias, own, slope in self._squares(*self.pairs(batch)):
            weight += slope.T @ own
            bias += slope.sum(0)

    def _squares(self, inputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """For each layer the precisions of weight and bias, and the squares of what makes up its gradients."""
        factor = targets.shape[1] / 2
        found = []
        names = [name.removesuffix(".weight") for name, _ in self.scored.named_parameters() if name.endswith("weight")]
        gradients = layer_gradients(self.scored, inputs, targets)
        for name, (_, own, slope) in zip(names, gradients, strict=True):
            weight, bias = (getattr(self, _precision(f"{name}.{kind}")) for kind in ("weight", "bias"))
            found.append((weight, bias, own.square(), (factor * slope).square()))
        return found


def _precision(parameter: str) -> str:
    """The name of the buffer for a parameter."""
    return f"precision_{parameter.replace('.', '_')}"
