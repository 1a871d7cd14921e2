"""How much memory a training step needs, counted from the allocator's own events.

torch's profiler reports every block that the CPU allocator hands out or takes back, also those inside a
kernel, which a TorchDispatchMode would not see and which the resident size of the process shows only after
rounding, caching and fragmentation. The model is built and trained under the profiler, so that every block
which is freed is known, and the running sum of the events is exact:

    state   bytes alive between two steps: parameters, optimizer, moments, buffers that are kept
    peak    the most bytes alive at once during a step, beyond the state before it

Work space that a library behind torch (oneDNN, MKL) allocates by itself is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.cost.cases import Case, Data
from benchmarks.cost.results import Memory
from benchmarks.cost.steps import Step, Variant, make_step

MARK = "benchmarks.cost.step"
"""The name of the block whose allocations are listed apart."""


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
