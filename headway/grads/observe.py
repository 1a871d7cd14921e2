"""The autograd nodes that listen: identities whose backward hands (inputs, output gradients) to the engine.

An identity on a module's output is the one place where in-place activations, checkpointing and DDP all
leave the output gradient intact. It returns `detach()`ed aliases, so that an in-place operation behind it
is legal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from headway.errors import LossError, RuleError
from headway.grads.passes import Pass
from headway.grads.rounding import nodes
from headway.grads.segments import by_segment
from headway.grads.sharded import ShardedPass

if TYPE_CHECKING:
    from headway.grads.engine import Engine
    from headway.grads.rule_sites import TrainedCall


class Listener(Protocol):
    """Whoever wants to know the gradients at some outputs.

    Attributes:
        engine: the engine.
        path: how errors and layouts call the call: the path of its module, or the operation on parameters.
        names: the parameters whose gradients follow.
    """

    engine: Engine
    path: str
    names: tuple[str, ...]

    def collect(self, current: Pass, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """Take the saved tensors and the gradients at the outputs into a pass."""


class _Observe(torch.autograd.Function):
    """Identity on some outputs that reports their gradients.

    If the listener `trains`, that is on one output, which was made with detached parameters; they come next.
    """

    @staticmethod
    def forward(ctx: Any, listener: Any, trains: bool, saved: Sequence[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.listener, ctx.trains = listener, trains
        ctx.save_for_backward(*saved)
        return tuple(output.detach() for output in (tensors[:1] if trains else tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        if ctx.trains:
            with torch.no_grad():
                grads = (*grads, *ctx.listener.collect_and_train(_saved(ctx), grads[0]))
        else:
            report(ctx.listener, lambda: _saved(ctx), grads)
        if torch.is_grad_enabled():  # create_graph=True
            anchor = grads[0].new_ones((), requires_grad=True)  # so that it is noticed also where they are constants
            grads = _Derivative.apply(ctx.listener, ctx.trains, anchor, *grads)
        return (None, None, None, *grads)


class _Derivative(torch.autograd.Function):
    """Identity on gradients that may be differentiated again, which refuses where that would go wrong."""

    @staticmethod
    def forward(ctx: Any, listener: Any, trained: bool, anchor: Tensor, *grads: Tensor) -> tuple[Tensor, ...]:
        ctx.listener, ctx.trained = listener, trained
        return tuple(grad.detach() for grad in grads)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        engine = ctx.listener.engine
        if engine.current is not None or engine.is_paused:  # a pass of the meter
            raise LossError(
                f"{ctx.listener.path}: expected losses of the model's outputs, got losses that contain its gradients "
                f"(create_graph=True), which headway cannot share out over samples; leave that part out of the losses, "
                f"and give it a backward pass of its own, with Meter(..., simultaneous=False)"
            )
        if ctx.trained:
            raise RuleError(
                f"{ctx.listener.path}: expected a gradient that is used once, got one to differentiate again "
                f"(create_graph=True), although it was summed outside of autograd; pass simultaneous=False to the meter"
            )
        return (None, None, None, *grads)


def report(listener: Any, saved: Callable[[], Sequence[Tensor]], grads: Sequence[Tensor]) -> None:
    """Hand gradients of a pass to a listener; in a sharded model an error waits until all ranks are through it."""
    engine = listener.engine
    try:
        tensors, current = saved(), engine.collecting
        if current is not None:
            listener.collect(current, tensors, grads)
    except Exception as error:
        current = engine.current
        if not isinstance(current, ShardedPass):
            raise
        current.give_up(listener.names, error)


def reached(losses: Tensor) -> list[Sequence[str]]:
    """The parameters of each observed call that losses depend on, in the order in which a backward pass gets there."""
    found = [node for node in nodes(losses) if hasattr(node, "listener")]
    return [node.listener.names for node in sorted(found, key=lambda node: -node._sequence_nr())]


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
        raise RuleError(
            f"{ctx.listener.path}: expected inputs that stay as they are until the backward pass, got one that was "
            f"changed in place after the call; write x = x + y in place of x += y there, or give the call a copy, "
            f"x.clone()"
        ) from error
    return tuple(tensor.detach() for tensor in saved) if torch.is_grad_enabled() else saved


def observe(listener: Listener, outputs: Sequence[Tensor], saved: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs unchanged, and have the listener told of their gradients in the backward pass."""
    return _Observe.apply(by_segment(listener, outputs), False, tuple(saved), *outputs)


def observe_and_train(
    listener: TrainedCall, output: Tensor, parameters: Sequence[Tensor], saved: Sequence[Tensor]
) -> Tensor:
    """As `observe`, for an output that does not depend on `parameters` in the graph; the listener trains them."""
    return _Observe.apply(by_segment(listener, [output]), True, tuple(saved), output, *parameters)[0]
