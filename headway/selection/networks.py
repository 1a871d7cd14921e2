"""Small networks whose weights come from a generator that is passed in."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A Linear layer with torch's usual initialisation: uniform within 1 / sqrt(inputs), weight and bias."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = inputs**-0.5
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer


def perceptron(sizes: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [linear(inputs, outputs, generator), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


class PlainLogits(nn.Module):
    """A policy without inputs: one number per arm."""

    def __init__(self, arms: int) -> None:
        """Start uniform."""
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(arms))

    def forward(self, noise: Tensor) -> Tensor:
        """The same logits for every row of `noise`: [B, arms]."""
        return self.logits.expand(len(noise), -1)
