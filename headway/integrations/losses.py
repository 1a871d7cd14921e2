"""A loss that a framework runs `backward` on, and that has the meter do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headway.grads.segments import Segments, segments
from headway.meter import Meter


def metered_loss(meter: Meter, losses: Tensor, then: Callable[[Any], None] | None = None) -> Tensor:
    """The mean of per-sample losses, as a scalar whose backward pass is the meter's.

    For training loops that call `loss.backward()` themselves. Whatever they do to the loss first, such as dividing it
    by the number of accumulated batches or multiplying it by the scale of a GradScaler, reaches `.grad`; scores and
    moments are of the losses as they are given here. Every such backward pass updates the moments, so that with
    accumulation a "batch" of theirs is a micro-batch; under DistributedDataParallel only those do that synchronise the
    gradients, with all since the one before (see `Meter.wrapped_in`).

    Args:
        meter: with the reduction "mean" and accumulate=1, which are its defaults.
        losses: one loss per sample [B].
        then: called with the scores when the pass is over; with None for a batch that `every` leaves out.

    Returns:
        The mean [].
    """

    def run(grad: Tensor) -> None:
        with torch.enable_grad():
            scores = meter.backward(losses, scaler=_Factor(grad.detach()))
        if then is not None:
            then(scores)

    trigger = torch.zeros((), device=losses.device, requires_grad=True)
    mean: Tensor = _Metered.apply(trigger, losses.detach().mean(), run)
    return mean


class _Metered(torch.autograd.Function):
    """Hands on a value; backward, calls a function with the gradient at it."""

    @staticmethod
    def forward(ctx: Any, trigger: Tensor, value: Tensor, run: Callable[[Tensor], None]) -> Tensor:
        ctx.run = run
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        run, ctx.run = ctx.run, None  # the graph of the losses is used up
        run(grads[0])
        return None, None, None


class _Factor:
    """A constant loss scale, as the meter takes it."""

    def __init__(self, factor: Tensor) -> None:
        self._factor = factor

    def scale(self, outputs: Any) -> Any:
        return outputs * self._factor


def packed_segments(inputs: Mapping[str, Any]) -> Segments | None:
    """Which sample each position of a packed batch [1, N] belongs to; None for a batch of another kind.

    Args:
        inputs: those of a language model, with `seq_idx` or `position_ids` as DataCollatorWithFlattening makes them.
    """
    tokens, numbers, places = (inputs.get(key) for key in ("input_ids", "seq_idx", "position_ids"))
    if tokens is None or len(tokens) != 1 or (numbers is None and places is None):
        return None
    found = segments(position_ids=places) if numbers is None else segments(numbers)
    return found if found.samples > 1 else None
