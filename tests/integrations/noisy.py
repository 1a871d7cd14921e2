"""Two sources, one of which is noise: what every adapter has to move away from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from headway.selection import Mixture, MultiplicativeWeights, SourceStream

STEPS, BATCH = 240, 16
FAST = MultiplicativeWeights(strength=3.0, rate=0.1)


class Points:
    """Vectors of six numbers with one of four classes: by a rule that can be learned, or at random."""

    def __init__(self, noise: bool) -> None:
        self._noise = noise

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        generator = torch.Generator().manual_seed(int(self._noise))
        while True:
            x = torch.randn(6, generator=generator)
            drawn = int(torch.randint(4, (), generator=generator))
            yield x, drawn if self._noise else int(x[0] > 0) + 2 * int(x[1] > 0)


def points(**options: Any) -> SourceStream:
    """A stream of a rule and noise, from equal shares."""
    mixture = Mixture(["rule", "noise"], FAST)
    return SourceStream({"rule": Points(noise=False), "noise": Points(noise=True)}, mixture, **options)


def texts(noise: bool, length: int = 10, vocabulary: int = 16) -> Iterator[dict[str, list[int]]]:
    """Rows of token numbers: counting on from a random start, or at random."""
    generator = torch.Generator().manual_seed(int(noise))
    while True:
        start = torch.randint(vocabulary, (length if noise else 1,), generator=generator)
        ids = start if noise else (start + torch.arange(length)) % vocabulary
        yield {"input_ids": ids.tolist(), "labels": ids.tolist()}
