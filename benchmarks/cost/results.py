"""What a benchmark finds, as frozen records that are stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Machine
from headway.errors import HeadwayError

SCHEMA = 1
CHUNK = 8 * 2**20
"""Bytes that a block of per-sample gradients may take while it is reduced (2^21 numbers of float32)."""


@dataclass(frozen=True)
class Spread:
    """The median and the quartiles of some measurements."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Timing:
    """How long the step of one variant takes.

    Attributes:
        variant: its key.
        rounds: the rounds that it took part in.
        seconds: of one step.
        ratio: of a step to the plain step of the same round.
        ratio_of_medians: of the two medians over all rounds.
    """

    variant: str
    rounds: int
    seconds: Spread
    ratio: Spread
    ratio_of_medians: float


@dataclass(frozen=True)
class Memory:
    """How many bytes a variant needs; the extras are beyond what the plain step needs.

    Attributes:
        variant: its key.
        batch: the batch size.
        state: alive between two steps.
        peak: the most alive at once in a step, beyond the state before it.
        extra_state: state beyond the plain step's.
        extra_peak: peak beyond the plain step's; negative where the step needs less.
    """

    variant: str
    batch: int
    state: int
    peak: int
    extra_state: int = 0
    extra_peak: int = 0

    @property
    def extra(self) -> int:
        """State and peak beyond the plain step's."""
        return self.extra_state + self.extra_peak


@dataclass(frozen=True)
class Skipped:
    """A variant that was not measured, and why; the batch is given where only one size was left out."""

    variant: str
    reason: str
    batch: int | None = None


@dataclass(frozen=True)
class CaseResult:
    """Everything about one case.

    Attributes:
        key: its letter.
        title: what it is.
        batch: the batch size of the times.
        parameters: bytes of the model's parameters.
        goal: the ratio that the step with scores shall not exceed.
        timings: one for each variant that ran.
        memories: one for each variant and batch size.
        skipped: variants that did not run.
        peer_goal: the multiple of the step with scores that each peer's step shall reach.
        busy: cores that other processes kept busy meanwhile; None where the system does not tell.
    """

    key: str
    title: str
    batch: int
    parameters: int
    goal: float
    timings: tuple[Timing, ...] = ()
    memories: tuple[Memory, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    peer_goal: float = 1.0
    busy: float | None = None

    def timing(self, variant: str) -> Timing | None:
        """The times of a variant, if it was measured."""
        return next((timing for timing in self.timings if timing.variant == variant), None)

    def why_skipped(self, variant: str) -> str | None:
        """Why a variant has no times, if it was tried."""
        reasons = (s.reason for s in self.skipped if s.variant == variant and s.batch is None)
        return next(reasons, None)

    @property
    def memory_goal(self) -> int:
        """The bytes that scores may need beyond the plain step: 4 times the parameters and one chunk."""
        return 4 * self.parameters + CHUNK


@dataclass(frozen=True)
class Result:
    """One run of the benchmark.

    Attributes:
        machine: where it ran.
        settings: the options that it ran with.
        cases: what was measured.
        complete: False if it was interrupted.
    """

    machine: Machine
    settings: Mapping[str, Any]
    cases: tuple[CaseResult, ...]
    complete: bool = True


def to_json(result: Result) -> str:
    """A result as text that `from_json` reads."""
    return json.dumps({"schema": SCHEMA, **asdict(result)}, indent=2) + "\n"


def from_json(text: str) -> Result:
    """The result that `to_json` wrote.

    Raises:
        HeadwayError: the text is not such a result.
    """
    try:
        raw = json.loads(text)
        if raw["schema"] != SCHEMA:
            raise HeadwayError(f"expected benchmark results of schema {SCHEMA}, got {raw['schema']!r}")
        cases = tuple(_case(each) for each in raw["cases"])
        return Result(Machine(**raw["machine"]), raw["settings"], cases, raw["complete"])
    except (KeyError, TypeError, ValueError) as error:
        raise HeadwayError(f"expected the JSON of a benchmark, got something else: {error!r}") from error


def _case(raw: dict[str, Any]) -> CaseResult:
    timings = tuple(
        Timing(**{**each, "seconds": Spread(**each["seconds"]), "ratio": Spread(**each["ratio"])})
        for each in raw["timings"]
    )
    memories = tuple(Memory(**each) for each in raw["memories"])
    skipped = tuple(Skipped(**each) for each in raw["skipped"])
    return CaseResult(**{**raw, "timings": timings, "memories": memories, "skipped": skipped})


def load(path: Path) -> Result:
    """Read a stored result."""
    return from_json(path.read_text("utf-8"))


def save(result: Result, path: Path) -> None:
    """Store a result; a file that is there is replaced as a whole."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(to_json(result), "utf-8")
    temporary.replace(path)
