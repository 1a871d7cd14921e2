"""How far apart two ways to compute one gradient may be by rounding alone.

Some gradients are zero whatever the data: that of an attention's key bias, of a bias in front of an instance norm, of
anything that softmax or a normalisation takes away again. What is computed for them is rounding, left over by terms
that cancel, and has no size of its own to be compared with. Those terms are as large as the model's other gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor


def noise(precision: torch.dtype) -> float:
    """The norm that rounding may leave of a gradient that is zero, as a share of the norm of the whole gradient.

    That is 500 times the precision, the least that took part in computing it: a sum over the positions of an image of
    512 x 512 was seen to leave 45 times. For less than float32 it is twice the precision of bfloat16, as sums are made
    in float32.
    """
    return {torch.float64: 1e-13, torch.float32: 5e-5}.get(precision, 0.016)


def least_precision(losses: Tensor, others: Iterable[torch.dtype]) -> torch.dtype:
    """The least precise floating-point dtype in the graph of some losses, or among others that are known."""
    found = {losses.dtype, *others}
    for node in nodes(losses):
        found |= {metadata.dtype for metadata in getattr(node, "_input_metadata", ())}
    return max((dtype for dtype in found if dtype.is_floating_point), key=lambda dtype: torch.finfo(dtype).eps)


def nodes(losses: Tensor) -> Iterator[Any]:
    """The nodes of the graph that leads to some losses, each once."""
    waiting = [losses.grad_fn]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node is not None:
            yield node
            found = {following for following, _ in node.next_functions} - seen
            seen |= found
            waiting += found


def leaves_of(losses: Tensor) -> list[Tensor]:
    """The tensors whose `.grad` a backward pass of some losses would fill, as far as their graph shows them."""
    return [node.variable for node in nodes(losses) if hasattr(node, "variable")]
