"""Rules for layers that multiply with a matrix: Linear, Bilinear, and Embedding, whose inputs choose its rows."""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn

from headway.errors import RuleError
from headway.grads.persample import BiasOf, Dense, Outer, PerSample, RankOne, Rows, promote, widened
from headway.grads.registry import Inputs, register_rule


def outer_product(a: Tensor, b: Tensor) -> PerSample:
    """Gradients of a [p, d] weight from inputs [c, ..., d] and output gradients [c, ..., p] of any precision."""
    if a.dim() > 3 or (a.dim() == 3 and a.shape[1] != 1):
        return Outer(a.flatten(1, -2), b.flatten(1, -2))
    a, b = promote(a, b)
    if a.dim() == 2:
        return RankOne(a, b, is_positive=_is_from_relu(a))
    return RankOne(a.squeeze(1), b.squeeze(1))


def _is_from_relu(x: Tensor) -> bool:
    """Whether a tensor is the untouched output of a ReLU, which has no negative entries."""
    return x.grad_fn is not None and x._version == 0 and x.grad_fn.name() == "ReluBackward0"


def sum_positions(b: Tensor) -> Dense:
    """Gradients of a [p] bias from output gradients [c, ..., p]."""
    return Dense(b if b.dim() == 2 else b.flatten(1, -2).sum(1, dtype=widened(b.dtype)))


def outer_footprint(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> int:
    """With one position the factors, with several the gradient itself."""
    if grad_output.dim() == 2:
        wide = math.prod(x.shape[-1] for x in inputs), grad_output.shape[-1]
        return sum(wide) + min(wide)
    return cast(Tensor, module.weight).numel()


def several_positions(inputs: Inputs) -> bool:
    """Whether a sample has more than one position, so that its gradient has to be formed anyway."""
    return inputs[0].dim() > 2


@register_rule(nn.Linear, footprint=outer_footprint, simultaneous=several_positions)
def linear(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """y = W a + b: the weight's gradient is sum_t D_t a_t^T, the bias's is sum_t D_t."""
    weight = outer_product(inputs[0], grad_output)
    bias = BiasOf(weight.b) if isinstance(weight, RankOne) else sum_positions(grad_output)
    return {"weight": weight, "bias": bias}


@register_rule(nn.Bilinear, footprint=outer_footprint)
def bilinear(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """y_p = x1^T W_p x2 + b_p: a Linear over the products of the two inputs."""
    left, right, b = promote(inputs[0], inputs[1], grad_output)
    products = (left.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2)
    return {"weight": outer_product(products, b), "bias": sum_positions(b)}


def three_outputs(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> int:
    """Numbers per sample, for rules that hold three tensors of the output's size."""
    return 3 * (grad_output.numel() // max(1, len(grad_output)))


@register_rule(nn.Embedding, footprint=three_outputs)
def embedding(module: nn.Module, inputs: Inputs, grad_output: Tensor) -> dict[str, PerSample]:
    """Position t adds its output gradient to the row that it looked up."""
    table = cast(nn.Embedding, module)
    if table.scale_grad_by_freq:
        raise RuleError(
            "expected an Embedding whose gradient does not depend on other samples, got "
            "scale_grad_by_freq=True; set it to False"
        )
    return {"weight": rows_of(inputs[0], grad_output, table.num_embeddings, table.padding_idx)}


def rows_of(ids: Tensor, grad: Tensor, num_rows: int, padding_idx: int | None) -> Rows:
    """The gradients of a table from the rows that were looked up [c, ...] and the gradients there [c, ..., d]."""
    (b,) = promote(grad)
    ids = ids.reshape(len(b), -1)
    values = b.reshape(len(b), ids.shape[1], -1)
    if padding_idx is not None:
        values = values.masked_fill((ids == padding_idx % num_rows).unsqueeze(2), 0)
    return Rows(ids, values, num_rows)
