"""What comes in must be losses of samples, and no gradient goes by unseen: what was trained must have been scored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from headway.errors import LossError, UnscoredGradientError
from headway.grads.rounding import leaves_of

if TYPE_CHECKING:
    from headway.grads.accumulation import Accumulation
    from headway.grads.engine import Engine
    from headway.grads.passes import Pass


def check_losses(losses: Tensor, groups: Tensor | None) -> None:
    """Refuse what are not losses of samples [B] with a graph, and groups of these.

    Raises:
        LossError: they are something else.
    """
    if not isinstance(losses, Tensor):
        raise LossError(
            f"expected a tensor of losses, one per sample, got {type(losses).__name__}; compute them with torch"
        )
    if losses.is_complex():
        raise LossError(f"expected real losses, got {losses.dtype}; take their real part or absolute value")
    if losses.dim() != 1:
        raise LossError(
            f"expected one loss per sample, shape [B], got shape {list(losses.shape)}; "
            f"compute the losses with reduction='none' and average over everything but the samples"
        )
    if losses.shape[0] == 0:
        raise LossError("expected at least one sample, got a batch of none; skip it")
    if not losses.requires_grad:
        raise LossError(
            "expected losses that depend on the model, got a tensor without a graph; "
            "compute them with gradients enabled and without detach()"
        )
    if groups is not None and groups.shape != losses.shape:
        raise LossError(f"expected one group per sample, shape {list(losses.shape)}, got {list(groups.shape)}")


def check_aux(aux: Tensor | None, is_parallel: bool) -> None:
    """Refuse what is no loss of a batch as a whole: a number with a graph, or None.

    Raises:
        LossError: it is something else, or it would need a second backward pass that averages.
    """
    if aux is None:
        return
    if not isinstance(aux, Tensor) or aux.dim() or not aux.requires_grad:
        got = f"shape {list(aux.shape)}" if isinstance(aux, Tensor) and aux.dim() else "one without a graph"
        raise LossError(f"expected a single number that depends on the model as aux, got {got}; reduce it, e.g. mean()")
    if is_parallel:
        raise LossError(
            "expected losses alone, got aux in a process group, where gradients are averaged in the one backward pass; "
            "run aux.backward() by itself, inside no_sync()"
        )


def check_complete(missed: Collection[str], doubt: str = "") -> None:
    """Refuse a batch in which some parameters received a gradient, and no scores; see `Layouts.doubt`.

    Raises:
        UnscoredGradientError: there are any.
    """
    if missed:
        raise UnscoredGradientError(
            f"expected every trained parameter to be scored, got gradients without scores for "
            f"{', '.join(list(missed)[:5])}; make the meter before the forward pass and before torch.compile runs, and "
            f"use parameters inside the model's own modules (inside torch.compile, only through modules with a rule); "
            f"or leave them out with where={doubt}"
        )


@contextmanager
def refusing_earlier_graphs(names: Collection[str]) -> Iterator[None]:
    """Say that the meter came too late where a graph was compiled before it: its backward can run only once.

    Raises:
        UnscoredGradientError: the graph gives its buffers away.
    """
    try:
        yield
    except RuntimeError as error:
        if "donated buffers" not in str(error):
            raise
        check_complete(names)


def check_scored(
    engine: Engine,
    since_step: Accumulation,
    current: Pass,
    plan: Mapping[str, object],
    trained: Collection[str],
    losses: Tensor,
) -> None:
    """Refuse a pass that has not scored all that was trained.

    Args:
        engine: what has watched the model.
        since_step: what knows which gradients have come.
        current: the pass over the losses [B].
        plan: what it was to reduce, by parameter.
        trained: parameters that are known to have received a gradient, if not by `.grad`.
        losses: the losses.

    Raises:
        UnscoredGradientError: a parameter has received a gradient, and no scores.
        LossError: the losses do not depend on the model.
    """
    if current.error is not None:
        raise current.error
    missing = [name for name in plan if name not in current.results]
    check_complete(
        [name for name in missing if name in trained or since_step.was_trained(name)],
        engine.layouts.doubt(losses.shape[0]),
    )
    if plan and not current.results:  # the parameters may all have been idle
        wanted = {id(engine.in_use(p)) for p in engine.model.parameters() if p.requires_grad}
        if not any(id(leaf) in wanted for leaf in leaves_of(losses)):
            raise LossError("expected losses that depend on the model, got a graph that does not reach it")
