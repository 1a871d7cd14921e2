"""What happens in a campaign, as the launchers tell it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


class Outcome(str, enum.Enum):
    """How an attempt at a run ended."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    HELD = "held"
    """Another process works on it."""


@dataclass(frozen=True)
class Started:
    """A process has claimed a run and works on it; `host` is the machine, if it is not this one."""

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
    """An attempt at a run is over.

    Attributes:
        run_id: the run.
        outcome: how it ended.
        message: why, if it failed.
        here: whether this campaign did it; False when the run was found so.
    """

    run_id: str
    outcome: Outcome
    message: str = ""
    here: bool = True


@dataclass(frozen=True)
class Stopping:
    """The campaign was asked to stop and waits for the batches under way."""


Event: TypeAlias = Started | Advanced | Lost | Stalled | Ended | Stopping
Tell: TypeAlias = Callable[[Event], None]
