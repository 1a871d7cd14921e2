"""A training step (forward, backward, Adam, zero_grad) and the ways to score samples in it.

Every variant scores with the same GMC: m and v are moving averages of the batch gradient and of its square.
The peers get the per-sample gradients [B, *shape] of each parameter from their library and reduce them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.cost.cases import Case, Data, losses
from benchmarks.cost.peers import Unsupported, backpack, opacus, torch_func
from headway.errors import HeadwayError
from headway.meter import Meter
from headway.signals import GMC

Backward = Callable[[Data], Tensor | None]
"""Forward and backward pass of a batch: leaves `.grad` and returns one score per sample [B], or None."""

Step = Callable[[Data], Tensor | None]
"""A whole training step; returns what the backward pass returned."""


@dataclass(frozen=True)
class Variant:
    """One way to do a training step.

    Attributes:
        key: its name on the command line and in results.
        title: its name in tables and figures.
        backward: turns a model into the backward pass of this variant.
        peer: another library, which may be missing or not support a model.
    """

    key: str
    title: str
    backward: Callable[[nn.Module], Backward]
    peer: bool = True


def plain(model: nn.Module) -> Backward:
    """Training without scores."""

    def backward(data: Data) -> None:
        losses(model(data.x), data.y).mean().backward()

    return backward


def metered(model: nn.Module) -> Backward:
    """Training with headway's scores."""
    meter = Meter(model, GMC())

    def backward(data: Data) -> Tensor:
        scores: Tensor = meter.backward(losses(model(data.x), data.y))
        return scores

    return backward


VARIANTS: Mapping[str, Variant] = {
    variant.key: variant
    for variant in (
        Variant("plain", "plain step", plain, peer=False),
        Variant("headway", "headway", metered, peer=False),
        Variant("torch.func", "torch.func", torch_func),
        Variant("opacus", "Opacus", opacus),
        Variant("backpack", "BackPACK", backpack),
    )
}


def get_variant(key: str) -> Variant:
    """The variant of a name.

    Raises:
        HeadwayError: there is none; the message lists those that there are.
    """
    if key not in VARIANTS:
        raise HeadwayError(f"expected a variant out of {', '.join(VARIANTS)}, got {key!r}")
    return VARIANTS[key]


def make_step(variant: Variant, case: Case) -> Step:
    """The training step of a variant on a case, with a model of its own.

    Raises:
        Unsupported: the peer is not installed or cannot handle the model.
    """
    model = case.build()
    backward = variant.backward(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(data: Data) -> Tensor | None:
        scores = backward(data)
        optimizer.step()
        optimizer.zero_grad()
        return scores

    return step


def try_step(variant: Variant, case: Case, data: Data) -> Step:
    """A step that has run once.

    Raises:
        Unsupported: the peer is not installed or fails on the model; the message is its own.
    """
    try:
        step = make_step(variant, case)
        step(data)
    except Unsupported:
        raise
    except Exception as error:
        if not variant.peer:
            raise
        reason = next(iter(str(error).strip().splitlines()), "no message")
        raise Unsupported(f"{variant.title} fails: {type(error).__name__}: {reason[:200]}") from error
    return step
