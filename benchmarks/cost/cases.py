"""The models that are measured, each with random data and one loss per sample.

Labels are drawn at random and anew for every batch, so that there is nothing to learn by heart and the gradients
stay of the size that they have in training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn


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


class Data(NamedTuple):
    """One batch: the inputs [B, ...] and the labels, [B] or [B, T]."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Case:
    """One model and the data that it is measured with.

    Attributes:
        key: its letter.
        title: what it is, in a few words.
        batch: B, the samples of a batch.
        model: makes the model; the weights come from torch's global generator.
        data: draws B samples.
        goal: the step with scores shall take at most this many times the plain step.
        memory_batches: the batch sizes at which memory is measured.
        peer_goal: each peer's step shall take at least this many times the step with scores.
    """

    key: str
    title: str
    batch: int
    model: Callable[[], nn.Module]
    data: Callable[[int, Generator], Data]
    goal: float
    memory_batches: tuple[int, ...]
    peer_goal: float = 1.0

    def build(self, seed: int = 0) -> nn.Module:
        """The model with the weights of a seed; the global generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.model()


def losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of each sample [B]; over a sequence, its mean over the positions.

    Args:
        logits: [B, classes] or [B, T, classes].
        labels: [B] or [B, T].
    """
    if labels.dim() == 1:
        return F.cross_entropy(logits, labels, reduction="none")
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels).mean(1)


def images(*shape: int, classes: int) -> Callable[[int, Generator], Data]:
    """Draws inputs [B, *shape] from a normal distribution and labels [B]."""

    def draw(batch: int, generator: Generator) -> Data:
        x = torch.randn(batch, *shape, generator=generator)
        return Data(x, torch.randint(classes, (batch,), generator=generator))

    return draw


def sequences(positions: int, vocabulary: int) -> Callable[[int, Generator], Data]:
    """Draws tokens [B, T] and, as labels, the tokens that follow them [B, T]."""

    def draw(batch: int, generator: Generator) -> Data:
        text = torch.randint(vocabulary, (batch, positions + 1), generator=generator)
        return Data(text[:, :-1].contiguous(), text[:, 1:].contiguous())

    return draw


def _transformer(key: str, title: str, layers: int, positions: int) -> Case:
    model = lambda: Transformer(layers, width=256, heads=4, positions=positions, vocabulary=128)  # noqa: E731
    return Case(key, title, 32, model, sequences(positions, 128), goal=1.4, memory_batches=(32,))


def _vectors(key: str, inputs: int) -> Case:
    model, data = lambda: mlp(inputs, 256, 256, 10), images(inputs, classes=10)
    return Case(key, f"MLP {inputs}-256-256-10", 256, model, data, 1.7, (256, 4096), peer_goal=25)


CASES: Mapping[str, Case] = {
    case.key: case
    for case in (
        _vectors("a", 784),
        _vectors("b", 3072),
        Case(
            key="c",
            title="CNN 32-64-64 on 4x8x8, 4096-128-7",
            batch=256,
            model=lambda: cnn((4, 32, 64, 64), side=8, hidden=128, classes=7),
            data=images(4, 8, 8, classes=7),
            goal=1.6,
            memory_batches=(256, 4096),
        ),
        _transformer("d", "transformer, 4 layers, 64 positions", layers=4, positions=64),
        _transformer("e", "GPT block, 256 positions", layers=1, positions=256),
    )
}
