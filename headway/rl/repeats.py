"""Scoring each distinct sample once, however often it occurs.

Let U distinct samples stand for N, sample u for c_u of them. The losses w_u L_u with w_u = c_u U / N have the mean of
all N losses, so that training and moments are what they would be. The gradient of such a loss is w_u times the
sample's own; `Repeated` takes the factor off again before a signal sees it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from headway.moments import Decay
from headway.signals import Batch, Plan, Scope, Signal, Values, Where


def repeated(losses: Tensor, counts: Tensor) -> Tensor:
    """The losses w_u L_u [U] of samples that stand for `counts` [U] samples each."""
    return losses * factors(counts).to(losses)


def factors(counts: Tensor) -> Tensor:
    """w_u = c_u U / N [U]."""
    wide = counts.double()
    return wide * (len(counts) / wide.sum())


@dataclass(frozen=True)
class FullBatch(Batch):
    """A batch of U distinct samples that stands for N.

    Attributes:
        count: N.
    """

    count: int = 0

    @property
    def samples(self) -> int:
        """N."""
        return self.count


@dataclass(frozen=True)
class Repeated:
    """A signal on distinct samples, whose counts come as the meter's `groups`; it scores as on all N samples.

    Attributes:
        signal: the signal, one that does not ask for groups itself.
    """

    signal: Signal

    @property
    def name(self) -> str:
        """The signal's."""
        return self.signal.name

    @property
    def where(self) -> Where:
        """The signal's."""
        return self.signal.where

    @property
    def decay(self) -> Decay | None:
        """The signal's."""
        return self.signal.decay

    def init(self, scope: Scope) -> None:
        """As the signal does."""
        self.signal.init(scope)

    def reductions(self, scope: Scope, batch: Batch) -> Plan:
        """As the signal does."""
        return self.signal.reductions(scope, _full(batch))

    def scores(self, scope: Scope, batch: Batch, values: Values) -> Tensor:
        """Scores of the samples' own gradients [U]."""
        full = _full(batch)
        if values and batch.groups is not None:
            inverse = factors(batch.groups).reciprocal().to(batch.losses)
            kinds = self.signal.reductions(scope, full)
            values = {
                key: {name: value * _power(inverse, kinds[key][name].kind) for name, value in by_parameter.items()}
                for key, by_parameter in values.items()
            }
        return self.signal.scores(scope, full, values)

    def validate(self, batch: Batch) -> None:
        """As the signal does."""
        self.signal.validate(_full(batch))

    def observe(self, scope: Scope, batch: Batch) -> None:
        """Take all N samples into the signal's memory, those that are alike one after the other."""
        full = _full(batch)
        losses = full.losses if batch.groups is None else full.losses.repeat_interleave(batch.groups)
        self.signal.observe(scope, Batch(losses))

    def end_epoch(self, scope: Scope) -> None:
        """As the signal does."""
        self.signal.end_epoch(scope)


def _full(batch: Batch) -> FullBatch:
    """The distinct samples with their own losses; a batch without counts stands for itself."""
    if batch.groups is None:
        return FullBatch(batch.losses, None, len(batch.losses))
    return FullBatch(batch.losses / factors(batch.groups).to(batch.losses), None, int(batch.groups.sum()))


def _power(inverse: Tensor, kind: str) -> Tensor:
    """The factor that undoes w in a reduction: squares have it twice."""
    return inverse.square() if kind == "sq" else inverse
