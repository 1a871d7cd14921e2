"""The networks that are measured: perceptrons, a convolutional network, transformers."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers of the given widths with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cnn(channels: tuple[int, ...], side: int, hidden: int, classes: int) -> nn.Sequential:
    """3x3 convolutions with ReLU on images of `side` x `side`, then two linear layers."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [nn.Conv2d(inputs, outputs, kernel_size=3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), *mlp(channels[-1] * side * side, hidden, classes))


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] -> the same shape."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [B, heads, T, width / heads]
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return joined


class Block(nn.Module):
    """Attention and a perceptron four times as wide, each after a LayerNorm and beside a residual path."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] -> the same shape."""
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Transformer(nn.Module):
    """A causal language model: tokens and learned positions, blocks, a norm and a head.

    Args:
        layers: the number of blocks.
        width: the length of a token's vector.
        heads: of each attention.
        positions: T, the length of a sequence.
        vocabulary: the number of tokens.
    """

    def __init__(self, layers: int, width: int, heads: int, positions: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [B, T] -> logits [B, T, vocabulary]."""
        # Opacus takes the first dimension of every layer's input for the samples, so each gets its positions.
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        logits: Tensor = self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions(places))))
        return logits
