"""The autograd nodes that listen: identities whose backward hands (inputs, output gradients) to the engine.

An identity on a module's output is the one place where in-place activations, checkpointing and DDP all
leave the output gradient intact. It returns `detach()`ed aliases, so that an in-place operation behind it
is legal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from headway.errors import LossError, RuleError
from headway.grads.passes import Pass
from headway.grads.rounding import nodes
from headway.grads.segments import by_segment
from headway.grads.sharded import ShardedPass


class Listener(Protocol):
    """Whoever wants to know the gradients at some outputs."""

    def collect(self, current: Pass, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """Take the saved tensors and the gradients at the outputs into a pass."""
        ...


class TrainingListener(Protocol):
    """A listener that also supplies the gradients of the module's parameters."""

    def collect_and_train(self, saved: Sequence[Tensor], grad: Tensor) -> Sequence[Tensor]:
        """Take the saved tensors and the gradient at the output; return the parameters' gradients."""
        ...


class _Observe(torch.autograd.Function):
    """Identity on some outputs that reports their gradients."""

    @staticmethod
    def forward(ctx: Any, listener: Listener, saved: Sequence[Tensor], *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.listener = listener
        ctx.save_for_backward(*saved)
        return tuple(output.detach() for output in outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        report(ctx.listener, lambda: _saved(ctx), grads)
        if torch.is_grad_enabled():  # create_graph=True
            grads = _again(ctx.listener, False, grads)
        return (None, None, *grads)


class _ObserveAndTrain(torch.autograd.Function):
    """Identity on an output made with detached parameters; its backward supplies their gradients."""

    @staticmethod
    def forward(
        ctx: Any, listener: TrainingListener, saved: Sequence[Tensor], output: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.listener = listener
        ctx.save_for_backward(*saved)
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        with torch.no_grad():
            grads = (grad, *ctx.listener.collect_and_train(_saved(ctx), grad))
        if torch.is_grad_enabled():  # create_graph=True
            grads = _again(ctx.listener, True, grads)
        return (None, None, *grads)


class _Derivative(torch.autograd.Function):
    """Identity on gradients that may be differentiated again, which refuses where that would go wrong."""

    @staticmethod
    def forward(ctx: Any, listener: Any, trained: bool, anchor: Tensor, *grads: Tensor) -> tuple[Tensor, ...]:
        ctx.listener, ctx.trained = listener, trained
        return tuple(grad.detach() for grad in grads)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        site = _site(ctx.listener)
        if site.engine.current is not None or site.engine.is_paused:  # a pass of the meter
            raise LossError(
                f"{_name(ctx.listener)}: expected losses of the model's outputs, got losses that contain its gradients "
                f"(create_graph=True), which headway cannot share out over samples; leave that part out of the losses, "
                f"and give it a backward pass of its own, with Meter(..., simultaneous=False)"
            )
        if ctx.trained:
            raise RuleError(
                f"{_name(ctx.listener)}: expected a gradient that is used once, got one to differentiate again "
                f"(create_graph=True), although it was summed outside of autograd; pass simultaneous=False to the meter"
            )
        return (None, None, None, *grads)


def report(listener: Any, saved: Callable[[], Sequence[Tensor]], grads: Sequence[Tensor]) -> None:
    """Hand gradients of a pass to a listener; in a sharded model an error waits until all ranks are through it."""
    engine = _site(listener).engine
    try:
        tensors, current = saved(), engine.collecting
        if current is not None:
            listener.collect(current, tensors, grads)
    except Exception as error:
        current = engine.current
        if not isinstance(current, ShardedPass):
            raise
        current.give_up(_parameters(listener), error)


def _parameters(listener: Any) -> Sequence[str]:
    """The names of the parameters whose gradients a listener gives."""
    listener = getattr(listener, "listener", listener)  # of segments
    names: Sequence[str] = listener.params if hasattr(listener, "params") else _site(listener).names
    return names


def reached(losses: Tensor) -> list[Sequence[str]]:
    """The parameters of each observed call that losses depend on, in the order in which a backward pass gets there."""
    found = [node for node in nodes(losses) if hasattr(node, "listener")]
    return [_parameters(node.listener) for node in sorted(found, key=lambda node: -node._sequence_nr())]


def _again(listener: Any, trained: bool, grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The gradients, in a graph in which a second derivative is noticed, also where they are constants."""
    anchor = grads[0].new_ones((), requires_grad=True)
    result: tuple[Tensor, ...] = _Derivative.apply(listener, trained, anchor, *grads)
    return result


def _site(listener: Any) -> Any:
    """The site of a listener, or the listener itself if it has none."""
    return getattr(listener, "site", listener)


def _name(listener: Any) -> str:
    """How errors call a listener: the path of its module, or the operation on parameters."""
    site = _site(listener)
    return str(site.path if hasattr(site, "path") else site.name)


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
            f"{_name(ctx.listener)}: expected inputs that stay as they are until the backward pass, got one that was "
            f"changed in place after the call; write x = x + y in place of x += y there, or give the call a copy, "
            f"x.clone()"
        ) from error
    return tuple(tensor.detach() for tensor in saved) if torch.is_grad_enabled() else saved


def observe(listener: Listener, outputs: Sequence[Tensor], saved: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the outputs unchanged, and have the listener told of their gradients in the backward pass."""
    result: tuple[Tensor, ...] = _Observe.apply(by_segment(listener, outputs), tuple(saved), *outputs)
    return result


def observe_and_train(
    listener: TrainingListener, output: Tensor, parameters: Sequence[Tensor], saved: Sequence[Tensor]
) -> Tensor:
    """As `observe`, for an output that does not depend on `parameters` in the graph; the listener trains them."""
    result: Tensor = _ObserveAndTrain.apply(by_segment(listener, [output]), tuple(saved), output, *parameters)
    return result
