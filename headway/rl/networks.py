"""The networks of an agent: one for its policy, one for its values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.config import PPOConfig
from headway.rl.packing import is_joint, leaves
from headway.rl.predictors.base import Observations
from headway.rl.predictors.encoders import Initialise, make_encoder, orthogonal, perceptron, uniform
from headway.rl.spaces import is_image, looks_channels_first


class ConvNet(nn.Module):
    """Convolutions (3x3, padding 1), then layers, with ReLU between all of them.

    Weights and activations are held with the channels last: that is how observations [H, W, C] come, and processors
    convolve it faster.

    Args:
        shape: of an observation, [H, W, C].
        channels: outputs of the convolutions.
        widths: of the layers after them, the last one that of the outputs.
        generator: where the weights come from.
        initialise: how they are drawn.
        channels_first: observations are [C, H, W] instead.
    """

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int],
        widths: Sequence[int],
        generator: torch.Generator,
        initialise: Initialise = uniform,
        channels_first: bool = False,
    ) -> None:
        """Draw the weights."""
        super().__init__()
        self._channels_first = channels_first
        height, width, depth = (*shape[1:], shape[0]) if channels_first else shape
        self.convolutions = nn.ModuleList()
        for inputs, outputs in itertools.pairwise([depth, *channels]):
            convolution = nn.utils.skip_init(nn.Conv2d, inputs, outputs, 3, padding=1)
            initialise(convolution, generator)
            self.convolutions.append(convolution.to(memory_format=torch.channels_last))
        flat = height * width * (channels[-1] if channels else depth)
        self.layers = perceptron([flat, *widths], generator, initialise)

    def forward(self, observations: Tensor) -> Tensor:
        """Observations [B, H, W, C], or [B, C, H, W], to outputs [B, outputs]."""
        planes = observations
        if not self._channels_first:
            planes = observations.permute(0, 3, 1, 2)  # held with the channels last, so nothing moves
        for convolution in self.convolutions:
            planes = torch.relu_(convolution(planes))
        outputs: Tensor = self.layers(planes.permute(0, 2, 3, 1).flatten(1))
        return outputs


class Perceptron(nn.Module):
    """Layers with ReLU between them, on observations of any shape.

    Args:
        inputs: numbers of an observation.
        widths: of the layers, the last one that of the outputs.
        generator: where the weights come from.
        initialise: how they are drawn.
    """

    def __init__(
        self, inputs: int, widths: Sequence[int], generator: torch.Generator, initialise: Initialise = uniform
    ) -> None:
        """Draw the weights."""
        super().__init__()
        self.layers = perceptron([inputs, *widths], generator, initialise)

    def forward(self, observations: Tensor) -> Tensor:
        """Observations [B, ...] to outputs [B, outputs]."""
        outputs: Tensor = self.layers(observations.flatten(1))
        return outputs


class Encoded(nn.Module):
    """An encoder that reads observations as predictors do: several parts at once, or convolutions by name.

    Args:
        space: of the observations.
        outputs: how many numbers it gives.
        config: its kind, and the scale of observations, which are given as they are.
        generator: where the weights come from.
        initialise: how they are drawn.
    """

    def __init__(
        self, space: Any, outputs: int, config: PPOConfig, generator: torch.Generator, initialise: Initialise = uniform
    ) -> None:
        """Draw the weights."""
        super().__init__()
        self._observations = Observations(space, config)
        kind = config.network if config.network in ("nature", "impala") else "auto"
        width = config.hidden[-1] if config.hidden else 64
        self.layers = make_encoder(self._observations.shape, outputs, width, generator, initialise, kind)

    def forward(self, observations: Tensor) -> Tensor:
        """Observations [B, ...] to outputs [B, outputs]."""
        outputs: Tensor = self.layers(self._observations.read(observations))
        return outputs


def network_for(
    space: Any, outputs: int, config: PPOConfig, generator: torch.Generator, last_gain: float = 1.0
) -> ConvNet | Perceptron | Encoded:
    """A network from observations of a space to some numbers.

    Args:
        space: of the observations.
        outputs: how many numbers.
        config: its kind, widths and initialisation.
        generator: where the weights come from.
        last_gain: as for `make_network`.

    Raises:
        MethodError: as `make_network`.
        EnvError: a space that has no coding.
    """
    by_name = config.network in ("nature", "impala")
    if not is_joint(space) and not (by_name and is_image(space)):
        if by_name:
            raise MethodError(f"network: expected 'mlp' or 'auto' for {space}, got {config.network!r}, for images")
        return make_network(space.shape, outputs, config, generator, last_gain)
    for _, part in leaves(space):
        if is_image(part):
            _check_layout(part.shape, config)
    initialise = orthogonal if config.initialisation == "orthogonal" else uniform
    return _with_gain(Encoded(space, outputs, config, generator, initialise), config, last_gain)


def make_network(
    shape: Sequence[int], outputs: int, config: PPOConfig, generator: torch.Generator, last_gain: float = 1.0
) -> ConvNet | Perceptron | Encoded:
    """A network from observations to some numbers.

    Args:
        shape: of one observation.
        outputs: how many numbers.
        config: its kind, widths and initialisation.
        generator: where the weights come from.
        last_gain: the length of the rows of the last layer under the initialisation "orthogonal".

    Raises:
        MethodError: convolutions for observations that are no images, or images that look like [C, H, W] and are not
            said to be.
    """
    initialise = orthogonal if config.initialisation == "orthogonal" else uniform
    widths = [*config.hidden, outputs]
    network: ConvNet | Perceptron
    if config.network == "mlp" or (config.network == "auto" and len(shape) != 3):
        network = Perceptron(math.prod(shape), widths, generator, initialise)
    elif len(shape) == 3:
        _check_layout(shape, config)
        network = ConvNet(shape, config.channels, widths, generator, initialise, bool(config.channels_first))
    else:
        raise MethodError(
            f"network: expected 'mlp' for observations of shape {list(shape)}, got 'cnn', which takes [H, W, C]"
        )
    return _with_gain(network, config, last_gain)


def _with_gain(
    network: ConvNet | Perceptron | Encoded, config: PPOConfig, last_gain: float
) -> ConvNet | Perceptron | Encoded:
    """Give the rows of the last layer their length."""
    if config.initialisation == "orthogonal":
        with torch.no_grad():
            network.layers[-1].weight.mul_(last_gain / math.sqrt(2.0))  # type: ignore[operator]
    return network


def _check_layout(shape: Sequence[int], config: PPOConfig) -> None:
    if config.channels_first is None and looks_channels_first(shape):
        raise MethodError(
            f"channels_first: expected to be told, got none for observations of shape {list(shape)}, which look like "
            f"[C, H, W]; use PPOConfig(channels_first=True), with observation_scale=1/255 for pixels, or "
            f"channels_first=False if they are [H, W, C]"
        )
