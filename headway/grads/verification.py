"""Comparison with the plainest oracle: one sample at a time through ordinary autograd."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.errors import VerificationError
from headway.grads.engine import Engine
from headway.grads.persample import Reduction, reduce_dense, widened
from headway.grads.rounding import noise

Values = Mapping[str, Sequence[Tensor]]


@dataclass(frozen=True)
class Verification:
    """The outcome of a comparison.

    Attributes:
        largest_difference: relative to the largest value of the same reduction, or to what rounding leaves of
            the whole gradient, where that is larger.
        parameter: where it was found.
    """

    largest_difference: float
    parameter: str


@dataclass(frozen=True)
class Expected:
    """What one-sample-at-a-time autograd gives for one parameter.

    Attributes:
        values: one tensor [samples] per reduction.
        norms: the norm of each sample's gradient [samples].
        numel: numbers in the parameter.
    """

    values: Sequence[Tensor]
    norms: Tensor
    numel: int


def one_at_a_time(
    engine: Engine,
    losses: Tensor,
    parameters: Mapping[str, Tensor],
    plan: Mapping[str, Sequence[Reduction]],
) -> dict[str, Expected]:
    """Reduce the gradient of every loss [B] apart, with one backward pass for each; their graph is kept."""
    rows: dict[str, list[list[Tensor]]] = {name: [] for name in plan}
    with engine.deaf():
        for loss in losses:
            grads = torch.autograd.grad(
                loss, list(parameters.values()), retain_graph=True, allow_unused=True, materialize_grads=True
            )
            for (name, parameter), grad in zip(parameters.items(), grads, strict=True):
                wide = widened(parameter.dtype)
                flat = grad.to_dense().to(wide).reshape(1, -1)
                rows[name].append([*reduce_dense(flat, plan[name]), torch.linalg.vector_norm(flat, dim=1)])
    expected = {}
    for name, found in rows.items():
        *values, norms = (torch.cat(column) for column in zip(*found, strict=True))
        expected[name] = Expected(values, norms, parameters[name].numel())
    return expected


def compare(
    values: Values, oracle: Mapping[str, Expected], plan: Mapping[str, Sequence[Reduction]], precision: torch.dtype
) -> Verification:
    """Find the largest difference; `precision` is the least that took part.

    Raises:
        VerificationError: it is more than rounding.
    """
    tolerance = {torch.float64: 1e-8, torch.float32: 1e-3}.get(precision, 0.3)
    squares = zip(*(expected.norms.double().square().tolist() for expected in oracle.values()), strict=True)
    whole = max(sum(sample) for sample in squares) ** 0.5  # the norm over all parameters, at its largest
    shift = whole * noise(precision)  # what rounding can do to a gradient; it counts as `tolerance` at most
    worst = Verification(0.0, next(iter(oracle)))
    for name, reductions in plan.items():
        expected = oracle[name]
        norm = float(expected.norms.max())
        for got, want, reduction in zip(values[name], expected.values, reductions, strict=True):
            # A change of the gradient is magnified by the norm of the weight, at most.
            weight = reduction.weight
            length = expected.numel**0.5 if weight is None else float(torch.linalg.vector_norm(weight))
            scale = float(want.abs().max())
            if reduction.kind == "dot":  # a signed sum may cancel: its terms set the scale
                scale = max(scale, norm * length)
            rounding = shift * (2 * norm + shift) if reduction.kind == "sq" else shift * length
            scale = max(scale, rounding / tolerance, torch.finfo(want.dtype).tiny)
            difference = float((got - want).abs().max()) / scale
            if math.isnan(difference) or difference > worst.largest_difference:
                worst = Verification(difference, name)
    if not worst.largest_difference <= tolerance:
        raise VerificationError(
            f"{worst.parameter}: expected the scores of one-sample-at-a-time autograd, got a relative difference of "
            f"{worst.largest_difference:.3g}; do the samples influence each other, or is a rule wrong?"
        )
    return worst
