"""Signals that need no gradients: a constant, the loss, and its change over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from headway.errors import SignalError
from headway.signals.base import BaseSignal, Batch, Scope, Values, check_choice


@dataclass(frozen=True, kw_only=True)
class Uniform(BaseSignal):
    """No preference: zero for every sample."""

    name: str = "uniform"

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """Zeros."""
        return torch.zeros_like(batch.losses)


@dataclass(frozen=True, kw_only=True)
class Curiosity(BaseSignal):
    """The loss itself: surprise."""

    name: str = "curiosity"

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """The losses."""
        return batch.losses * self.scale


@dataclass(frozen=True, kw_only=True)
class GroupSignal(BaseSignal):
    """What signals of groups have in common.

    Attributes:
        groups: the number of groups; samples carry their group in `meter.backward(losses, groups=...)`.
    """

    groups: int = 1

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise SignalError(f"expected at least one group, got {self.groups}")

    def validate(self, batch: Batch) -> None:
        """Check that every sample has a group of its own."""
        check_groups(batch, self.groups)


@dataclass(frozen=True, kw_only=True)
class DeltaLoss(GroupSignal):
    """How fast the mean loss of a sample's group falls.

    Two ways to look back. With `window=N`, the mean loss of the group's last N samples is compared with that
    of the N before: r = -(change) / N, zero until there are 2 N. With `window=None`, the last epoch in which
    the group had samples is compared with the one before, r = -(change) / (samples in both), zero until there
    are two; `meter.end_epoch()` says when an epoch ends. After an epoch without samples of a group its score stays
    as it is until there is another one with samples, or for good with `empty="stop"`.

    Attributes:
        window: N, or None for epochs.
        absolute: take the change without its sign.
        empty: "skip" leaves out epochs without samples of a group; with "stop" the first one of them ends its record.
    """

    name: str = "delta_loss"
    window: int | None = 1000
    absolute: bool = False
    empty: Literal["skip", "stop"] = "skip"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("empty", self.empty, ("skip", "stop"))
        if self.window is not None and self.window < 1:
            raise SignalError(f"expected a window of at least one sample, got {self.window}")

    def init(self, scope: Scope) -> None:
        """Empty windows, or empty sums of three epochs: the current one, the last, the one before."""
        if self.window is None:
            scope.remember("sum", 3, self.groups)
            scope.remember("count", 3, self.groups)
            if self.empty == "stop":
                scope.remember("stopped", self.groups, dtype=torch.bool)
        else:
            scope.remember("recent", self.groups, 2 * self.window, dtype=None)
            scope.remember("seen", self.groups, dtype=torch.int64)

    @property
    def least_samples(self) -> int:
        """The samples that a run must have before every group has a score, where all have as many."""
        return 0 if self.window is None else 2 * self.window * self.groups

    def progress(self, scope: Scope) -> Tensor:
        """The score of each group [groups]."""
        if self.window is None:
            sums, counts = scope.memory["sum"], scope.memory["count"]
            mean = sums / counts.clamp(min=1)
            fall = (mean[2] - mean[1]) / (counts[1] + counts[2]).clamp(min=1)
            known = (counts[1] > 0) & (counts[2] > 0)
        else:
            before, last = scope.memory["recent"].double().split(self.window, dim=1)
            fall = (before.mean(1) - last.mean(1)) / self.window
            known = scope.memory["seen"] >= 2 * self.window
        progress = torch.where(known, fall, 0.0) * self.scale
        return progress.abs() if self.absolute else progress

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """Every sample has the score of its group."""
        return self.progress(scope)[groups_of(batch, self.groups)].to(batch.losses)

    def observe(self, scope: Scope, batch: Batch) -> None:
        """Add the batch's losses to the sums or the windows, but for those that are NaN or infinite.

        Shapes never depend on values here, so that the host does not wait for an accelerator.
        """
        groups = groups_of(batch, self.groups)
        finite = torch.isfinite(batch.losses)
        if self.window is None:
            losses = torch.where(finite, batch.losses, 0.0).double()
            scope.memory["sum"][0].index_add_(0, groups, losses)
            scope.memory["count"][0].index_add_(0, groups, finite.double())
            return
        member = (groups == torch.arange(self.groups, device=groups.device).unsqueeze(1)) & finite  # [groups, B]
        scope.memory["recent"].copy_(_shifted_in(scope.memory["recent"], batch.losses, member))
        scope.memory["seen"] += member.sum(1)

    def end_epoch(self, scope: Scope) -> None:
        """Move on to the next epoch; a group without samples, or whose record has ended, keeps the epochs it has."""
        if self.window is None:
            had = scope.memory["count"][0] > 0
            if self.empty == "stop":
                had &= ~scope.memory["stopped"]
                scope.memory["stopped"].copy_(~had)
            for key in ("sum", "count"):
                memory = scope.memory[key]
                shifted = torch.stack([torch.zeros_like(memory[0]), memory[0], memory[1]])
                kept = torch.stack([torch.zeros_like(memory[0]), memory[1], memory[2]])
                memory.copy_(torch.where(had, shifted, kept))


def groups_of(batch: Batch, groups: int) -> Tensor:
    """The group of each sample [B]; all are in group 0 where there is only one and none was given.

    Raises:
        SignalError: there are several groups, and none was given.
    """
    if batch.groups is None:
        if groups > 1:
            raise SignalError(
                f"expected the group of each sample, got none; call backward(losses, groups=...) with "
                f"numbers from 0 to {groups - 1}"
            )
        return torch.zeros(batch.samples, dtype=torch.int64, device=batch.losses.device)
    return batch.groups.long()  # a table cannot be indexed by every integer dtype


def check_groups(batch: Batch, groups: int) -> None:
    """Check that every sample has a group.

    Raises:
        SignalError: groups are missing, not integers or out of range.
    """
    own = groups_of(batch, groups)
    expected = f"expected groups from 0 to {groups - 1}"
    if batch.groups is not None and (batch.groups.is_floating_point() or batch.groups.is_complex()):
        raise SignalError(f"{expected}, as integers, got {batch.groups.dtype}; convert them with .long()")
    if own.device.type != "cpu":  # an accelerator looks by itself, and the host does not wait for it
        torch._assert_async(((own >= 0) & (own < groups)).all(), expected)
    elif own.numel():
        low, high = (int(end) for end in own.aminmax())
        if low < 0 or high >= groups:
            raise SignalError(f"{expected}, got numbers from {low} to {high}")


def _shifted_in(recent: Tensor, losses: Tensor, member: Tensor) -> Tensor:
    """Append to each row of [groups, N] the losses [B] that belong to it, by [groups, B], and keep the last N."""
    rows, kept = recent.shape
    place = torch.where(member, member.cumsum(1) - 1, len(losses))  # where each loss comes in its row; others fall off
    own = recent.new_zeros(rows, len(losses) + 1).scatter_(1, place, losses.to(recent).expand(rows, -1))
    last = member.sum(1, keepdim=True) + torch.arange(kept, device=recent.device)
    return torch.cat([recent, own], dim=1).gather(1, last)
