"""Listening inside torch.compile.

A compiled graph cannot hold a Python callback, but it can hold an operator of our own, which the compiler
does not look into. `headway::observe` is the identity on a module's output; its backward is
`headway::collect`, which hands the gradient to the listener when the graph runs.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch._functorch.config
from torch import Tensor

from headway.grads.observe import report

if TYPE_CHECKING:
    from headway.grads.rule_sites import RuleSite


_LISTENERS: weakref.WeakValueDictionary[int, RuleSite] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def register(listener: RuleSite) -> int:
    """Give a listener the number by which a compiled graph knows it."""
    number = next(_numbers)
    _LISTENERS[number] = listener
    return number


@torch.library.custom_op("headway::observe", mutates_args=())
def observe(output: Tensor, saved: Sequence[Tensor], number: int) -> Tensor:
    """The identity; its backward reports to listener `number`."""
    listener = _LISTENERS.get(number)
    if listener is not None:
        listener.called(output)
    return output.clone()


@torch.library.custom_op("headway::collect", mutates_args=())
def collect(grad: Tensor, saved: Sequence[Tensor], number: int) -> Tensor:
    """The identity on a gradient, which listener `number` gets to see."""
    listener = _LISTENERS.get(number)
    if listener is not None:
        report(listener, lambda: [tensor.detach() for tensor in saved], [grad])
    return grad.clone()


@observe.register_fake
def _(output: Tensor, saved: Sequence[Tensor], number: int) -> Tensor:
    # This runs while a graph is compiled. One whose backward gives its buffers away allows no second one, and with that
    # no check of its scores.
    torch._functorch.config.donated_buffer = False
    return torch.empty_like(output)


@collect.register_fake
def _(grad: Tensor, saved: Sequence[Tensor], number: int) -> Tensor:
    return torch.empty_like(grad)


def _remember(ctx: Any, inputs: tuple[Tensor, list[Tensor], int], output: Tensor) -> None:
    _, saved, ctx.number = inputs
    ctx.save_for_backward(*saved)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    return torch.ops.headway.collect(grad, saved, ctx.number), [None] * len(saved), None


observe.register_autograd(_backward, setup_context=_remember)
