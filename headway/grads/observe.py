"""The autograd nodes that listen: identities whose backward hands (inputs, output gradients) to the engine.

An identity on a module's output is the one place where in-place activations, checkpointing and DDP all
leave the output gradient intact. It returns `detach()`ed aliases, so that an in-place operation behind it
is legal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.errors import RuleError


class Listener(Protocol):
    """Whoever wants to know the gradients at some outputs."""

    def collect(self, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """Take the saved tensors and the gradients at the outputs."""
        ...


class TrainingListener(Protocol):
    """A listener that also supplies the gradients of the module's parameters."""

    def collect_and_train(self, saved: Sequence[Tensor], grad: Tensor) -> Sequence[Tensor]:
        """Take the saved tensors and the gradient at the output; return the parameters' gradients."""
        ...


class _Observe(torch.autograd.Function):
    """Identity on `count` outputs that reports their gradients."""

    @staticmethod
    def forward(ctx: Any, listener: Listener, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.listener = listener
        ctx.extra = len(tensors) - count
        ctx.save_for_backward(*tensors[count:])
        return tuple(output.detach() for output in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        ctx.listener.collect(_saved(ctx), grads)
        return (None, None, *grads, *(None for _ in range(ctx.extra)))


class _ObserveAndTrain(torch.autograd.Function):
    """Identity on an output made with detached parameters; its backward supplies their gradients."""

    @staticmethod
    def forward(ctx: Any, listener: TrainingListener, count: int, output: Tensor, *tensors: Tensor) -> Tensor:
        ctx.listener = listener
        ctx.save_for_backward(*tensors[count:])
        return output.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        saved = _saved(ctx)
        return (None, None, grad, *ctx.listener.collect_and_train(saved, grad), *(None for _ in saved))


def _saved(ctx: Any) -> tuple[Tensor, ...]:
    """The tensors that a node has saved.

    Raises:
        RuleError: one of them was changed in place.
    """
    try:
        saved: tuple[Tensor, ...] = ctx.saved_tensors
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        site = getattr(ctx.listener, "site", ctx.listener)
        name = getattr(site, "path", None) or getattr(site, "name", "a module")
        raise RuleError(
            f"{name}: expected inputs that stay as they are until the backward pass, got one that was changed in place "
            f"after the call; write x = x + y in place of x += y there, or give the call a copy, x.clone()"
        ) from error
    return saved


def observe(listener: Listener, outputs: Sequence[Tensor], saved: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs unchanged, and have the listener told of their gradients in the backward pass."""
    detached = [tensor.detach() for tensor in saved]
    result: tuple[Tensor, ...] = _Observe.apply(listener, len(outputs), *outputs, *detached)
    return result


def observe_and_train(
    listener: TrainingListener, output: Tensor, parameters: Sequence[Tensor], saved: Sequence[Tensor]
) -> Tensor:
    """As `observe`, for an output that does not depend on `parameters` in the graph; the listener trains them."""
    detached = [tensor.detach() for tensor in saved]
    result: Tensor = _ObserveAndTrain.apply(listener, len(parameters), output, *parameters, *detached)
    return result
