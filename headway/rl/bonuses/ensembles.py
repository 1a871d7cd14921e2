"""Bonuses of several forward models: reward transitions about which they disagree."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.bonuses.bonus import Prediction, Predictor, register_bonus
from headway.rl.bonuses.forward import Forward
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Transitions
from headway.rl.networks import make_encoder, orthogonal, perceptron
from headway.rl.spaces import Coding


class Ensemble(nn.Module):
    """Networks of one kind with weights of their own."""

    def __init__(self, members: list[nn.Sequential]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs [N, inputs] to the outputs of all members [N, members, outputs]."""
        return torch.stack([member(inputs) for member in self.members], dim=1)


@register_bonus("disagreement")
class Disagreement(Predictor):
    """Forward models g_1 ... g_K of a fixed random network's features f, alike but for their first weights.

        error    r(s, a, s') = mean over features of the variance over k of g_k(f(s), a)
        loss     mean over k and features of (g_k(f(s), a) - f(s'))^2

    The models agree in the end also on what they cannot foretell: all of them say the mean of the noise. So the error
    goes to zero where the loss does not.

    D. Pathak, D. Gandhi and A. Gupta, Self-Supervised Exploration via Disagreement (2019).

    Args:
        common: see `register_bonus`.
        members: K.

    Raises:
        MethodError: fewer than two members.
    """

    actions: Coding

    def __init__(self, *common: Any, members: int = 5) -> None:
        super().__init__()
        if members < 2:
            raise MethodError(f"members: expected at least 2, got {members}")
        observation_space, action_space, config, generator = common
        self._read_spaces(observation_space, action_space, config)
        features, hidden = config.features, config.hidden
        self.encoder = make_encoder(
            self._observations.shape, features, hidden, generator, orthogonal, config.encoder
        ).requires_grad_(False)
        widths = [features + self.actions.size, hidden, features]
        self.scored = Ensemble([perceptron(widths, generator) for _ in range(members)])

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        with torch.no_grad():
            rows, indices = distinct_rows(torch.cat([batch.obs, batch.next_obs]))
            before, after = self.encoder(self.seen(rows, batch))[indices].split(len(batch))
        guesses: Tensor = self.scored(torch.cat([before, self.actions.encode(batch.actions)], dim=1))
        losses = (guesses - after[:, None]).square().mean((1, 2))
        errors = guesses.detach().var(1, correction=0).mean(1)
        return Prediction(losses, errors, metrics={"forward_loss": losses.detach().mean()})


class MaskedPerceptron(nn.Module):
    """Linear layers with ReLU between them, whose hidden units are multiplied by a mask."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

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

    Y. Gal and Z. Ghahramani, Dropout as a Bayesian Approximation (2016).

    Args:
        common: see `register_bonus`; the masks come from the generator too.
        rate: the share of hidden units that are left out.
        passes: networks that guess.

    Raises:
        MethodError: a rate outside of (0, 1), or fewer than two passes.
    """

    draws: Tensor

    def __init__(self, *common: Any, rate: float = 0.1, passes: int = 10) -> None:
        super().__init__(*common)
        if not 0 < rate < 1:
            raise MethodError(f"rate: expected a share between 0 and 1, got {rate}")
        if passes < 2:
            raise MethodError(f"passes: expected at least 2, got {passes}")
        self.rate, self.passes = rate, passes
        layers = [each for each in self.scored.children() if isinstance(each, nn.Linear)]
        self._hidden = [each.out_features for each in layers[:-1]]
        self.scored = MaskedPerceptron(self.scored)
        _, _, _, generator = common
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
