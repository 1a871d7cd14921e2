"""Results as tables: on the screen, and as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.common import Machine
from benchmarks.cost.results import CaseResult, Memory, Result, Timing
from benchmarks.cost.variants import VARIANTS
from headway.analysis.table import Table

TITLES = {key: variant.title for key, variant in VARIANTS.items()}
PEERS = tuple(key for key, variant in VARIANTS.items() if variant.peer)
NONE = "-"


def show(result: Result) -> None:
    """Print the tables."""
    print(provenance(result.machine), *legend(result), sep="\n")
    for table in tables(result):
        print("", table.text(), sep="\n")
    if found := list(notes(result)):
        print("", *found, sep="\n")


def markdown(result: Result) -> str:
    """The tables for the docs."""
    return "\n".join(_markdown(result))


def _markdown(result: Result) -> Iterator[str]:
    yield f"Measured on {provenance(result.machine)}\n"
    yield from (f"- {line}" for line in legend(result))
    for table in tables(result):
        yield f"\n{table.title}:\n"
        yield table.markdown()
    left_out = list(notes(result))
    if left_out:
        yield "\nNotes:\n"
        yield from (f"- {note}" for note in left_out)


def tables(result: Result) -> list[Table]:
    """Times and memory, of headway and of the peers; without those that would be empty."""
    made = (times(result), faster(result), memory(result), peer_memory(result))
    return [table for table in made if table.rows]


def times(result: Result) -> Table:
    """The plain step in milliseconds, and every other step as a multiple of it."""
    others = [key for key in TITLES if key != "plain" and _tried(result, key)]
    rows = []
    for case in result.cases:
        plain, own = case.timing("plain"), case.timing("headway")
        if plain is not None:
            goal = NONE if own is None else _verdict(f"{case.goal:.2f}", own.ratio.median <= case.goal)
            step = f"{1000 * plain.seconds.median:.3g} ms"
            rows.append((case.key, step, *(_ratio(case.timing(key)) for key in others), goal))
    columns = ("case", TITLES["plain"], *(TITLES[key] for key in others), "goal")
    title = "Time of a step, as a multiple of the plain step (± half the interquartile range)"
    return Table(columns, tuple(rows), title)


def faster(result: Result) -> Table:
    """How many times as long the peers take as headway."""
    peers = [key for key in PEERS if _tried(result, key)]
    rows = []
    for case in result.cases:
        own = case.timing("headway")
        found = [case.timing(key) for key in peers]
        if own is not None and any(found):
            multiples = [None if t is None else t.ratio.median / own.ratio.median for t in found]
            cells = (NONE if multiple is None else f"{multiple:.3g}" for multiple in multiples)
            met = all(multiple >= case.peer_goal for multiple in multiples if multiple is not None)
            rows.append((case.key, *cells, _verdict(f"{case.peer_goal:g}", met)))
    columns = ("case", *(TITLES[key] for key in peers), "goal")
    return Table(columns, tuple(rows), "Time of the peers' step, as a multiple of headway's step")


def memory(result: Result) -> Table:
    """What headway needs beyond the plain step, in MiB and as a multiple of the parameters."""
    rows = []
    for case, found in _by_batch(result):
        if "headway" in found:
            plain, own = found["plain"], found["headway"]
            sizes = (plain.state + plain.peak, own.extra_state, own.extra_peak, own.extra)
            multiple = f"{own.extra / case.parameters:.1f}"
            goal = _verdict(mib(case.memory_goal), own.extra <= case.memory_goal)
            rows.append((case.key, str(own.batch), *map(mib, sizes), multiple, goal))
    columns = ("case", "batch", TITLES["plain"], "state", "peak", "sum", "/ parameters", "goal")
    return Table(columns, tuple(rows), "Memory of headway beyond the plain step, in MiB")


def peer_memory(result: Result) -> Table:
    """What each variant needs beyond the plain step, state and peak together."""
    shown = [key for key in TITLES if key != "plain" and _tried(result, key)]
    rows = []
    for case, found in _by_batch(result):
        if any(key in found for key in PEERS):
            extras = (found[key].extra if key in found else None for key in shown)
            cells = (NONE if e is None else f"{mib(e)} ({e / case.parameters:.1f})" for e in extras)
            rows.append((case.key, str(found["plain"].batch), *cells))
    columns = ("case", "batch", *(TITLES[key] for key in shown))
    title = "State and peak beyond the plain step, in MiB (and as a multiple of the parameters)"
    return Table(columns, tuple(rows), title)


def legend(result: Result) -> Iterator[str]:
    """What the letters of the cases mean."""
    for case in result.cases:
        yield f"{case.key}: {case.title}; batch {case.batch}, {mib(case.parameters)} MiB of parameters"


def notes(result: Result) -> Iterator[str]:
    """What was left out and why, whether the machine was busy, and whether the run was cut short."""
    left_out: dict[tuple[str, str], list[str]] = {}
    for case in result.cases:
        for each in case.skipped:
            where = f"case {case.key}" + ("" if each.batch is None else f" at batch {each.batch}")
            left_out.setdefault((where, each.reason), []).append(TITLES[each.variant])
    for (where, reason), variants in left_out.items():
        yield f"Not measured, {where}: {', '.join(variants)}; {reason}."
    machine = result.machine
    busy = [case for case in result.cases if (case.busy or 0) + machine.threads > machine.cores + 0.1]
    if busy:
        cores = ", ".join(f"{case.busy or 0:.1f} (case {case.key})" for case in busy)
        yield (
            f"Other processes kept so many of {machine.cores} cores busy: {cores}. The {machine.threads} threads of "
            f"the benchmark did not have a core each; measure again on a quiet machine."
        )
    if not result.complete:
        yield "The run was interrupted: cases may be missing, or rest on few rounds."


def provenance(machine: Machine) -> str:
    """One line about the machine and the versions."""
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    cores = f"{machine.cores} core{'s' if machine.cores > 1 else ''}"
    threads = f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"
    return f"{machine.date}; {machine.cpu}, {cores}, {threads}; Python {machine.python}, {versions}."


def mib(size: float) -> str:
    """Bytes in MiB with about three digits."""
    value = size / 2**20
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _tried(result: Result, key: str) -> bool:
    return any(case.timing(key) or case.why_skipped(key) for case in result.cases)


def _by_batch(result: Result) -> Iterator[tuple[CaseResult, dict[str, Memory]]]:
    """Each case with the memory of its variants, once for every batch size."""
    for case in result.cases:
        for batch in dict.fromkeys(each.batch for each in case.memories):
            yield case, {each.variant: each for each in case.memories if each.batch == batch}


def _ratio(timing: Timing | None) -> str:
    if timing is None:
        return NONE
    median, half = timing.ratio.median, (timing.ratio.high - timing.ratio.low) / 2
    digits = 2 if median < 10 else 1 if median < 100 else 0
    return f"{median:.{digits}f} ±{half:.{digits}f}"


def _verdict(goal: str, met: bool) -> str:
    return f"{goal}: {'met' if met else 'missed'}"
