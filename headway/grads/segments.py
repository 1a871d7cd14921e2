"""Rows that belong to samples in any number and order: packed sequences, graphs, pairs, windows.

    segments = headway.segments(batch.batch)  # [N]: the sample of each node
    with segments:
        out = model(batch.x, batch.edge_index)
    meter.backward(segments.mean(loss_of_each_node))

A call that sees N rows is scored as if its rows had come sample by sample, each with as many rows as the longest.
What is added has gradient zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headway.errors import LayoutError

if TYPE_CHECKING:
    from headway.grads.passes import Pass

_ACTIVE: list[Segments] = []
"""Those whose `with` block is running, the innermost last."""


class Segments:
    """Which sample each of N rows belongs to; a context manager for the forward pass. See `segments`.

    Attributes:
        ids: the sample of each row [N].
        samples: B.
        longest: the most rows that a sample has.
    """

    def __init__(self, ids: Tensor, samples: int | None = None) -> None:
        self.ids = ids = ids.detach().long()
        counts = torch.bincount(ids, minlength=samples or 0)
        if samples is not None and len(counts) > samples:
            raise LayoutError(f"expected samples from 0 to {samples - 1}, got {len(counts) - 1} among the ids")
        self.samples = len(counts)
        self.longest = int(counts.max())
        order = ids.argsort(stable=True)
        starts = counts.cumsum(0) - counts
        sorted_ids = ids[order]
        places = torch.arange(len(ids), device=ids.device) - starts[sorted_ids]
        slots = sorted_ids * self.longest + places
        total = self.samples * self.longest
        first = order[starts.clamp(max=len(ids) - 1)]  # a row of the sample itself, to fill up with
        self._source = first.repeat_interleave(self.longest).index_copy(0, slots, order)
        self._is_row = torch.zeros(total, dtype=torch.bool, device=ids.device).index_fill_(0, slots, True)

    def __enter__(self) -> Segments:
        _ACTIVE.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _ACTIVE.remove(self)

    def sum(self, values: Tensor) -> Tensor:
        """Add up values [N], or [1, N], of the rows: one number per sample [B]."""
        dim = self.rows_of(values)
        if dim is None:
            raise LayoutError(f"expected values of {len(self.ids)} rows, got shape {list(values.shape)}")
        flat = values.flatten(0, dim)
        return flat.new_zeros(self.samples, *flat.shape[1:]).index_add(0, self.ids, flat)

    def mean(self, values: Tensor) -> Tensor:
        """The mean of values [N], or [1, N], over the rows of each sample [B]; 0 for a sample without rows."""
        counts = torch.bincount(self.ids, minlength=self.samples).clamp(min=1)
        total = self.sum(values)
        return total / counts.to(total).view(-1, *(1 for _ in total.shape[1:]))

    def rows_of(self, tensor: Tensor) -> int | None:
        """The dimension of a tensor that is the rows: 0 of [N, ...], 1 of [1, N, ...], or None."""
        if tensor.dim() > 1 and tensor.shape[0] == 1 and tensor.shape[1] == len(self.ids):
            return 1
        return 0 if tensor.dim() > 0 and tensor.shape[0] == len(self.ids) else None

    def filled(self, tensor: Tensor, with_zeros: bool) -> Tensor:
        """The rows sample by sample, each filled up to the longest: with its own rows, or with zeros.

        [N, ...] becomes [B * longest, ...], and [1, N, ...] becomes [B, longest, ...]; others stay as they are.
        """
        dim = self.rows_of(tensor)
        if dim is None:
            return tensor
        rows = (tensor[0] if dim else tensor).index_select(0, self._source)
        if with_zeros:
            rows = rows * self._is_row.to(rows).view(-1, *(1 for _ in rows.shape[1:]))
        return rows.unflatten(0, (self.samples, self.longest)) if dim else rows


def segments(
    ids: Tensor | None = None,
    *,
    cu_seqlens: Tensor | Sequence[int] | None = None,
    position_ids: Tensor | None = None,
    samples: int | None = None,
) -> Segments:
    """Say which sample each row belongs to, where a model does not see one row, or the same number, per sample.

    Give one of the first three. Calls of the model inside `with segments(...)` that see N rows, [N, ...] or
    [1, N, ...], are scored by sample; the losses have to be one per sample, see `Segments.mean`.

    Args:
        ids: the sample of each row [N] or [1, N], from 0 on, in any order: the batch vector of a graph, or
            `torch.arange(B).repeat(2)` for a batch of B chosen and B rejected answers.
        cu_seqlens: where the sequences of a packed batch begin, and where the last one ends [B + 1].
        position_ids: the positions of a packed batch [N] or [1, N]; a sequence begins at each 0.
        samples: B, if the last samples may have no rows.

    Raises:
        LayoutError: not exactly one of them, or not what it should be.
    """
    given = [one for one in (ids, cu_seqlens, position_ids) if one is not None]
    if len(given) != 1:
        raise LayoutError(f"expected one of ids, cu_seqlens and position_ids, got {len(given)} of them")
    rows = torch.as_tensor(given[0])
    if rows.dim() == 2 and len(rows) == 1:
        rows = rows[0]
    if rows.dim() != 1 or rows.is_floating_point() or not len(rows):
        raise LayoutError(f"expected whole numbers [N], got {rows.dtype} of shape {list(rows.shape)}")
    if cu_seqlens is not None:
        lengths = rows.long().diff()
        return Segments(torch.arange(len(lengths), device=rows.device).repeat_interleave(lengths), len(lengths))
    if position_ids is not None:
        begins = rows == 0
        if not bool(begins[0]):
            raise LayoutError(f"expected positions that begin with 0, got {int(rows[0])}")
        return Segments(begins.long().cumsum(0) - 1)
    if bool((rows < 0).any()):
        raise LayoutError(f"expected samples from 0 on, got {int(rows.min())}")
    return Segments(rows, samples)


class Segmented:
    """A listener on outputs whose rows belong to segments; it hands them on sample by sample."""

    def __init__(self, listener: Any, own: Segments) -> None:
        self.engine, self.path, self.names = listener.engine, listener.path, listener.names
        self.listener = listener
        self._segments = own

    def collect(self, current: Pass, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        self._in_order(current, saved, grads, partial(self.listener.collect, current))

    def collect_and_train(self, saved: Sequence[Tensor], grad: Tensor) -> Sequence[Tensor]:
        """See `TrainedCall.collect_and_train`."""
        current, train = self.engine.collecting, self.listener.collect_and_train
        if current is None:
            return train(saved, grad)
        return self._in_order(current, saved, [grad], lambda inputs, grads: train(inputs, grads[0]))

    def _in_order(
        self, current: Pass, saved: Sequence[Tensor], grads: Sequence[Tensor], then: Callable[..., Any]
    ) -> Any:
        engine, own = self.engine, self._segments
        if current.samples != own.samples:
            raise LayoutError(
                f"expected one loss for each of {own.samples} segments, got {current.samples}; average the "
                f"losses of their rows with segments.mean(), and pass samples= if the last samples have no rows"
            )
        by_rows = own.rows_of(grads[0]) == 0

        def fill(tensor: Tensor) -> Tensor:
            return own.filled(tensor, with_zeros=False)

        with engine.layouts.flat_rows(own.longest if by_rows else 1, fill):
            return then([fill(tensor) for tensor in saved], [own.filled(grad, with_zeros=True) for grad in grads])


def by_segment(listener: Any, outputs: Sequence[Tensor]) -> Any:
    """A listener that reads the rows of outputs by segment, if segments are active and the outputs have their rows."""
    if not _ACTIVE or all(_ACTIVE[-1].rows_of(output) is None for output in outputs):
        return listener
    return Segmented(listener, _ACTIVE[-1])
