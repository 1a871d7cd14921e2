"""What happens in a campaign, as events, and where it then stands, as `CampaignProgress`: displays write it out."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from headway.runs.spec import RunSpec
from headway.runs.text import dataset_of


class Outcome(str, enum.Enum):
    """How an attempt at a run ended."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    HELD = "held"
    """Another process works on it."""


@dataclass(frozen=True)
class Started:
    """A process has locked a run and works on it; `host` is the machine, if it is not this one."""

    run_id: str
    pid: int
    host: str = ""


@dataclass(frozen=True)
class Advanced:
    """A run has come so far."""

    run_id: str
    step: int
    total: int
    losses: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """The process that worked on a run is gone; the run starts again from its checkpoint."""

    run_id: str
    message: str


@dataclass(frozen=True)
class Stalled:
    """Nothing was heard for so many seconds of a run under way; the process is 0 where it is not known."""

    run_id: str
    seconds: float
    pid: int = 0


@dataclass(frozen=True)
class Ended:
    """An attempt at a run is over; the message says why, if it failed."""

    run_id: str
    outcome: Outcome
    message: str = ""
    here: bool = True
    """Whether this campaign did it; False when the run was found so."""


@dataclass(frozen=True)
class Stopping:
    """The campaign was asked to stop and waits for the batches under way."""


Event: TypeAlias = Started | Advanced | Lost | Stalled | Ended | Stopping
Notify: TypeAlias = Callable[[Event], None]

_OVER = {Outcome.DONE, Outcome.FAILED}


@dataclass
class Active:
    """A run under way: since when, from which step to which, and its latest losses."""

    spec: RunSpec
    since: float
    first: int | None = None
    step: int = 0
    total: int | None = None
    losses: Mapping[str, float] = field(default_factory=dict)

    @property
    def gained(self) -> int:
        """The steps that were done in this attempt, as far as the reports tell."""
        return self.step - (self.first or 0)

    def share(self, steps: int) -> float:
        """How much of the run so many steps are, from 0 to 1."""
        return min(1.0, steps / self.total) if self.total else 0.0

    def fraction(self) -> float:
        """How much of the run is done, from 0 to 1."""
        return self.share(self.step)

    def speed(self, now: float) -> float | None:
        """Steps per second; None while unknown."""
        return self.gained / (now - self.since) if self.gained > 0 and now > self.since else None

    def time_left(self, now: float) -> float | None:
        """Seconds to its end; None while unknown."""
        speed = self.speed(now)
        return max(0, self.total - self.step) / speed if speed and self.total else None


class CampaignProgress:
    """Counts of a campaign's runs, those under way, and the time left."""

    def __init__(self, specs: Iterable[RunSpec], clock: Callable[[], float] = time.monotonic) -> None:
        self.specs = {spec.run_id: spec for spec in specs}
        self.ends: dict[str, Ended] = {}
        self.active: dict[str, Active] = {}
        self.is_stopping = False
        parts: tuple[Callable[[RunSpec], str], ...] = (dataset_of, lambda spec: spec.condition)
        self._differing = [part for part in parts if len(set(map(part, self.specs.values()))) > 1]
        self.now = clock
        self._began: float | None = None
        self._gained = 0.0
        self._whole = self._open = sum(map(_weight, self.specs.values()))

    def apply(self, event: Event) -> None:
        """Take an event into account."""
        match event:
            case Started(run_id=run_id):
                self._reopen(run_id)
                run = self.active[run_id] = Active(self.specs[run_id], self.now())
                self._began = run.since if self._began is None else self._began
            case Advanced(run_id=run_id):
                self._advance(self.active.get(run_id), event)
            case Lost(run_id=run_id):
                self.active.pop(run_id, None)
            case Ended():
                self._end(event)
            case Stopping():
                self.is_stopping = True

    def count(self, outcome: Outcome, here: bool | None = None) -> int:
        """How many runs ended so; `here` asks for those that this campaign carried out, or found so."""
        return sum(end.outcome is outcome and here in (None, end.here) for end in self.ends.values())

    def failures(self) -> list[Ended]:
        """The failed runs."""
        return [end for end in self.ends.values() if end.outcome is Outcome.FAILED]

    def is_complete(self) -> bool:
        """Whether every run is done or has failed."""
        return self.count(Outcome.DONE) + self.count(Outcome.FAILED) == len(self.specs)

    def fraction(self) -> float:
        """How much of the campaign's work is done, from 0 to 1."""
        return 1.0 - self._work_left() / self._whole if self._whole else 1.0

    def time_left(self) -> float | None:
        """Seconds to the end, at the pace so far; None while unknown."""
        now = self.now()
        gained = self._gained + sum(run.share(run.gained) * _weight(run.spec) for run in self.active.values())
        if self._began is None or gained <= 0:
            return None
        paced = self._work_left() * (now - self._began) / gained
        return max([paced, *(left for run in self.active.values() if (left := run.time_left(now)))])

    def setting(self, spec: RunSpec) -> str:
        """The dataset and condition of a run, as far as the campaign's runs differ in them."""
        return " ".join(part(spec) for part in self._differing)

    def _advance(self, run: Active | None, event: Advanced) -> None:
        if run is None:
            return
        if run.first is None and event.step > 1:  # it goes on from a checkpoint
            run.first, run.since = event.step, self.now()
        run.first = run.first or 0
        run.step, run.total, run.losses = event.step, event.total, event.losses

    def _end(self, event: Ended) -> None:
        self._reopen(event.run_id)
        self.ends[event.run_id] = event
        weight = _weight(self.specs[event.run_id])
        if event.outcome in _OVER:
            self._open -= weight
        run = self.active.pop(event.run_id, None)
        if run and event.outcome is Outcome.DONE:
            self._gained += weight * (1.0 - run.share(run.first or 0))

    def _reopen(self, run_id: str) -> None:
        """Forget how a run ended before: another process held it, say, and has died."""
        before = self.ends.pop(run_id, None)
        if before and before.outcome in _OVER:
            self._open += _weight(self.specs[run_id])

    def _work_left(self) -> float:
        begun = sum(run.fraction() * _weight(run.spec) for run in self.active.values())
        return max(0.0, self._open - begun)


def _weight(spec: RunSpec) -> float:
    """How much work a run is, compared with others of its campaign: its length."""
    length = spec.params.get("epochs", spec.params.get("steps", 1))
    return float(length) if isinstance(length, (int, float)) and length > 0 else 1.0
