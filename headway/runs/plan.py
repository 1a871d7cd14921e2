"""From words to runs and back: what the options of a command ask for, and what a campaign would do."""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.errors import UsageError
from headway.runs import RunRecord, RunSpec, RunStore, State
from headway.runs.context import Context
from headway.runs.experiments import find_experiment

MOST_SEEDS = 100_000
MOST_RUNS = 1_000_000
_RANGE = re.compile(r"(\d{1,18})(?::(\d{1,18}))?", re.ASCII)


def parse_seeds(text: str) -> list[int]:
    """Read seeds: "5", "0,3,7", "0:20" (without 20), or several of them with commas.

    Raises:
        UsageError: it makes no range.
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2]) if match and match[2] else first + 1
        if match is None or last <= first:
            raise UsageError(f"expected seeds such as 5 or 0,3,7 or 0:20 (0 to 19), got {text!r}")
        if len(seeds) + last - first > MOST_SEEDS:
            raise UsageError(f"expected at most {MOST_SEEDS} seeds, got {text!r}")
        seeds.update(dict.fromkeys(range(first, last)))
    return list(seeds)


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """Read settings such as "beta=0.99".

    Raises:
        UsageError: one has no equals sign, or a field comes twice.
    """
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise UsageError(f"expected FIELD=VALUE, got {text!r}")
        if name.strip() in settings:
            raise UsageError(f"expected every field once, got {name.strip()!r} twice")
        settings[name.strip()] = value.strip()
    return settings


def parse_sweeps(texts: Iterable[str], runs_each: int = 1) -> list[dict[str, str]]:
    """Read sweeps such as "beta=0.9,0.99": one set of settings for every combination of their values.

    Args:
        texts: the sweeps.
        runs_each: how many runs every combination has.

    Raises:
        UsageError: one has no values, or a field comes twice, or there are too many runs.
    """
    sweeps = parse_settings(texts)
    for name, values in sweeps.items():
        if not all(value.strip() for value in values.split(",")):
            raise UsageError(f"expected FIELD=VALUE,VALUE,..., got {name + '=' + values!r}")
    choices = [[(name, value.strip()) for value in values.split(",")] for name, values in sweeps.items()]
    runs = runs_each * math.prod(map(len, choices))
    if runs > MOST_RUNS:
        raise UsageError(f"expected at most {MOST_RUNS} runs, got {runs}; sweep over fewer values or seeds")
    return [dict(combination) for combination in itertools.product(*choices)]


def check_said_once(what: str, option: str, value: object | None, fields: Iterable[str], given: Container[str]) -> None:
    """Refuse an option beside fields that it would overrule: the same work would have several ids.

    Args:
        what: what is said, such as "the length of runs".
        option: the option that says it.
        value: its value, if it was given.
        fields: the fields that it overrules.
        given: the names of the fields that were given a value.

    Raises:
        UsageError: both were given.
    """
    doubled = [name for name in fields if name in given]
    if value is not None and doubled:
        raise UsageError(f"expected {what} once, got {option} and {doubled[0]}=...; leave one of them out")


@dataclass(frozen=True)
class Plan:
    """What a campaign would do.

    Attributes:
        records: each of its runs and where it stands in the store.
        seconds: how long each run that is left would take on one core, by its id; empty when unknown.
        workers: how many runs go on at once.
    """

    records: tuple[RunRecord, ...]
    seconds: Mapping[str, float]
    workers: int

    def total_seconds(self) -> float:
        """How long the whole would take: runs go to whichever worker is free, in their order."""
        free = [0.0] * max(1, self.workers)
        for seconds in self.seconds.values():
            heapq.heappush(free, heapq.heappop(free) + seconds)
        return max(free)


def look_up(store: RunStore, specs: Sequence[RunSpec]) -> tuple[RunRecord, ...]:
    """Where runs stand in a store. Nothing is written, and there may be no store yet.

    Raises:
        StoreError: the store cannot be read, or is of a newer version.
    """
    if not store.exists():
        return tuple(RunRecord(spec.run_id, State.PENDING, spec) for spec in specs)
    known = {record.run_id: record for record in store.status()}
    return tuple(known.get(spec.run_id, RunRecord(spec.run_id, State.PENDING, spec)) for spec in specs)


def make_plan(
    records: tuple[RunRecord, ...],
    specs: Sequence[RunSpec],
    workers: int,
    retry_failed: bool,
    estimate: Callable[[RunSpec], float] | None,
) -> Plan:
    """Guess how long the runs that are left take.

    Args:
        records: where the runs stand.
        specs: the runs, in the same order.
        workers: how many go on at once.
        retry_failed: whether failed runs are run again.
        estimate: guesses the seconds that a run takes on one core; None when nobody knows.
    """
    over = {State.DONE} if retry_failed else {State.DONE, State.FAILED}
    left = [(record, spec) for record, spec in zip(records, specs, strict=True) if record.state not in over]
    seconds = {record.run_id: estimate(spec) * _share_left(record) for record, spec in left} if estimate else {}
    return Plan(records, seconds, workers)


class Estimator:
    """Asks experiments how long runs take, once for all seeds: a guess takes a moment of training.

    Args:
        context: what the runs may use.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[str, float] = {}

    def __call__(self, spec: RunSpec) -> float:
        """Seconds on one core."""
        model = replace(spec, seed=0)
        if model.run_id not in self._known:
            self._known[model.run_id] = find_experiment(spec.experiment).estimate(model, self._context)
        return self._known[model.run_id]


def _share_left(record: RunRecord) -> float:
    status = record.status
    return 1.0 - min(1.0, status.step / status.total) if status and status.total else 1.0
