"""The states of a source: what its gradients say about how much there is to learn from it."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headway.errors import SignalError

LEAST_ROWS = 6
"""Fewer rows say nothing about a trend."""


class State(str, Enum):
    """What a source is to a model at present."""

    UNSEEN = "unseen"
    """No sample of it has been scored yet."""
    LEARNING = "learning"
    """Its loss falls; where losses are not known, its gradients are large and couple to what is being learned."""
    SATURATED = "saturated"
    """The model takes no more from it: its loss has come down and stays, or its gradients have become small."""
    INCOHERENT = "incoherent"
    """Its gradients lead nowhere: its loss has not come down, and does not fall."""
    DIVERGED = "diverged"
    """Its latest losses, norms or scores are all NaN or infinite."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Thresholds:
    """Where one state ends and another begins.

    Attributes:
        saturated: gradients count as small below this share of the largest that the source has had. Where losses are
            not known, also below this share of the mean over all sources at present.
        incoherent: the coupling counts as low below this share of the mean over the other sources that are not
            saturated. Where losses are known, their trend decides instead: it is the better witness.
        rows: the latest rows of a source by which it is judged, at most, whether its loss still falls.
        errors: how many standard errors of the trend make a fall.
        learned: a loss counts as having come down if it is lower than the highest by this share of it; see
            `has_come_down` for negative losses.
    """

    saturated: float = 0.25
    incoherent: float = 0.5
    rows: int = 20
    errors: float = 2.0
    learned: float = 0.2

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name in ("saturated", "incoherent", "learned"):
            if not 0 <= getattr(self, name) <= 1:
                raise SignalError(f"{name}: expected a threshold from 0 to 1, got {getattr(self, name)}")
        if self.rows < LEAST_ROWS or self.errors < 0:
            raise SignalError(
                f"expected at least {LEAST_ROWS} rows and errors from 0, got {self.rows} and {self.errors}"
            )


@dataclass(frozen=True)
class Reading:
    """What is known of one source.

    Attributes:
        norm: its gradient norm at present.
        coupling: its GMC divided by that.
        peak: the largest gradient norm that it has had.
        losses: its mean losses in the latest rows, oldest first; none where losses are not known.
        highest_loss: the highest that it has had in any row.
        is_finite: whether its latest samples had a finite one among them; if not, the norm and coupling are older.
    """

    norm: float
    coupling: float
    peak: float
    losses: Sequence[float] = ()
    highest_loss: float = -math.inf
    is_finite: bool = True


def name_states(readings: Mapping[str, Reading], thresholds: Thresholds) -> dict[str, State]:
    """The state of every source that has a reading."""
    finite = {name: reading for name, reading in readings.items() if reading.is_finite}
    mean = statistics.fmean(reading.norm for reading in finite.values()) if finite else 0.0
    saturated = {name for name, reading in finite.items() if _is_saturated(reading, mean, thresholds)}
    couplings = {name: reading.coupling for name, reading in finite.items() if name not in saturated}
    states = {}
    for name, reading in readings.items():
        others = [coupling for other, coupling in couplings.items() if other != name]
        if name not in finite:
            states[name] = State.DIVERGED
        elif name in saturated:
            states[name] = State.SATURATED
        elif _leads_nowhere(reading, others, thresholds):
            states[name] = State.INCOHERENT
        else:
            states[name] = State.LEARNING
    return states


def _leads_nowhere(reading: Reading, others: Sequence[float], thresholds: Thresholds) -> bool:
    """Judged by the loss where there are enough rows of it, or else by the coupling beside that of others."""
    if _is_told(reading):
        return has_stalled(reading.losses, thresholds)
    return bool(others) and reading.coupling < thresholds.incoherent * statistics.fmean(others)


def _is_saturated(reading: Reading, mean: float, thresholds: Thresholds) -> bool:
    """Judged by the loss where there are enough rows of it: gradients beside louder ones are small for many reasons.

    A loss that has come down may go on falling for ever, by less and less: small gradients tell that it does.
    """
    if reading.norm == 0:
        return True
    small = thresholds.saturated * reading.peak
    if not _is_told(reading):
        return reading.norm < max(small, thresholds.saturated * mean)
    latest = _finite(reading.losses)[-thresholds.rows :]
    down = has_come_down(latest, reading.highest_loss, thresholds)
    return down and (reading.norm < small or has_stalled(latest, thresholds))


def _is_told(reading: Reading) -> bool:
    """Whether there are enough rows of the loss to judge by."""
    return len(_finite(reading.losses)) >= LEAST_ROWS


def has_come_down(losses: Sequence[float], highest: float, thresholds: Thresholds) -> bool:
    """Whether the mean of losses is lower than the highest by more than the share `learned` of its absolute value.

    A share says little of losses that may be negative, as those of densities: near zero, any scatter is a large one.
    Where one of them is, they must have come down by more than the range of these losses too.
    """
    fall = highest - statistics.fmean(losses)
    if not fall > thresholds.learned * abs(highest):
        return False
    return min(losses) >= 0 or fall > max(losses) - min(losses)


def has_stalled(losses: Sequence[float], thresholds: Thresholds) -> bool:
    """Whether losses have ceased to fall, judged by the latest rows; False as long as there are too few.

    By the test of Mann and Kendall, which asks for the order of the losses alone: with n losses and S the number of
    pairs in which the later one is lower minus the number in which it is higher,

        z = S / sqrt(n (n - 1) (2 n + 5) / 18) < errors
    """
    latest = _finite(losses)[-thresholds.rows :]
    n = len(latest)
    if n < LEAST_ROWS:
        return False
    fall = sum((early > late) - (early < late) for early, late in itertools.combinations(latest, 2))
    return fall / math.sqrt(n * (n - 1) * (2 * n + 5) / 18) < thresholds.errors


def _finite(losses: Sequence[float]) -> list[float]:
    return [loss for loss in losses if math.isfinite(loss)]
