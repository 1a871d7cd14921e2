"""Networks that predictors are made of. Their weights come from a generator that is passed in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

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


def linear(inputs: int, outputs: int, generator: torch.Generator, initialise: Initialise = uniform) -> nn.Linear:
    """A Linear layer."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    initialise(layer, generator)
    return layer


def perceptron(sizes: Sequence[int], generator: torch.Generator, initialise: Initialise = uniform) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [linear(inputs, outputs, generator, initialise), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


class Layout(tuple[int, ...]):
    """The shape [D] of rows that hold several observations, one after the other.

    Args:
        parts: the shape of each.
    """

    parts: list[tuple[int, ...]]

    def __new__(cls, parts: Sequence[tuple[int, ...]]) -> Layout:
        """Add up the sizes."""
        made = super().__new__(cls, (sum(map(math.prod, parts)),))
        made.parts = list(parts)
        return made


class Parts(nn.Module):
    """An encoder for each of several observations, and their features side by side.

    Args:
        shapes: of the observations.
        encoders: one for each.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], encoders: Sequence[nn.Module]) -> None:
        """Keep both."""
        super().__init__()
        self._shapes = list(shapes)
        self.encoders = nn.ModuleList(encoders)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows [N, D] to features [N, features of all]."""
        columns = rows.split([math.prod(shape) for shape in self._shapes], dim=1)
        parts = zip(self.encoders, columns, self._shapes, strict=True)
        return torch.cat([encoder(own.reshape(-1, *shape)) for encoder, own, shape in parts], dim=1)


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x)))), 3x3: a residual block of IMPALA.

    Args:
        convolutions: the two.
    """

    def __init__(self, convolutions: Sequence[nn.Conv2d]) -> None:
        """Keep them."""
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

    def convolution(inputs: int, channels: int) -> nn.Conv2d:
        layer = nn.utils.skip_init(nn.Conv2d, inputs, channels, 3, padding=1)
        initialise(layer, generator)
        return layer

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

    Args:
        shape: of one observation: [C, H, W], or [D].
        outputs: the number of features.
        hidden: the width of layers for vectors.
        generator: where the weights come from.
        initialise: how they are drawn.
        kind: of convolutions: "grid" as for small images, "nature" as for large ones, "impala", or "auto" by size.
        with_layer: False for no layer between the convolutions and the features.
    """
    if isinstance(shape, Layout):
        own = [make_encoder(part, hidden, hidden, generator, initialise, kind) for part in shape.parts]
        last_layer = linear(hidden * len(own), outputs, generator, initialise)
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
        kernel, padding = _fitted(kernel, padding, sides)
        layer = nn.utils.skip_init(nn.Conv2d, channels, out_channels, kernel, stride, padding)
        initialise(layer, generator)
        layers += [layer.to(memory_format=torch.channels_last), nn.ReLU(inplace=True)]  # quicker on processors
        channels, sides = out_channels, [(side + 2 * padding - kernel) // stride + 1 for side in sides]
    widths = [channels * math.prod(sides), *([last] if with_layer else []), outputs]
    layers += [nn.Flatten(), *perceptron(widths, generator, initialise)]
    return nn.Sequential(*layers)


def _fitted(kernel: int, padding: int, sides: Sequence[int]) -> tuple[int, int]:
    """A kernel and padding; where the image is narrower than the kernel, the padding makes up for it."""
    short = max(0, kernel - min(sides) - 2 * padding)
    return kernel, padding + -(-short // 2)


def channels_first(images: Tensor) -> Tensor:
    """Images [N, H, W, C] as [N, C, H, W]."""
    return images.permute(0, 3, 1, 2)
