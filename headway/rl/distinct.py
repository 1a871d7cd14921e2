"""Distinct rows: compute once what occurs many times, and weigh it by how often it occurs.

In a grid world a few hundred observations make up thousands of transitions, and every observation is the next one of
the transition before. A network that runs on the distinct ones gives the same outputs and, since the gradients of
repeated rows add up, the same gradients.

Scores need one more step. Let U distinct samples stand for N, sample u for c_u of them. The losses w_u L_u with
w_u = c_u U / N have the mean of all N losses, so training and moments are unchanged. The gradient of such a loss is w_u
times the sample's own; `WeightedSignal` divides by w_u before a signal sees it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headway.signals import Batch, Plan, Scope, Signal, Values


def distinct_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows [U, ...] of values [N, ...], and indices [N] such that `rows[indices]` equals `values`.

    Rows are distinct if any of their bits are. They come in no particular but always the same order.
    """
    if values.device.type != "cpu":
        rows, indices = torch.unique(values, dim=0, return_inverse=True)
        return rows, indices
    flat = np.ascontiguousarray(values.detach().reshape(len(values), -1).numpy())
    if not flat.size:
        return values, torch.arange(len(values))
    keys = flat.view(np.dtype((np.void, flat.shape[1] * flat.itemsize))).ravel()  # one opaque key per row
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return values[torch.from_numpy(first)], torch.from_numpy(inverse.reshape(-1))


LENGTHS = 8
"""How many lengths `padded` knows for a given number of samples."""


def weighted_losses(losses: Tensor, counts: Tensor) -> Tensor:
    """The losses w_u L_u [U] of samples that stand for `counts` [U] samples each."""
    return losses * _factors(counts).to(losses)


def _factors(counts: Tensor) -> Tensor:
    """w_u = c_u U / N [U]."""
    wide = counts.double()
    return wide * (len(counts) / wide.sum())


def padded(rows: Tensor, samples: int) -> Tensor:
    """Distinct rows [U, ...] with copies of the first one behind them, up to one of a few lengths.

    The copies stand for no sample. A meter looks closely at every batch of a length that it has not seen before; so
    it has to do so a few times only, though the number of distinct rows changes all the time. The result has at most
    as many rows as the samples that they stand for.
    """
    step = -(-samples // LENGTHS)
    missing = min(samples, -(-len(rows) // step) * step) - len(rows)
    return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])]) if missing else rows


class WeightedSignal:
    """A signal on distinct samples, whose counts come as the meter's `groups`; it sees all N samples.

    Samples that are alike come one after the other. The signal must not ask for groups itself.
    """

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.name, self.where, self.decay = signal.name, signal.where, signal.decay
        self.init, self.end_epoch = signal.init, signal.end_epoch

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """As the signal does."""
        return self.signal.reductions(scope, _full(batch))

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """Scores of the samples' own gradients [U]; those of rows that stand for no sample mean nothing."""
        full, counts = _full(batch), batch.groups
        if counts is None:
            return self.signal.scores(scope, full, values)
        if values:
            inverse = _inverse(counts).to(batch.losses)
            kinds = self.signal.reductions(scope, full)
            undo = {"sq": inverse.square()}  # squares have w twice
            rows = _rows(counts, len(full.losses))
            values = {
                key: {
                    name: (value * undo.get(kinds[key][name].kind, inverse))[rows]
                    for name, value in by_parameter.items()
                }
                for key, by_parameter in values.items()
            }
        first = counts.cumsum(0) - counts
        return self.signal.scores(scope, full, values)[first.clamp(max=len(full.losses) - 1)]

    def validate(self, batch: Batch) -> None:
        """As the signal does."""
        self.signal.validate(_full(batch))

    def observe(self, scope: Scope, batch: Batch) -> None:
        """Take all N samples into the signal's memory."""
        self.signal.observe(scope, _full(batch))


def _full(batch: Batch) -> Batch:
    """All N samples with their own losses; a batch without counts stands for itself."""
    if batch.groups is None:
        return Batch(batch.losses)
    own = batch.losses * _inverse(batch.groups).to(batch.losses)
    return Batch(own[_rows(batch.groups)])


def _rows(counts: Tensor, samples: int | None = None) -> Tensor:
    """The row of each of the N samples [N]; a device waits for their number unless it is known."""
    return torch.arange(len(counts), device=counts.device).repeat_interleave(counts, output_size=samples)


def _inverse(counts: Tensor) -> Tensor:
    """1 / w_u [U]; zero for rows that stand for no sample."""
    return torch.where(counts > 0, 1 / _factors(counts).clamp(min=torch.finfo(torch.float64).tiny), 0.0)
