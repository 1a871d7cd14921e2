"""Forward models: what will the next observation be?

One is rewarded by its error, or by what could be learned from it; several are rewarded where they disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.bonuses.bonus import Prediction, Predictor, check_above_zero, check_least, register_bonus, with_options
from headway.rl.config import IntrinsicConfig
from headway.rl.distinct import distinct_rows
from headway.rl.episodes import Transitions
from headway.rl.networks import perceptron, random_encoder
from headway.rl.spaces import Coding


@register_bonus("forward")
class Forward(Predictor):
    """Predicts the next observation from the observation and the action.

    A perceptron with two hidden layers on the flattened observation and the encoded action (one-hot if it is a
    choice). The loss of a transition is the mean squared error over the observation.
    """

    actions: Coding

    def __init__(
        self, observation_space: Any, action_space: Any, config: IntrinsicConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._read_spaces(observation_space, action_space, config)
        size = self._observations.size
        self.scored = perceptron([size + self.actions.size, config.hidden, config.hidden, size], generator)

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        inputs, targets = self.pairs(batch)
        guesses: Tensor = self.scored(inputs)
        losses = (guesses - targets).square().mean(1)
        errors = partial(self.errors, losses.detach(), inputs, targets)
        return Prediction(losses, errors, metrics={"forward_loss": losses.detach().mean()})

    def errors(self, losses: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """What the scorer "error" rewards [N], given the losses [N] and `pairs`: the losses themselves."""
        return losses

    def pairs(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """What the network is given [N, D + A] and what it should say [N, D]."""
        before, after = (self.seen(each, batch).flatten(1) for each in (batch.obs, batch.next_obs))
        return torch.cat([before, self.actions.encode(batch.actions)], dim=1), after


@torch.no_grad()
def layer_gradients(network: nn.Module, inputs: Tensor, targets: Tensor) -> list[tuple[nn.Linear, Tensor, Tensor]]:
    """The gradients of each sample's mean squared error, layer by layer, as outer products.

    The network has Linear layers with ReLU between them. For each of these the result has its inputs a [N, in] and
    b [N, out], such that sample i has the gradient b_i a_i' for the weight and b_i for the bias.
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
    """The forward model, rewarded by the prediction gain r_i = L_i(w) - L_i(w - rate grad L_i(w)).

    It is how much better the model would foretell transition i after learning from it: L_i is the loss, and w are the
    weights. Noise has a gain as well, since a model can learn one sample of it by heart. To each transition belong
    weights of its own, which are never built: W - rate b a' turns x into W x - rate b (a . x).

    M. Bellemare et al., Unifying Count-Based Exploration and Intrinsic Motivation (2016); A. Graves et al., Automated
    Curriculum Learning for Neural Networks (2017).

    Args:
        rate: the length of the step, above 0.
    """

    @with_options
    def __init__(self, *given: Any, rate: float = 0.1) -> None:
        super().__init__(*given)
        check_above_zero(rate=rate)
        self.rate = rate

    def errors(self, losses: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The gains [N]."""
        outputs = inputs
        for index, (layer, own, slope) in enumerate(layer_gradients(self.scored, inputs, targets)):
            outputs = outputs.relu() if index else outputs
            step = self.rate * slope * ((own * outputs).sum(1, keepdim=True) + 1)  # of the weight and of the bias
            outputs = F.linear(outputs, layer.weight, layer.bias) - step
        return losses - (outputs - targets).square().mean(1)


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

    R. Houthooft et al., VIME: Variational Information Maximizing Exploration (2016).

    Args:
        prior: the deviation of a weight before anything is seen, above 0.
    """

    @with_options
    def __init__(self, *given: Any, prior: float = 0.5) -> None:
        super().__init__(*given)
        check_above_zero(prior=prior)
        for name, parameter in self.scored.named_parameters():
            self.register_buffer(f"precision_{name.replace('.', '_')}", torch.full_like(parameter, prior**-2))

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

    def _squares(self, inputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """For each layer the precisions of weight and bias, and the squares of what makes up its gradients."""
        factor = targets.shape[1] / 2
        names = [name for name, layer in self.scored.named_children() if isinstance(layer, nn.Linear)]
        for name, (_, own, slope) in zip(names, layer_gradients(self.scored, inputs, targets), strict=True):
            weight, bias = (getattr(self, f"precision_{name}_{kind}") for kind in ("weight", "bias"))
            yield weight, bias, own.square(), (factor * slope).square()


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
        members: K, at least 2.
    """

    actions: Coding

    @with_options
    def __init__(self, *given: Any, members: int = 5) -> None:
        super().__init__()
        check_least(2, members=members)
        observation_space, action_space, config, generator = given
        self._read_spaces(observation_space, action_space, config)
        features, hidden = config.features, config.hidden
        self.encoder = random_encoder(self._observations.shape, config, generator)
        widths = [features + self.actions.size, hidden, features]
        self.scored = Ensemble([perceptron(widths, generator) for _ in range(members)])

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        with torch.no_grad():
            rows, indices = distinct_rows(torch.cat([batch.obs, batch.next_obs]))
            before, after = self.encoder(self.seen(rows, batch))[indices].split(len(batch))
        guesses: Tensor = self.scored(torch.cat([before, self.actions.encode(batch.actions)], dim=1))
        losses = (guesses - after[:, None]).square().mean((1, 2))

        def errors() -> Tensor:
            return guesses.detach().var(1, correction=0).mean(1)

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
        rate: the share of hidden units that are left out, between 0 and 1.
        passes: networks that guess, at least 2.
    """

    draws: Tensor

    @with_options
    def __init__(self, *given: Any, rate: float = 0.1, passes: int = 10) -> None:
        super().__init__(*given)
        if not 0 < rate < 1:
            raise MethodError(f"rate: expected a share between 0 and 1, got {rate}")
        check_least(2, passes=passes)
        self.rate, self.passes = rate, passes
        layers = [each for each in self.scored.children() if isinstance(each, nn.Linear)]
        self._hidden = [each.out_features for each in layers[:-1]]
        self.scored = MaskedPerceptron(self.scored)
        self.register_buffer("draws", torch.randint(2**62, (), generator=given[-1]))

    def predict(self, batch: Transitions, train: bool) -> Prediction:
        """See `Predictor.predict`."""
        inputs, targets = self.pairs(batch)
        generator = torch.Generator().manual_seed(int(self.draws))
        masks = self._masks(self.passes, generator, inputs)
        if train:
            self.draws += 1
        losses = (self.scored(inputs, self._masks(len(batch), generator, inputs)) - targets).square().mean(1)

        @torch.no_grad()
        def errors() -> Tensor:
            guesses = torch.stack([self.scored(inputs, [mask[k] for mask in masks]) for k in range(self.passes)])
            return guesses.var(0, correction=0).mean(1)

        return Prediction(losses, errors, metrics={"forward_loss": losses.detach().mean()})

    def _masks(self, count: int, generator: torch.Generator, like: Tensor) -> list[Tensor]:
        """For each hidden layer a mask [count, width] of 0 and 1 / (1 - rate)."""
        kept = 1 - self.rate
        drawn = (torch.rand(count, width, generator=generator) < kept for width in self._hidden)
        return [mask.to(like) / kept for mask in drawn]
