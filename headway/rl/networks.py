"""The networks of agents and bonuses. Their weights come from a generator that is passed in."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import MethodError
from headway.rl.config import IntrinsicConfig, PPOConfig
from headway.rl.spaces import Layout, Observations, is_image, is_joint, unclear_image

SMALL_IMAGE = 24
"""The longest side of an image that is treated as a grid: one cell, one pixel."""

Initialise = Callable[[nn.Linear | nn.Conv2d, torch.Generator], None]


@torch.no_grad()
def uniform(layer: nn.Linear | nn.Conv2d, generator: torch.Generator) -> None:
    """torch's usual initialisation: uniform within 1 / sqrt(inputs), weight and bias."""
    bound = layer.weight[0].numel() ** -0.5
    layer.weight.uniform_(-bound, bound, generator=generator)
    if layer.bias is not None:
        layer.bias.uniform_(-bound, bound, generator=generator)


@torch.no_grad()
def orthogonal(layer: nn.Linear | nn.Conv2d, generator: torch.Generator) -> None:
    """Orthogonal rows of length sqrt(2), no bias: random features that keep distances."""
    nn.init.orthogonal_(layer.weight, math.sqrt(2.0), generator=generator)
    if layer.bias is not None:
        layer.bias.zero_()


def make_layer(
    generator: torch.Generator, initialise: Initialise, kind: type[nn.Module], *sizes: int, **options: int
) -> Any:
    """A Linear layer or a convolution of these sizes."""
    layer: Any = nn.utils.skip_init(kind, *sizes, **options)
    initialise(layer, generator)
    return layer


