"""How long training steps take, and how much memory they need.

Times are measured side by side. All variants are built first. Then they take turns: in each round every variant runs a
few steps on data that is drawn for the round and is the same for all. What disturbs the machine meets all of them
alike, and the ratio to the plain step of the same round is steadier than any of the times. The order is rotated from
round to round. Variants that take long sit out some of the rounds.

Memory is counted from the allocator's own events. torch's profiler reports every block that the CPU allocator hands out
or takes back, also those inside a kernel, which a TorchDispatchMode would not see and which the resident size of the
process shows only after rounding, caching and fragmentation. The model is built and trained under the profiler, so that
every block which is freed is known, and the running sum of the events is exact:

    state   bytes alive between two steps: parameters, optimizer, moments, buffers that are kept
    peak    the most bytes alive at once during a step, beyond the state before it

Work space that a library behind torch (oneDNN, MKL) allocates by itself is not seen.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.cost.cases import Case, Data
from benchmarks.cost.results import Memory, Spread, Timing
from benchmarks.cost.variants import Step, Variant, make_step

Clock = Callable[[], float]
Round = Mapping[str, float]
"""The seconds of one step, by variant, of those that took part."""

PLAIN = "plain"
MARK = "benchmarks.cost.step"
"""The name of the block whose allocations are listed apart."""


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


def measure_memory(variant: Variant, case: Case, data: Data, warmup: int = 2) -> Memory:
    """Measure one variant on one case.

    Args:
        variant: how the step is done.
        case: the model; its batch size is that of the data.
        data: one batch.
        warmup: steps before the measured one. The first allocates what is kept.
    """

    def work() -> Step:
        step = make_step(variant, case)
        for _ in range(warmup):
            step(data)
        with record_function(MARK):
            step(data)
        return step  # alive until the profile ends: the state must not be counted as freed

    before, during = traced(work)
    state = sum(before)
    return Memory(variant.key, len(data.x), state=state, peak=max(accumulate(during), default=0))


def traced(work: Callable[[], object]) -> tuple[list[int], list[int]]:
    """Run some work and list its allocations (positive) and releases (negative), in bytes.

    Returns:
        Those before the block that is marked, and those inside it. Releases of memory that is older than the
        work are not listed.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler announces itself on stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        kept = work()
    del kept
    nodes = sorted(_nodes(profiler), key=lambda node: node.start_time_ns)
    mark = next(node for node in nodes if node.name == MARK)
    before: list[int] = []
    during: list[int] = []
    known: set[int] = set()  # an address may have had another use before the work
    for node in nodes:
        if node.name != "[memory]" or node.start_time_ns > mark.end_time_ns:
            continue
        size, address = node.extra_fields.alloc_size, node.extra_fields.ptr
        if size < 0 and address not in known:
            continue
        (known.add if size > 0 else known.discard)(address)
        (before if node.start_time_ns < mark.start_time_ns else during).append(size)
    return before, during


def _nodes(profiler: Any) -> Iterator[Any]:
    """The raw events; the public list merges allocations into the operators that made them."""
    waiting = list(profiler.profiler.kineto_results.experimental_event_tree())
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children)
