"""Comparison with the plainest oracle: one sample at a time through ordinary autograd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.errors import VerificationError
from headway.grads.engine import Engine
from headway.grads.persample import Reduction, reduce_dense

Values = Mapping[str, Sequence[Tensor]]


@dataclass(frozen=True)
class Verification:
    """The outcome of a comparison.

    Attributes:
        largest_difference: relative to the largest value of the same reduction.
        parameter: where it was found.
    """

    largest_difference: float
    parameter: str


def one_at_a_time(
    engine: Engine,
    losses: Tensor,
    parameters: Mapping[str, Tensor],
    plan: Mapping[str, Sequence[Reduction]],
) -> dict[str, list[Tensor]]:
    """Reduce the gradient of every loss apart, with one backward pass for each.

    Args:
        engine: the engine to pause meanwhile.
        losses: losses [B]; their graph is kept.
        parameters: the parameters by name.
        plan: the reductions of each.

    Returns:
        For each parameter one tensor [B] per reduction.
    """
    rows: dict[str, list[list[Tensor]]] = {name: [] for name in plan}
    with engine.paused():
        for loss in losses:
            grads = torch.autograd.grad(
                loss, list(parameters.values()), retain_graph=True, allow_unused=True, materialize_grads=True
            )
            for (name, parameter), grad in zip(parameters.items(), grads, strict=True):
                wide = torch.promote_types(parameter.dtype, torch.float32)
                rows[name].append(reduce_dense(grad.to_dense().to(wide).reshape(1, -1), plan[name]))
    return {name: [torch.cat(column) for column in zip(*found, strict=True)] for name, found in rows.items()}


def spot_check(
    engine: Engine,
    losses: Tensor,
    parameters: Mapping[str, Tensor],
    plan: Mapping[str, Sequence[Reduction]],
) -> SpotCheck | None:
    """Reduce the gradients of the first and the last sample with ordinary autograd.

    Returns:
        What to compare the engine's numbers with, or None where the graph allows only one backward pass
        (reentrant checkpoints, compiled graphs).
    """
    picks = sorted({0, losses.shape[0] - 1})
    with_norms = {name: [*reductions, Reduction("sq")] for name, reductions in plan.items()}
    try:
        return SpotCheck(picks, one_at_a_time(engine, losses[picks], parameters, with_norms))
    except RuntimeError:
        return None


@dataclass(frozen=True)
class SpotCheck:
    """Reductions of a few samples, the squared norm last.

    Attributes:
        picks: which samples.
        expected: for each parameter one tensor [picks] per reduction.
    """

    picks: Sequence[int]
    expected: Mapping[str, Sequence[Tensor]]

    def compare(self, values: Values, plan: Mapping[str, Sequence[Reduction]], low_precision: bool) -> None:
        """Compare what the engine found for the same samples.

        Raises:
            VerificationError: it differs by more than rounding.
        """
        for name, reductions in plan.items():
            *expected, square = self.expected[name]
            for got, want, reduction in zip(values[name], expected, reductions, strict=True):
                scale = float(want.abs().max())
                if reduction.kind == "dot":  # a signed sum may cancel: its terms set the scale
                    weight = reduction.weight
                    length = float(torch.linalg.vector_norm(weight)) if weight is not None else 1.0
                    scale = max(scale, float(square.max()) ** 0.5 * length)
                gap = float((got[self.picks] - want).abs().max())
                if gap > _spot_tolerance(want.dtype, low_precision) * scale:
                    raise VerificationError(
                        f"{name}: expected the gradients of samples {list(self.picks)} as autograd gives them one by "
                        f"one, got a relative difference of {gap / scale:.3g}; do the losses of different samples "
                        f"depend on each other (batch statistics, contrastive losses), or can a shape be read in two "
                        f"ways (as many positions as samples)? Say where the samples are with layout=, or leave the "
                        f"parameter out with where="
                    )


def _spot_tolerance(dtype: torch.dtype, low_precision: bool) -> float:
    if low_precision:
        return 0.3
    return 1e-6 if dtype == torch.float64 else 1e-2


def compare(values: Values, oracle: Values) -> Verification:
    """Find the largest difference.

    Raises:
        VerificationError: it is more than rounding.
    """
    worst = Verification(0.0, "")
    for name, expected in oracle.items():
        for got, want in zip(values[name], expected, strict=True):
            scale = max(float(want.abs().max()), torch.finfo(want.dtype).tiny)
            difference = float((got - want).abs().max()) / scale
            if not difference <= worst.largest_difference:
                worst = Verification(difference, name)
    tolerance = 1e-8 if next(iter(oracle.values()))[0].dtype == torch.float64 else 1e-3
    if not worst.largest_difference <= tolerance:
        raise VerificationError(
            f"{worst.parameter}: expected the scores of one-sample-at-a-time autograd, got a relative difference of "
            f"{worst.largest_difference:.3g}; do the samples influence each other, or is a rule wrong?"
        )
    return worst
