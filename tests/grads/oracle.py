"""The oracle of the tests of exactness: the L1 norm of every sample's own gradient, by autograd alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headway import Meter


def own_norms(model: nn.Module, losses: Callable[[], Tensor]) -> Tensor:
    """The norms [B] of losses that are computed here and now, one backward pass for each."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for loss in (computed := losses()):
        last = len(rows) == len(computed) - 1
        grads = torch.autograd.grad(loss, parameters, retain_graph=not last, allow_unused=True, materialize_grads=True)
        rows.append(sum(grad.abs().sum() for grad in grads))
    return torch.stack(rows)


def without(meter: Meter, losses: Callable[[], Tensor]) -> Tensor:
    """The same for a metered model, which the meter does not observe meanwhile; the random state stays as it was."""
    with meter._engine.paused(), torch.random.fork_rng(devices=[]):
        return own_norms(meter.model, losses)


def is_exact(scores: Tensor, expected: Tensor, tolerance: float = 1e-9) -> bool:
    """Whether scores agree, relative to the largest."""
    return bool((scores - expected).abs().max() <= tolerance * expected.abs().max())
