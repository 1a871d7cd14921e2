"""No gradient goes by unseen: what was scored must add up to what was trained."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from headway.errors import LossError, UnscoredGradientError
from headway.grads.passes import Pass
from headway.grads.rounding import noise


def check_complete(
    current: Pass,
    wanted: Collection[str],
    trained: Collection[str],
    arrived: Mapping[str, Tensor],
    low_precision: bool = False,
    doubt: str = "",
) -> bool:
    """Compare the reductions of a pass with the gradients that it left.

    Args:
        current: the finished pass.
        wanted: the parameters that were to be scored.
        trained: those that received a gradient.
        arrived: that gradient by name, on a pass that adds up its totals.
        low_precision: whether something less than float32 took part.
        doubt: what else to say of parameters that were missed, see `Layouts.doubt`.

    Returns:
        Whether the totals were compared.

    Raises:
        UnscoredGradientError: a parameter has gradient without scores, or more than its scores account for.
    """
    missed = [name for name in wanted if name in trained and name not in current.results]
    if missed:
        raise UnscoredGradientError(
            f"expected every trained parameter to be scored, got gradients without scores for "
            f"{', '.join(missed[:5])}; make the meter before the forward pass and before torch.compile runs, and use "
            f"parameters inside the model's own modules (inside torch.compile, only through modules with a rule); or "
            f"leave them out with where={doubt}"
        )
    if current.totals is None or not all(bool(torch.isfinite(gradient).all()) for gradient in arrived.values()):
        return False
    whole = _whole(current, arrived)
    for name in wanted:
        if name in arrived and name in current.totals:
            _compare(name, current.totals[name], arrived[name], whole * noise(arrived[name].dtype, low_precision))
    return True


def check_reached(losses: Tensor, parameters: Collection[Tensor]) -> None:
    """Look for the model in the losses' graph, after a pass that scored no parameter: they may all have been idle.

    Raises:
        LossError: the graph does not reach any of the parameters.
    """
    wanted = {id(parameter) for parameter in parameters}
    nodes = [losses.grad_fn]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if node is None:
            continue
        if id(getattr(node, "variable", None)) in wanted:  # only a node that fills .grad has a variable
            return
        found = {following for following, _ in node.next_functions} - seen
        seen |= found
        nodes += found
    raise LossError("expected losses that depend on the model, got a graph that does not reach it")


def _whole(current: Pass, arrived: Mapping[str, Tensor]) -> float:
    """The norm of the whole gradient, or of the samples' own gradients where these cancel in it."""
    batch = sum(float(torch.linalg.vector_norm(gradient.double())) ** 2 for gradient in arrived.values())
    samples = sum(float(squares.sum()) for squares in current.squares.values())
    return float(max(batch, samples)) ** 0.5


def _compare(name: str, total: Tensor, gradient: Tensor, rounding: float) -> None:
    gap, size, own = (
        float(torch.linalg.vector_norm(x.double()))
        for x in (total.view_as(gradient) - gradient.to(total), gradient, total)
    )
    if gap > max(_tolerance(gradient.dtype) * max(size, own), rounding):
        raise UnscoredGradientError(
            f"{name}: expected the samples' gradients to add up to its gradient, got a difference of {gap:.3g} "
            f"against {size:.3g}; is it also used outside the model's forward pass, or by a function that headway "
            f"cannot follow? Use it through its module, or leave it out with where="
        )


def _tolerance(dtype: torch.dtype) -> float:
    """How far a sum of per-sample gradients may be from the batch's, by rounding alone."""
    return {torch.float64: 1e-7, torch.float32: 2e-2}.get(dtype, 0.2)
