"""torchdata: nodes of which the more is taken the more there is to learn from them.

    pip install 'headway-torch[torchdata]'
    python examples/torchdata_nodes.py [--quick]

Two streams without end, a rule and noise, are mixed by `SourceNodes`. Half-way the loader's state is saved and loaded
into a new pipeline, which goes on as the old one would have.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchdata.nodes import BaseNode, Batcher, Loader, Mapper

import headway
from headway.integrations.torchdata import SourceNodes

INPUTS, CLASSES, BATCH = 20, 5, 64
Sample = tuple[Tensor, Tensor]


class Points(BaseNode[Sample]):
    """Random inputs without end, labelled by a rule or by chance.

    Args:
        rule: weights [inputs, classes], or None for labels by chance.
        mark: the first input, which tells the streams apart.
        seed: where its randomness starts.
    """

    def __init__(self, rule: Tensor | None, mark: float, seed: int) -> None:
        """Draw nothing yet."""
        super().__init__()
        self._rule, self._mark, self._seed = rule, mark, seed
        self._generator = torch.Generator()

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin anew, or go on from a state."""
        super().reset(initial_state)
        if initial_state is None:
            self._generator.manual_seed(self._seed)
        else:
            self._generator.set_state(initial_state["generator"])

    def next(self) -> Sample:
        """The next sample."""
        x = torch.randn(INPUTS, generator=self._generator)
        chance = torch.randint(CLASSES, (), generator=self._generator)
        label = chance if self._rule is None else (x.clamp(min=0) @ self._rule).argmax()
        x[0] = self._mark
        return x, label

    def get_state(self) -> dict[str, Any]:
        """The generator's."""
        return {"generator": self._generator.get_state()}


def stack(samples: list[tuple[Tensor, Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Samples as one batch: inputs [B, inputs], labels [B], sources [B]."""
    x, y, source = zip(*samples, strict=True)
    return torch.stack(x), torch.stack(y), torch.tensor(source)


def make_pipeline() -> tuple[SourceNodes, Loader[Any]]:
    """Two streams, mixed and put into batches."""
    rule = torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(0))
    node = SourceNodes({"rule": Points(rule, -4.0, 1), "noise": Points(None, 4.0, 2)})
    return node, Loader(Mapper(Batcher(node, BATCH), stack))


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train on the mixture."""
    parser = argparse.ArgumentParser(description="torchdata nodes whose weights follow scores")
    parser.add_argument("--quick", action="store_true", help="200 batches")
    parser.add_argument("--steps", type=int, default=1000, help="batches")
    options = parser.parse_args(arguments)
    steps = 200 if options.quick else options.steps
    warnings.filterwarnings("ignore", message="'set_vital' is deprecated")  # torchdata calls it in newer torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.perf_counter()
    model = nn.Sequential(nn.Linear(INPUTS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    meter = headway.Meter(model, headway.GMC())
    node, loader = make_pipeline()
    batches: Iterator[Any] = iter(loader)
    for step in range(1, steps + 1):
        x, y, source = next(batches)
        scores = meter.backward(F.cross_entropy(model(x), y, reduction="none"))
        optimizer.step()
        optimizer.zero_grad()
        node.update(source, scores)
        if step == steps // 2:  # the weights are in the loader's state
            state = loader.state_dict()
            node, loader = make_pipeline()
            loader.load_state_dict(state)
            batches = iter(loader)
        if step % max(1, steps // 5) == 0:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in node.mixture.weights.items())
            print(f"{step:6} batches: {shares}", flush=True)
    print(f"{time.perf_counter() - start:.0f} s")
    return node.mixture.weights


if __name__ == "__main__":
    main()
