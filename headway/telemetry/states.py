"""The states of a source: what its gradients say about how much there is to learn from it."""

from __future__ import annotations

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
    """Its gradients are large, and couple to what is being learned."""
    SATURATED = "saturated"
    """Its gradients have become small: the model takes no more from it."""
    INCOHERENT = "incoherent"
    """Its gradients are large and lead nowhere."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Thresholds:
    """Where one state ends and another begins.

    Attributes:
        saturated: gradients count as small below this share of the largest that the source has had, or of the mean
            over all sources at present, whichever is more.
        incoherent: the coupling counts as low below this share of the mean over the other sources that are not
            saturated.
        rows: the latest rows of a source by which its loss is judged, at most. Where losses are known, large gradients
            lead nowhere if the loss has not fallen from the first half of these rows to the second.
        errors: by how many standard errors it has to have fallen.
    """

    saturated: float = 0.25
    incoherent: float = 0.5
    rows: int = 20
    errors: float = 2.0

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not 0 <= self.saturated <= 1 or not 0 <= self.incoherent <= 1:
            raise SignalError(f"expected thresholds from 0 to 1, got {self.saturated} and {self.incoherent}")
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
    """

    norm: float
    coupling: float
    peak: float
    losses: Sequence[float] = ()


def name_states(readings: Mapping[str, Reading], thresholds: Thresholds) -> dict[str, State]:
    """The state of every source that has a reading."""
    mean = statistics.fmean(reading.norm for reading in readings.values()) if readings else 0.0
    small = {
        name: reading.norm < thresholds.saturated * max(reading.peak, mean) or reading.norm == 0
        for name, reading in readings.items()
    }
    active = {name: reading.coupling for name, reading in readings.items() if not small[name]}
    states = {}
    for name, reading in readings.items():
        others = [coupling for other, coupling in active.items() if other != name]
        if small[name]:
            states[name] = State.SATURATED
        elif (others and reading.coupling < thresholds.incoherent * statistics.fmean(others)) or has_stalled(
            reading.losses, thresholds
        ):
            states[name] = State.INCOHERENT
        else:
            states[name] = State.LEARNING
    return states


def has_stalled(losses: Sequence[float], thresholds: Thresholds) -> bool:
    """Whether losses have not fallen, judged by the latest rows; False as long as there are too few.

    (mean of the first half - mean of the second) / sqrt(var_1 / n_1 + var_2 / n_2) < errors
    """
    latest = [loss for loss in losses[-thresholds.rows :] if math.isfinite(loss)]
    if len(latest) < LEAST_ROWS:
        return False
    half = len(latest) // 2
    old, new = latest[:half], latest[half:]
    error = math.sqrt(statistics.variance(old) / len(old) + statistics.variance(new) / len(new))
    return statistics.fmean(old) - statistics.fmean(new) <= thresholds.errors * error
