"""GMC of groups: lowered where a group's gradients do not go along with the running mean."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.errors import SignalError
from headway.grads import Reduction
from headway.signals.base import Batch, Plan, Scope, Values, total
from headway.signals.gmc import MomentSignal
from headway.signals.losses import check_groups, groups_of


@dataclass(frozen=True, kw_only=True)
class GroupGMC(MomentSignal):
    """GMC, lowered for groups whose gradients do not go along with the running mean: GMC(x) (hedge + (1 - hedge) p).

    The coupling with its sign, c(x) = sum_i g_i m_i / max(v_i, floor), is positive on average over a group that the
    model learns from, and not over noise, whose absolute coupling can be as large. p in [0, 1] is the evidence for it,
    the mean over standard errors, from sums over the scored batches in which a newer one counts more:

        c <- s c + sum c(x) / n,   e <- s^2 e + sum c(x)^2 / n^2        over the n samples of the group in a batch
        p = min(1, max(0, c / (errors sqrt(e))))

    A group that the model cannot learn yet looks like noise, so it keeps the share `hedge` of its score. Without any
    evidence, p is 1.

    Attributes:
        groups: the number of groups; samples carry their group in `meter.backward(losses, groups=...)`.
        hedge: what a group without evidence keeps of its scores, in [0, 1]; 1 is GMC.
        errors: so many standard errors above zero count as full evidence.
        smoothing: s, from one scored batch to the next, in [0, 1).
        where: the parameters to look at: a pattern or several (as in fnmatch, such as "head.*"), a predicate of
            name and parameter, or None for all. The last layer alone is cheap, and was enough in docs/mixtures.md.
    """

    name: str = "group_gmc"
    groups: int = 1
    hedge: float = 0.7
    errors: float = 3.0
    smoothing: float = 0.6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups < 1:
            raise SignalError(f"expected at least one group, got {self.groups}")
        check_evidence(self.hedge, self.errors, self.smoothing)

    def init(self, scope: Scope) -> None:
        """No evidence yet: c and e of each group [groups, 2]."""
        scope.remember("evidence", self.groups, 2)

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """L1 norms weighted with |m| / v, and dot products with m / v."""
        ratios = self.ratios(scope, batch, absolute=False)
        return {
            "coupling": {name: Reduction("l1", ratio.abs()) for name, ratio in ratios.items()},
            "dot": {name: Reduction("dot", ratio) for name, ratio in ratios.items()},
        }

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """GMC times what the evidence leaves of it, this batch's included."""
        check_groups(batch, self.groups)  # here, since batches that are not scored need none
        coupling, groups = total(values["coupling"]), groups_of(batch, self.groups)
        known = advanced(scope.memory["evidence"], total(values["dot"]), groups, self.smoothing)
        scope.pending["evidence"] = known
        factor = self.scale / scope.size**0.5
        return coupling * hedged(known, self.hedge, self.errors, factor).to(coupling)[groups]

    def observe(self, scope: Scope, batch: Batch) -> None:
        """Keep the evidence of the batch, if it was scored."""
        if "evidence" in scope.pending:
            scope.memory["evidence"].copy_(scope.pending["evidence"])


def check_evidence(hedge: float, errors: float, smoothing: float) -> None:
    """Refuse settings out of their range.

    Raises:
        SignalError: one is.
    """
    if not (0 <= hedge <= 1 and 0 <= smoothing < 1 and errors > 0):
        got = f"{hedge}, {smoothing} and {errors}"
        raise SignalError(f"expected hedge in [0, 1], smoothing in [0, 1) and errors above 0, got {got}")


def hedged(known: Tensor, hedge: float, errors: float, factor: float) -> Tensor:
    """factor * (hedge + (1 - hedge) p) of each group [groups]."""
    return evidence(known, errors).mul_((1 - hedge) * factor).add_(hedge * factor)


def evidence(known: Tensor, errors: float) -> Tensor:
    """p of each group, from its c and e: [groups, 2] -> [groups]; 1 where there is nothing to go by."""
    mean, error = known.unbind(1)
    return (mean * error.rsqrt()).div_(errors).nan_to_num_(nan=1.0).clamp_(0, 1)


def advanced(known: Tensor, couplings: Tensor, groups: Tensor, smoothing: float) -> Tensor:
    """c and e [groups, 2] after a batch of couplings [B]; a group with one that is not finite has none in it."""
    values = couplings.double()
    sums = values.new_zeros(len(known), 3)
    sums.index_add_(0, groups, torch.stack([torch.ones_like(values), values, values.square()], 1))
    share = sums[:, :1].clamp(min=1).reciprocal()
    new = sums[:, 1:] * torch.cat([share, share.square()], 1)
    kept = known * smoothing
    kept[:, 1] *= smoothing
    return kept.add_(new.nan_to_num_(0.0, 0.0, 0.0))
