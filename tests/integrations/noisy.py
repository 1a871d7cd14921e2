"""Two sources, one of which is noise on inputs of its own: what every adapter has to move away from by its defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from headway.selection import SourceStream

STEPS, BATCH = 300, 32
INPUTS, CLASSES = 20, 4
WORDS, FOLLOWERS = 16, 4
HIGHEST = 0.3
"""The share of noise after these steps, which begins at a half."""


class Points:
    """Vectors of 20 numbers with one of four classes: by a rule that takes longer than these steps, or at random.

    Args:
        noise: the classes are drawn at random.
        apart: the first number says whether they are, as if it came from elsewhere.
    """

    def __init__(self, noise: bool, apart: bool = True) -> None:
        self._noise, self._apart = noise, apart

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        rule = torch.Generator().manual_seed(0)
        inner, outer = (torch.randn(*shape, generator=rule) for shape in ((INPUTS, 8), (8, CLASSES)))
        generator = torch.Generator().manual_seed(1 + int(self._noise))
        while True:
            x = torch.randn(INPUTS, generator=generator)
            drawn = int(torch.randint(CLASSES, (), generator=generator))
            by_rule = int((torch.tanh(x @ inner) @ outer).argmax())
            if self._apart:
                x[0] = 4.0 if self._noise else -4.0
            yield x, drawn if self._noise else by_rule


def points(apart: bool = True, **options: Any) -> SourceStream:
    """A stream of a rule and noise, from equal shares, with the default rule."""
    return SourceStream({"rule": Points(False, apart), "noise": Points(True, apart)}, **options)


def perceptron() -> nn.Sequential:
    """What learns the points."""
    torch.manual_seed(0)
    sizes = nn.Linear(INPUTS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES)
    return nn.Sequential(*sizes)


def texts(noise: bool, length: int = 10) -> Iterator[dict[str, list[int]]]:
    """Rows of token numbers: words that each have four followers, or other words at random."""
    table = torch.randint(WORDS, (WORDS, FOLLOWERS), generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(int(noise))
    while True:
        ids = torch.randint(WORDS, (length,), generator=generator)
        if noise:
            ids += WORDS
        else:
            for place, choice in enumerate(torch.randint(FOLLOWERS, (length - 1,), generator=generator)):
                ids[place + 1] = table[ids[place], choice]
        yield {"input_ids": ids.tolist(), "labels": ids.tolist()}
