"""Small models and batches that several tests share."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway import segments


def mlp(dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Sequential:
    """A perceptron 6-8-8-4."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to(dtype)


def batch(samples: int = 10, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs [B, 6] and labels [B]."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(0, 4, (samples,), generator=generator)


def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy per sample [B]."""
    return F.cross_entropy(model(x), y, reduction="none")


def sample_gradients(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Gradients of every sample [B, *shape], one backward pass each, without headway."""
    parameters = dict(model.named_parameters())
    rows = [
        torch.autograd.grad(losses(model, x[i : i + 1], y[i : i + 1]).sum(), list(parameters.values()))
        for i in range(len(x))
    ]
    return {name: torch.stack(column) for name, column in zip(parameters, zip(*rows, strict=True), strict=True)}


class Experts(nn.Module):
    """Tokens [B, T] to scores [B, T, V], by way of the two of four experts that each token chooses.

    Args:
        direct: the weights of all experts are one parameter, of which slices are used; a module each otherwise.
        segmented: tell headway whose the rows of an expert are.
    """

    def __init__(self, direct: bool = False, segmented: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.router, self.head = nn.Embedding(19, 8), nn.Linear(8, 4), nn.Linear(8, 19)
        self.weights = nn.Parameter(torch.randn(4, 8, 8)) if direct else None
        self.experts = nn.ModuleList([] if direct else [nn.Linear(8, 8) for _ in range(4)])
        self.segmented = segmented
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        """See the class."""
        x = self.embedding(tokens)
        rows_of_all, owners = x.flatten(0, 1), torch.arange(len(x)).repeat_interleave(x.shape[1])
        shares = self.router(x).softmax(-1).flatten(0, 1)
        best, chosen = shares.topk(2)
        gates = torch.zeros_like(shares).scatter(1, chosen, best)
        out = torch.zeros_like(rows_of_all)
        for number in range(4):
            rows = gates[:, number].nonzero().squeeze(1)
            rows = rows if len(rows) else rows.new_zeros(1)
            with segments(owners[rows], samples=len(x)) if self.segmented else nullcontext():
                done = self._expert(number, rows_of_all[rows])
            out = out.index_add(0, rows, done * gates[rows, number].unsqueeze(1))
        scores: Tensor = self.head(x + out.view_as(x))
        return scores

    def _expert(self, number: int, rows: Tensor) -> Tensor:
        done: Tensor = self.experts[number](rows) if self.weights is None else F.linear(rows, self.weights[number])
        return done.tanh()
