"""Operations of parameters and samples that have a rule of their own, so that nothing has to be replayed.

A rule is a function of the gradient at the operation's output and of its arguments, in which a `Weight` stands for
every tensor that is made of parameters alone. All other tensors have the samples of a block first. It gives the
gradients at each weight, in the forms of the layers, or None where it does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.grads.conv import Geometry, convolve, twice
from headway.grads.linear import outer_product, rows_of, sum_positions
from headway.grads.persample import Dense, Outer, PerSample, RankOne, promote


@dataclass(frozen=True)
class Weight:
    """A tensor that is made of parameters alone, among the arguments of an operation.

    Attributes:
        place: which argument it is, among all that there are.
        shape: its shape.
    """

    place: int
    shape: tuple[int, ...]


Forms = dict[Weight, PerSample]
FormsFn = Callable[..., Forms | None]


@dataclass(frozen=True)
class OperationRule:
    """How the weights of an operation are scored.

    Attributes:
        forms: (gradient at the output, arguments) -> the gradients at the weights, or None if it does not apply.
        samples: the positions of arguments that have the samples first.
        broadcasts: they have them only if they have as many dimensions as the output.
    """

    forms: FormsFn
    samples: tuple[int, ...]
    broadcasts: bool = False

    def at(
        self, grad: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], start: int, stop: int
    ) -> Mapping[Weight, PerSample]:
        """The gradients at the weights for the rows from `start` to `stop` of an output; none if it does not apply."""
        own = list(args)
        for i in self.samples:
            if i < len(own) and isinstance(own[i], Tensor):
                if self.broadcasts and (own[i].dim() < grad.dim() or own[i].shape[0] == 1 < len(grad)):
                    continue
                if own[i].dim() == 0 or len(own[i]) != len(grad):
                    return {}
                own[i] = own[i][start:stop]
        try:
            return self.forms(grad[start:stop], *own, **kwargs) or {}
        except TypeError:  # an argument that the rule does not know
            return {}


RULES: dict[Any, OperationRule] = {}
"""Operation -> its rule."""


def operation_rule(
    *names: str, samples: tuple[int, ...] = (0, 1), broadcasts: bool = False
) -> Callable[[FormsFn], FormsFn]:
    """Register the decorated function as the rule for operations that torch, its functions or its tensors have."""

    def decorate(forms: FormsFn) -> FormsFn:
        for owner in (torch, F, Tensor):
            for name in names:
                if hasattr(owner, name):
                    RULES[getattr(owner, name)] = OperationRule(forms, samples, broadcasts)
        return forms

    return decorate


def _given(weight: Any, form: PerSample) -> Forms:
    """A form for an argument that may be a plain tensor or missing."""
    return {weight: form} if isinstance(weight, Weight) else {}


# Products


@operation_rule("linear", samples=(0,))
def _linear(grad: Tensor, x: Any, weight: Any, bias: Any = None) -> Forms | None:
    """y = x W^T + b."""
    if not isinstance(x, Tensor) or x.dim() < 2:
        return None
    a, b = promote(x, grad)
    return {**_given(weight, outer_product(a, b)), **_given(bias, sum_positions(b))}


@operation_rule("matmul", "mm", "bmm", "__matmul__")
def _matmul(grad: Tensor, left: Any, right: Any) -> Forms | None:
    """y = x W, or y = W x with the samples first in x."""
    if isinstance(left, Weight) == isinstance(right, Weight):
        return None
    weight, x = (left, right) if isinstance(left, Weight) else (right, left)
    lead = "abcdefgh"[: grad.dim() - 2]
    if len(weight.shape) < 2 or x.dim() != grad.dim() or x.dim() < 2 or len(weight.shape) > grad.dim():
        return None
    shared = lead[len(lead) - (len(weight.shape) - 2) :] if len(weight.shape) > 2 else ""
    if any(weight.shape[i] != grad.shape[len(lead) - len(shared) + i] for i in range(len(shared))):
        return None  # broadcast over sizes of 1
    if weight is left:
        return contract(grad, x, weight, f"{lead}jk", f"{shared}ij", f"{lead}ik")
    return contract(grad, x, weight, f"{lead}ij", f"{shared}jk", f"{lead}ik")


@operation_rule("__rmatmul__")
def _reversed_matmul(grad: Tensor, right: Any, left: Any) -> Forms | None:
    return _matmul(grad, left, right)


@operation_rule("addmm", samples=(1,))
def _addmm(grad: Tensor, bias: Any, x: Any, weight: Any) -> Forms | None:
    """y = b + x W."""
    product = _matmul(grad, x, weight) if isinstance(weight, Weight) and isinstance(x, Tensor) else None
    added = _add(grad, bias, 0.0) if isinstance(bias, Weight) else {}
    return None if product is None or added is None else {**product, **added}


@operation_rule("einsum", samples=(1, 2))
def _einsum(grad: Tensor, equation: Any, *operands: Any) -> Forms | None:
    """y = einsum of one weight and one tensor of samples."""
    if not isinstance(equation, str) or len(operands) != 2 or "->" not in equation:
        return None
    inputs, out = equation.replace(" ", "").split("->")
    subscripts = inputs.split(",")
    places = [i for i, operand in enumerate(operands) if isinstance(operand, Weight)]
    if len(places) != 1:
        return None
    of_weight, of_x = subscripts[places[0]], subscripts[1 - places[0]]
    weight, x = operands[places[0]], operands[1 - places[0]]
    if "..." in of_weight:
        return None
    if "..." in of_x:
        unused = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in equation]
        letters = "".join(unused[: x.dim() - len(of_x.replace("...", ""))])
        of_x, out = of_x.replace("...", letters), out.replace("...", letters)
    return contract(grad, x, weight, of_x, of_weight, out)


def contract(grad: Tensor, x: Tensor, weight: Weight, of_x: str, of_weight: str, of_out: str) -> Forms | None:
    """The form of a weight's gradient in y = einsum(x, weight), from the letters of all three dimensions.

    A letter of the weight is an input where x has it, an output where y has it, and tells groups apart where both
    have it. A letter that x and y have is a position, and the first of them is the sample.
    """
    each = (of_x, of_weight, of_out)
    if any(len(set(letters)) != len(letters) for letters in each) or not of_x or not of_out or of_x[0] != of_out[0]:
        return None
    if of_x[0] in of_weight or not set(of_weight) <= set(of_x + of_out):
        return None
    groups = [letter for letter in of_weight if letter in of_x and letter in of_out]
    d = [letter for letter in of_weight if letter in of_x and letter not in of_out]
    p = [letter for letter in of_weight if letter in of_out and letter not in of_x]
    positions = [letter for letter in of_x[1:] if letter in of_out and letter not in of_weight]
    x, grad = promote(x, grad)
    idle = [i for i, letter in enumerate(of_x) if letter not in of_out and letter not in of_weight]
    if idle:
        x, of_x = x.sum(idle), "".join(letter for i, letter in enumerate(of_x) if i not in idle)

    def arranged(tensor: Tensor, letters: str, own: Sequence[str]) -> Tensor:
        order = [letters.index(letter) for letter in (of_x[0], *groups, *positions, *own)]
        sizes = [tensor.shape[i] for i in order]
        first, second = 1 + len(groups), 1 + len(groups) + len(positions)
        shape = [math.prod(sizes[:first]), math.prod(sizes[first:second]), math.prod(sizes[second:])]
        return tensor.permute(order).reshape(shape)

    a, b = arranged(x, of_x, d), arranged(grad, of_out, p)
    if [*groups, *d, *p] == list(of_weight) and d:  # the weight has its inputs first
        a, b, d, p = b, a, p, d
    order = tuple(of_weight.index(letter) for letter in (*groups, *p, *d))
    plain = order == tuple(range(len(order)))
    count = math.prod([weight.shape[of_weight.index(letter)] for letter in groups])
    if plain and count == 1 and a.shape[1] == 1:
        return {weight: RankOne(a.squeeze(1), b.squeeze(1))}
    return {weight: Outer(a, b, count, None if plain else order, weight.shape)}


# Convolutions and tables


def _each(value: Any, dims: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * dims if len(values) == 1 else values


@operation_rule("conv1d", "conv2d", "conv3d", samples=(0,))
def _conv(
    grad: Tensor,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    transposed: bool = False,
) -> Forms | None:
    if not isinstance(x, Tensor) or x.dim() != grad.dim() or x.dim() != len(weight.shape):
        return None
    dims = x.dim() - 2
    dilation = _each(dilation, dims)
    if padding == "same":
        spans = [step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True)]
        pads = tuple(pad for span in reversed(spans) for pad in (span // 2, span - span // 2))
    else:
        pads = twice((0,) * dims if padding == "valid" else _each(padding, dims))
    geometry = Geometry(tuple(weight.shape), _each(stride, dims), pads, dilation, groups, transposed=transposed)
    forms = convolve(geometry, x, grad)
    return {**_given(weight, forms["weight"]), **_given(bias, forms["bias"])}


@operation_rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", samples=(0,))
def _conv_transpose(
    grad: Tensor,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Forms | None:
    return _conv(grad, x, weight, bias, stride, padding, dilation, groups, True)


@operation_rule("embedding", samples=(0,))
def _embedding(
    grad: Tensor,
    ids: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Forms | None:
    """Position t adds its gradient to the row that it looked up."""
    if not isinstance(weight, Weight) or max_norm is not None or scale_grad_by_freq:
        return None
    return {weight: rows_of(ids, grad, weight.shape[0], padding_idx)}


# Element by element


def _summed(grad: Tensor, weight: Weight) -> PerSample | None:
    """Gradients at an output [c, ...] as those of a weight that was broadcast to it; None if samples have own rows."""
    lead = grad.dim() - len(weight.shape)
    if lead < 0 or (lead == 0 and (not weight.shape or weight.shape[0] != 1)):
        return None
    repeated = [i for i in range(1, grad.dim()) if i < lead or (weight.shape[i - lead] == 1 and grad.shape[i] != 1)]
    values = grad.sum(repeated) if repeated else grad
    return Dense(values.reshape(len(grad), *weight.shape))


def _elementwise(grads: Sequence[tuple[Any, Tensor]]) -> Forms | None:
    forms: Forms = {}
    for weight, grad in grads:
        form = _summed(grad, weight)
        if form is None:
            return None
        forms[weight] = form
    return forms


@operation_rule("add", "add_", "__add__", "__radd__", "__iadd__", broadcasts=True)
def _add(grad: Tensor, left: Any, right: Any, *, alpha: float = 1) -> Forms | None:
    if isinstance(left, Weight) and isinstance(right, Weight):
        return None
    (b,) = promote(grad)
    weight, factor = (left, 1) if isinstance(left, Weight) else (right, alpha)
    return _elementwise([(weight, b if factor == 1 else b * factor)])


@operation_rule("sub", "sub_", "__sub__", "__isub__", broadcasts=True)
def _sub(grad: Tensor, left: Any, right: Any, *, alpha: float = 1) -> Forms | None:
    return _add(grad, left, right, alpha=-alpha)


@operation_rule("__rsub__", "rsub", broadcasts=True)
def _reversed_sub(grad: Tensor, left: Any, right: Any, *, alpha: float = 1) -> Forms | None:
    return _add(grad, right, left, alpha=-alpha)


@operation_rule("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__", broadcasts=True)
def _mul(grad: Tensor, left: Any, right: Any) -> Forms | None:
    weight, other = (left, right) if isinstance(left, Weight) else (right, left)
    if isinstance(other, Weight):
        return None
    if not isinstance(other, Tensor):
        return _elementwise([(weight, promote(grad)[0] * other)])
    b, factor = promote(grad, other)
    return _elementwise([(weight, b * factor)])
