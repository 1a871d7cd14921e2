"""The states of a source: what its losses and gradients say about how much there is to learn from it."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from headway.errors import SignalError

LEAST_ROWS = 6
"""Fewer rows say nothing about a trend."""
NOTHING, LITTLE = 0.02, 0.1
"""Shares of the highest loss: below the first nothing is left to learn, below the second a loss has come down."""
AGAIN = 2.0
"""A loss that has come down begins to fall again when it falls by so many times the threshold `fall`."""
LEVEL_ROWS = 5
"""The latest rows whose mean is the level of a loss."""


class State(str, Enum):
    """What a source is to a model at present."""

    UNSEEN = "unseen"
    """No sample of it has been scored yet."""
    LEARNING = "learning"
    """Its loss falls; where losses are not known, its gradients are large and couple to what is being learned."""
    SATURATED = "saturated"
    """The model takes no more from it: its loss has come down and stays, or its gradients have become small."""
    HARD = "hard"
    """Hard, not yet: its loss has not come down and does not fall. Noise looks like this, and so does a plateau."""
    INCOHERENT = "incoherent"
    """As hard, for so long that noise is likely; where losses are not known, its gradients do not couple."""
    DIVERGED = "diverged"
    """Its latest losses, norms or scores are all NaN or infinite."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Thresholds:
    """Where one state ends and another begins.

    Attributes:
        saturated: where losses are not known, gradients count as small below this share of the largest that the source
            has had, or of the mean over all sources at present.
        incoherent: where losses are not known, the coupling counts as low below this share of the mean over the other
            sources that are not saturated.
        rows: the latest rows of a source by which it is judged, at most, whether its loss falls.
        errors: a loss begins to fall when its fall is larger than `fall` by so many standard errors, and ceases to when
            it is smaller by as many.
        fall: the least fall over these rows that counts, as a share of the highest loss, or of chance where it is known
            and lower; twice that for a loss that had come down and stayed.
        learned: a loss counts as having come down if it is lower than the highest by this share of it; see
            `has_come_down` for negative losses.
        below_chance: where chance is known, it is lower than chance by this share instead; half of it is enough to go
            on counting as low.
        chance: a loss counts as that of chance if it is lower by less than this share, or higher by less than
            `learned`. It does not begin to fall there; from half of `learned` on it goes on to only while its line over
            three fifths of `rows`, continued for half of them, ends lower.
        hold: a state changes when so many rows in a row ask for the same other one.
        patience: a source that is hard for so many rows is called incoherent.
    """

    saturated: float = 0.25
    incoherent: float = 0.5
    rows: int = 20
    errors: float = 1.0
    fall: float = 0.03
    learned: float = 0.2
    below_chance: float = 0.12
    chance: float = 0.015
    hold: int = 2
    patience: int = 100

    def __post_init__(self) -> None:
        for name in ("saturated", "incoherent", "fall", "learned", "below_chance", "chance"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise SignalError(f"{name}: expected a threshold from 0 to 1, got {value}")
        if self.rows < LEAST_ROWS or self.errors < 0:
            raise SignalError(
                f"expected at least {LEAST_ROWS} rows and errors from 0, got {self.rows} and {self.errors}"
            )
        if self.hold < 1 or self.patience < 1:
            raise SignalError(f"expected hold and patience from 1, got {self.hold} and {self.patience}")


@dataclass
class History:
    """What the rows of one source have said so far."""

    chance: float | None = None  # the loss of a model that knows how frequent each label is, and nothing else
    norm: float = math.inf  # the gradient norm at present; infinite if it is not known
    coupling: float = 0.0  # GMC divided by that
    peak: float = 0.0  # the largest gradient norm so far
    losses: list[float] = field(default_factory=list)  # the mean losses of the latest rows, oldest first
    highest: float = -math.inf  # the highest loss in any row
    lowest: float = math.inf  # the lowest level of the loss so far
    is_finite: bool = False  # whether there are samples, and the latest had a finite one among them
    state: State = State.UNSEEN
    asked: State = State.UNSEEN  # the other state that the latest rows ask for ...
    times: int = 0  # ... and how many of them do, one after the other
    waited: int = 0  # the rows since it became hard
    flat: int = 0  # the latest losses since it ceased to learn, in number

    def add(self, row: Mapping[str, Any], thresholds: Thresholds) -> None:
        """Take in a row; without samples, none was finite."""
        self.is_finite = bool(row["samples"])
        if not self.is_finite:
            return
        if row["gradient_norm"] is not None:
            self.norm, self.coupling = row["gradient_norm"], row["coupling"]
            self.peak = max(self.norm, self.peak)
        loss = row["loss"]
        if loss is not None and math.isfinite(loss):
            self.losses = [*self.losses, loss][-2 * thresholds.rows :]
            self.flat = min(self.flat + 1, len(self.losses))
            self.highest = max(self.highest, loss)
            if self.is_told:
                self.lowest = min(self.lowest, self.level)

    @property
    def is_told(self) -> bool:
        """Whether there are enough rows of the loss to judge by."""
        return len(self.losses) >= LEAST_ROWS

    @property
    def level(self) -> float:
        """The mean of the latest losses."""
        return statistics.fmean(self.losses[-LEVEL_ROWS:])

    @property
    def scale(self) -> float:
        """What a fall is a share of: chance where it is known and counts, or else the highest loss."""
        if self.chance is not None and self.chance > LITTLE * self.highest:
            return min(self.chance, self.highest)
        return max(abs(self.highest), self.highest - self.lowest)

    def settle(self, wanted: State, thresholds: Thresholds) -> None:
        """Change to a state if enough rows have asked for it, and at once to and from one that is not by degrees."""
        self.times = self.times + 1 if wanted == self.asked else 1
        self.asked = wanted
        at_once = {State.UNSEEN, State.DIVERGED}
        if self.times >= thresholds.hold or wanted in at_once or self.state in at_once:
            self.state = wanted
        if self.state == State.LEARNING:
            self.flat = 0
        self.waited = self.waited + 1 if self.state in (State.HARD, State.INCOHERENT) else 0


def judge(histories: Mapping[str, History], thresholds: Thresholds, seen: Collection[str]) -> None:
    """Bring the states of the sources that were seen up to date with their latest rows."""
    finite = {name: history for name, history in histories.items() if history.is_finite}
    norms = [history.norm for history in finite.values() if math.isfinite(history.norm)]
    mean = statistics.fmean(norms) if norms else 0.0
    small = {
        name
        for name, history in finite.items()
        if history.norm == 0 or history.norm < thresholds.saturated * max(history.peak, mean)
    }
    couplings = {name: history.coupling for name, history in finite.items() if name not in small}
    for name in seen:
        history = histories[name]
        others = [coupling for other, coupling in couplings.items() if other != name]
        if name not in finite:
            wanted = State.DIVERGED
        elif history.is_told:
            wanted = _by_loss(history, thresholds)
        elif name in small:
            wanted = State.SATURATED
        elif others and history.coupling < thresholds.incoherent * statistics.fmean(others):
            wanted = State.INCOHERENT
        else:
            wanted = State.LEARNING
        history.settle(wanted, thresholds)


def _by_loss(history: History, thresholds: Thresholds) -> State:
    """The state that the losses ask for."""
    if history.norm == 0 or 0 <= history.level <= NOTHING * history.highest:
        return State.SATURATED
    if is_falling(history, thresholds):
        return State.LEARNING
    if is_low(history, thresholds):
        return State.SATURATED
    return State.INCOHERENT if history.waited >= thresholds.patience else State.HARD


def is_falling(history: History, thresholds: Thresholds) -> bool:
    """Whether the loss falls; it takes evidence to begin, and evidence of the contrary to end.

    Next to chance a loss scatters, and creeps towards chance from above for as long as the model is too sure: it does
    not begin to fall there, and goes on to only while it heads for below.
    """
    losses, rows, least = history.losses, thresholds.rows, thresholds.fall * history.scale
    doubt = thresholds.errors * scatter_of(losses[-rows:])
    if _is_near_chance(history, thresholds):
        return history.state == State.LEARNING and _heads_below_chance(history, thresholds)
    if history.state == State.LEARNING:
        return not _has_ceased_to_fall(losses, rows, doubt, least)
    enough = LEAST_ROWS
    if history.state == State.SATURATED:  # one way, unless the fall is clear
        least, enough = AGAIN * least, rows
    since = {min(history.flat, many) for many in (rows, 2 * rows)}  # rows from before it ceased would begin it again
    return any(
        fall_of(losses[-many:], rows) - doubt * error_of(many, rows) >= least for many in since if many >= enough
    )


def _has_ceased_to_fall(losses: Sequence[float], rows: int, doubt: float, least: float) -> bool:
    """Whether losses surely fall by less than counts; where they scatter too much for that, whether none is seen."""
    for many in (rows, 2 * rows):
        fall, error = fall_of(losses[-many:], rows), doubt * error_of(min(many, len(losses)), rows)
        if error < least:
            return fall + error < least
    return fall < error / 2


def _is_near_chance(history: History, thresholds: Thresholds) -> bool:
    """Whether chance is known, and the loss is lower by less than `chance` or higher by less than `learned`.

    By less than half of that, if the source is learning.
    """
    if history.chance is None:
        return False
    above = thresholds.learned / (2 if history.state == State.LEARNING else 1)
    return -thresholds.chance * history.chance < history.level - history.chance < above * history.chance


def _heads_below_chance(history: History, thresholds: Thresholds) -> bool:
    """Whether the line of the latest losses, continued for half of `rows`, ends clearly below chance."""
    fall = fall_of(history.losses[-(3 * thresholds.rows // 5) :], thresholds.rows // 2)
    return history.chance is not None and history.level - fall < (1 - thresholds.chance) * history.chance


def is_low(history: History, thresholds: Thresholds) -> bool:
    """Whether the loss has come down: next to nothing, or below chance where that is known."""
    if 0 <= history.level < LITTLE * history.highest:
        return True
    if history.chance is None:
        return has_come_down(history.losses[-thresholds.rows :], history.highest, thresholds)
    share = thresholds.below_chance / (2 if history.state == State.SATURATED else 1)
    return history.level < (1 - share) * history.chance


def has_come_down(losses: Sequence[float], highest: float, thresholds: Thresholds) -> bool:
    """Whether the mean of losses is lower than the highest by more than the share `learned` of its absolute value.

    A share says little of losses that may be negative, as those of densities: near zero, any scatter is a large one.
    Where one of them is, they must have come down by more than the range of these losses too.
    """
    fall = highest - statistics.fmean(losses)
    if not fall > thresholds.learned * abs(highest):
        return False
    return min(losses) >= 0 or fall > max(losses) - min(losses)


def fall_of(losses: Sequence[float], rows: int) -> float:
    """How far losses fall in so many rows, along the line that is nearest to them by least squares."""
    middle = (len(losses) - 1) / 2
    return -rows * sum((row - middle) * loss for row, loss in enumerate(losses)) / _spread(len(losses))


def error_of(count: int, rows: int) -> float:
    """The standard error of `fall_of` so many losses, for a scatter of 1."""
    return rows / math.sqrt(_spread(count))


def _spread(count: int) -> float:
    """The sum of the squares of 0, ..., n - 1 around their mean: n (n^2 - 1) / 12."""
    return count * (count**2 - 1) / 12


def scatter_of(losses: Sequence[float]) -> float:
    """The standard deviation of losses around their trend, from the differences of those that follow each other."""
    squares = [(late - early) ** 2 for early, late in itertools.pairwise(losses)]
    return math.sqrt(statistics.fmean(squares) / 2) if squares else 0.0


def entropy(counts: Collection[float]) -> float:
    """The entropy of labels that occur so often each, in nats: the loss of a model that knows no more than that."""
    total = sum(counts)
    return sum(count / total * math.log(total / count) for count in counts if count)


def advise(history: History) -> str:
    """What to do about a source, in one line."""
    match history.state:
        case State.UNSEEN:
            return "no sample yet: check its share"
        case State.LEARNING:
            return "learning: keep its share"
        case State.SATURATED if history.is_told and history.level > history.lowest + 0.1 * history.scale:
            return "learned, but its loss has risen again: raise its share"
        case State.SATURATED:
            return "learned: keep 5%"
        case State.HARD:
            return "hard, not yet: noise, or a plateau before it is learned; keep a small share and wait"
        case State.INCOHERENT if history.is_told:
            return f"pure noise so far ({history.waited} rows): lower its share, unless it should be learned late"
        case State.INCOHERENT:
            return "low coupling, perhaps noise: give the monitor losses before you lower its share"
        case _:
            return "losses or gradients are not finite: check its data and the learning rate"
