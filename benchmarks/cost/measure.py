"""How long training steps take, measured side by side.

All variants are built first. Then they take turns: in each round every variant runs a few steps on data that
is drawn for the round and is the same for all. What disturbs the machine meets all of them alike, and the
ratio to the plain step of the same round is steadier than any of the times. The order is rotated from round
to round. Variants that take long sit out some of the rounds.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.cost.cases import Data
from benchmarks.cost.results import Spread, Timing
from benchmarks.cost.steps import Step

Clock = Callable[[], float]
Round = Mapping[str, float]
"""The seconds of one step, by variant, of those that took part."""

PLAIN = "plain"


@dataclass(frozen=True)
class Budget:
    """How long to measure.

    Attributes:
        rounds: at most so many.
        seconds: start no round after so much time.
        least: measure at least so many rounds, whatever the time; all variants take part in them.
        warmup: steps of each variant before the first round.
        turn: seconds that one variant's turn shall take; as many steps as fit, at most 20.
        precision: stop when the median ratio of each variant that never sits out is known to this relative
            precision (half the width of its 95% interval), but not before 20 rounds.
    """

    rounds: int = 200
    seconds: float = 60.0
    least: int = 3
    warmup: int = 3
    turn: float = 0.15
    precision: float = 0.005


def measure_times(
    steps: Mapping[str, Step],
    draw: Callable[[], Data],
    budget: Budget,
    rounds: list[Round],
    watch: Callable[[int, str], None] = lambda done, name: None,
    clock: Clock = time.perf_counter,
) -> None:
    """Measure steps in turns.

    Args:
        steps: by variant; one of them is "plain".
        draw: makes the data of a round.
        budget: how long to measure.
        rounds: where to add each round when it is complete, so that what was measured survives an interruption.
        watch: told before each turn how many rounds are done and whose turn it is.
        clock: the time in seconds.
    """
    once = {name: _warm_up(step, draw(), budget.warmup, clock) for name, step in steps.items()}
    counts = {name: max(1, min(20, round(budget.turn / max(t, 1e-6)))) for name, t in once.items()}
    periods = sitting_out({name: counts[name] * once[name] for name in steps})
    steady = [name for name, period in periods.items() if period == 1 and name != PLAIN]
    start = clock()
    while len(rounds) < budget.rounds:
        number = len(rounds)
        left = budget.seconds - (clock() - start)
        enough = left <= 0 or settled(rounds, steady, budget.precision)
        if number >= budget.least and enough:
            break
        present = [n for n in steps if number < budget.least or number % periods[n] == 0]
        data = draw()
        turns: dict[str, float] = {}
        for name in rotated(present, number):
            watch(number, name)
            turns[name] = _turn(steps[name], data, counts[name], clock)
        rounds.append(turns)


def sitting_out(turns: Mapping[str, float]) -> dict[str, int]:
    """In which rounds a variant takes part: each k-th, so that it costs no more than all quick ones together.

    Args:
        turns: the seconds of one turn, by variant.
    """
    quick = [t for t in turns.values() if t <= 4 * turns[PLAIN]]
    return {name: max(1, math.ceil(t / sum(quick))) for name, t in turns.items()}


def rotated(names: Sequence[str], by: int) -> list[str]:
    """The names in the same cyclic order, starting with another one each time."""
    start = by % len(names)
    return [*names[start:], *names[:start]]


def settled(rounds: Sequence[Round], names: Sequence[str], precision: float) -> bool:
    """Whether the median ratio of each of these variants is known well enough.

    The 95% interval of a median reaches about 1.82 interquartile ranges / sqrt(n) to either side (1.96 times
    its standard error, for values that spread like a normal distribution).
    """
    if len(rounds) < 20 or not names:
        return False
    spreads = [spread([r[name] / r[PLAIN] for r in rounds]) for name in names]
    return all(1.82 * (s.high - s.low) / len(rounds) ** 0.5 <= precision * s.median for s in spreads)


def summarise(rounds: Sequence[Round]) -> tuple[Timing, ...]:
    """Medians and quartiles of each variant over the rounds that it took part in."""
    names = rounds[0] if rounds else ()  # the first rounds have all variants, in the order of the tables
    plain = statistics.median([each[PLAIN] for each in rounds]) if rounds else math.nan
    timings = []
    for name in names:
        own = [each for each in rounds if name in each]
        seconds = spread([each[name] for each in own])
        ratio = spread([each[name] / each[PLAIN] for each in own])
        timings.append(Timing(name, len(own), seconds, ratio, seconds.median / plain))
    return tuple(timings)


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles; of a single value, that value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, median, high)


def _warm_up(step: Step, data: Data, count: int, clock: Clock) -> float:
    """Run a step some times and return the seconds of the quickest."""
    return min(_timed(step, data, clock) for _ in range(max(1, count)))


def _turn(step: Step, data: Data, count: int, clock: Clock) -> float:
    """The median time of some steps, after one that brings the model back into the cache if there are several."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        if count > 1:
            step(data)
        return statistics.median([_timed(step, data, clock) for _ in range(count)])
    finally:
        if collecting:
            gc.enable()


def _timed(step: Step, data: Data, clock: Clock) -> float:
    start = clock()
    step(data)
    return clock() - start