def perceptron(sizes: Sequence[int], generator: torch.Generator, initialise: Initialise = uniform) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [make_layer(generator, initialise, nn.Linear, inputs, outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


class Parts(nn.Module):
    """An encoder for each of several observations of these shapes, and their features side by side."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], encoders: Sequence[nn.Module]) -> None:
        super().__init__()
        self._shapes = list(shapes)
        self.encoders = nn.ModuleList(encoders)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows [N, D] to features [N, features of all]."""
        columns = rows.split([math.prod(shape) for shape in self._shapes], dim=1)
        parts = zip(self.encoders, columns, self._shapes, strict=True)
        return torch.cat([encoder(own.reshape(-1, *shape)) for encoder, own, shape in parts], dim=1)


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x)))), 3x3: a residual block of IMPALA."""

    def __init__(self, convolutions: Sequence[nn.Conv2d]) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(convolutions)

    def forward(self, planes: Tensor) -> Tensor:
        """Planes [N, C, H, W] to others of that shape."""
        change = planes
        for convolution in self.convolutions:
            change = convolution(torch.relu(change))
        return planes + change


def make_impala(
    shape: Sequence[int], outputs: int, generator: torch.Generator, initialise: Initialise = uniform
) -> nn.Sequential:
    """The residual network of IMPALA (L. Espeholt et al., 2018): 16, 32, 32 channels, then a layer of 256."""
    convolution = partial(make_layer, generator, initialise, nn.Conv2d, kernel_size=3, padding=1)
    layers: list[nn.Module] = []
    depth, sides = shape[0], list(shape[1:])
    for channels in (16, 32, 32):
        layers += [convolution(depth, channels), nn.MaxPool2d(3, 2, 1)]
        layers += [Residual([convolution(channels, channels) for _ in range(2)]) for _ in range(2)]
        depth, sides = channels, [(side - 1) // 2 + 1 for side in sides]
    layers += [nn.ReLU(), nn.Flatten(), *perceptron([depth * math.prod(sides), 256, outputs], generator, initialise)]
    return nn.Sequential(*layers)


def make_encoder(
    shape: Sequence[int],
    outputs: int,
    hidden: int,
    generator: torch.Generator,
    initialise: Initialise = uniform,
    kind: str = "auto",
    with_layer: bool = True,
) -> nn.Sequential:
    """A network from observations to features, without an activation at the end.

    Grids and small images get three convolutions (32, 64, 64 channels, 3x3, padding 1) and a layer of 128; images
    with a side over 24 get strided convolutions (8x8 by 4, 4x4 by 2, 3x3) and a layer of 512; vectors get two layers
    of `hidden`. ReLU throughout. Rows of several observations (`Layout`) get an encoder for each, and a layer that
    joins their features.

    The shape of an observation is [C, H, W] or [D]. Convolutions are of a kind: "grid" as for small images, "nature" as
    for large ones, "impala", or "auto" by size; with `with_layer` False no layer follows them but the features.
    """
    if isinstance(shape, Layout):
        own = [make_encoder(part, hidden, hidden, generator, initialise, kind) for part in shape.parts]
        last_layer = make_layer(generator, initialise, nn.Linear, hidden * len(own), outputs)
        return nn.Sequential(Parts(shape.parts, own), nn.ReLU(), last_layer)
    if len(shape) == 3 and kind == "impala":
        return make_impala(shape, outputs, generator, initialise)
    if len(shape) == 1:
        return perceptron([shape[0], hidden, hidden, outputs], generator, initialise)
    if kind == "grid" or (kind == "auto" and max(shape[1:]) <= SMALL_IMAGE):
        kernels, last = [(32, 3, 1, 1), (64, 3, 1, 1), (64, 3, 1, 1)], 128
    else:
        kernels, last = [(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)], 512
    layers: list[nn.Module] = []
    channels, sides = shape[0], list(shape[1:])
    for out_channels, kernel, stride, padding in kernels:
        padding += -(-max(0, kernel - min(sides) - 2 * padding) // 2)  # where the image is narrower than the kernel
        layer = make_layer(generator, initialise, nn.Conv2d, channels, out_channels, kernel, stride, padding)
        layers += [layer.to(memory_format=torch.channels_last), nn.ReLU(inplace=True)]  # quicker on processors
        channels, sides = out_channels, [(side + 2 * padding - kernel) // stride + 1 for side in sides]
    widths = [channels * math.prod(sides), *([last] if with_layer else []), outputs]
    layers += [nn.Flatten(), *perceptron(widths, generator, initialise)]
    return nn.Sequential(*layers)


def random_encoder(shape: Sequence[int], config: IntrinsicConfig, generator: torch.Generator) -> nn.Sequential:
    """A network to `config.features` random features, which does not learn."""
    encoder = make_encoder(shape, config.features, config.hidden, generator, orthogonal, config.encoder)
    return encoder.requires_grad_(False)


class ConvNet(nn.Module):
    """Convolutions (3x3, padding 1), then layers of these widths, with ReLU between all of them.

    Weights and activations are held with the channels last: that is how observations [H, W, C] come, and processors
    convolve it faster.
    """

    def __init__(
        self, shape: Sequence[int], widths: Sequence[int], config: PPOConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._channels_first = bool(config.channels_first)
        initialise, channels = _initialisation(config), config.channels
        height, width, depth = (*shape[1:], shape[0]) if self._channels_first else shape
        self.convolutions = nn.ModuleList()
        for inputs, outputs in itertools.pairwise([depth, *channels]):
            layer = make_layer(generator, initialise, nn.Conv2d, inputs, outputs, kernel_size=3, padding=1)
            self.convolutions.append(layer.to(memory_format=torch.channels_last))
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


class Encoded(nn.Module):
    """An encoder that reads observations as predictors do: several parts at once, or convolutions by name.

    It scales observations itself.
    """

    def __init__(self, space: Any, outputs: int, config: PPOConfig, generator: torch.Generator) -> None:
        super().__init__()
        self._observations = Observations(space, config)
        kind = config.network if config.network in ("nature", "impala") else "auto"
        width = config.hidden[-1] if config.hidden else 64
        shape = self._observations.shape
        self.layers = make_encoder(shape, outputs, width, generator, _initialisation(config), kind)

    def forward(self, observations: Tensor) -> Tensor:
        """Observations [B, ...] to outputs [B, outputs]."""
        outputs: Tensor = self.layers(self._observations.read(observations))
        return outputs


def network_for(
    space: Any, outputs: int, config: PPOConfig, generator: torch.Generator, last_gain: float = 1.0
) -> nn.Module:
    """A network from observations of a space to some numbers; its `layers` end with a Linear one.

    The rows of the last layer have the length `last_gain` when it starts, under orthogonal initialisation.

    Raises:
        MethodError: convolutions for observations that are no images, or images that look like [C, H, W] and are not
            said to be.
        EnvError: a space that has no coding.
    """
    by_name, shape = config.network in ("nature", "impala"), space.shape
    if by_name and not is_joint(space) and not is_image(space):
        raise MethodError(f"network: expected 'mlp' or 'auto' for {space}, got {config.network!r}, for images")
    network: nn.Module
    if by_name or is_joint(space):
        _check_images(space, config)
        network = Encoded(space, outputs, config, generator)
    elif config.network == "mlp" or (config.network == "auto" and len(shape) != 3):
        layers = perceptron([math.prod(shape), *config.hidden, outputs], generator, _initialisation(config))
        network = nn.Sequential(OrderedDict(flatten=nn.Flatten(), layers=layers))
    elif len(shape) == 3:
        _check_images(space, config)
        network = ConvNet(shape, [*config.hidden, outputs], config, generator)
    else:
        raise MethodError(
            f"network: expected 'mlp' for observations of shape {list(shape)}, got 'cnn', which takes [H, W, C]"
        )
    if config.initialisation == "orthogonal":
        with torch.no_grad():
            network.layers[-1].weight.mul_(last_gain / math.sqrt(2.0))  # type: ignore[index, union-attr]
    return network


def _initialisation(config: PPOConfig) -> Initialise:
    return orthogonal if config.initialisation == "orthogonal" else uniform


def _check_images(space: Any, config: PPOConfig) -> None:
    unclear = unclear_image(space)
    if unclear is not None and config.channels_first is None:
        raise MethodError(
            f"channels_first: expected True or False, got None for observations of shape {list(unclear)}, which look "
            f"like [C, H, W]; use PPOConfig(channels_first=True), with observation_scale=1/255 for pixels, or "
            f"channels_first=False if they are [H, W, C]"
        )
