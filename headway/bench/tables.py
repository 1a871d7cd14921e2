"""Results as tables of text: pure functions that the screen and the docs share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headway.bench.results import CaseResult, Machine, Memory, Result
from headway.bench.steps import VARIANTS

TITLES = {key: variant.title for key, variant in VARIANTS.items()}
PEERS = tuple(key for key, variant in VARIANTS.items() if variant.peer)
NONE = "-"


@dataclass(frozen=True)
class Table:
    """A title, the heads of the columns, and the rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(result: Result) -> list[Table]:
    """Times, how many times faster than the peers, and memory; without those that would be empty."""
    made = (times(result), faster(result), memory(result))
    return [table for table in made if table.rows]


def times(result: Result) -> Table:
    """The plain step in milliseconds, and every other step as a multiple of it with its quartiles."""
    others = [key for key in TITLES if key != "plain" and _tried(result, key)]
    rows = []
    for case in result.cases:
        plain = case.timing("plain")
        if plain is None:
            continue
        cells = (_ratio(case, key) for key in others)
        step = f"{1000 * plain.seconds.median:.3g} ms"
        rows.append((f"{case.key}: {case.title}", str(case.batch), step, *cells, _verdict(case)))
    columns = ("case", "batch", TITLES["plain"], *(TITLES[key] for key in others), "goal for headway")
    return Table("Time of a training step, as a multiple of the plain step (quartiles)", columns, tuple(rows))


def faster(result: Result) -> Table:
    """How many times as long the peers take as headway."""
    peers = [key for key in PEERS if _tried(result, key)]
    rows = []
    for case in result.cases:
        own = case.timing("headway")
        found = [case.timing(key) for key in peers]
        if own is not None and any(found):
            cells = (NONE if t is None else f"{t.ratio.median / own.ratio.median:.3g}" for t in found)
            rows.append((case.key, *cells))
    columns = ("case", *(TITLES[key] for key in peers))
    return Table("Time of the peers' step, as a multiple of headway's", columns, tuple(rows))


def memory(result: Result) -> Table:
    """What scores need beyond the plain step, in MiB and as a multiple of the parameters."""
    peers = [key for key in PEERS if _tried(result, key)]
    rows = []
    for case in result.cases:
        for batch in dict.fromkeys(each.batch for each in case.memories):
            found = {each.variant: each for each in case.memories if each.batch == batch}
            own = found.get("headway")
            rows.append(
                (
                    case.key,
                    str(batch),
                    mib(case.parameters),
                    mib(found["plain"].state + found["plain"].peak),
                    *((NONE,) * 3 if own is None else (mib(own.extra_state), mib(own.extra_peak), _extra(case, own))),
                    NONE if own is None else _memory_verdict(case, own),
                    *(_extra(case, found[key]) if key in found else NONE for key in peers),
                )
            )
    columns = (
        *("case", "batch", "parameters", "plain step"),
        *("headway: state", "peak", "sum", "goal for the sum"),
        *(TITLES[key] for key in peers),
    )
    title = "Memory beyond the plain step, in MiB (and as a multiple of the parameters)"
    return Table(title, columns, tuple(rows))


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


def _ratio(case: CaseResult, key: str) -> str:
    timing = case.timing(key)
    if timing is None:
        return NONE
    low, median, high = (_digits(v) for v in (timing.ratio.low, timing.ratio.median, timing.ratio.high))
    return f"{median} ({low}-{high})"


def _digits(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


def _verdict(case: CaseResult) -> str:
    timing = case.timing("headway")
    if timing is None:
        return NONE
    met = timing.ratio.median <= case.goal
    return f"{case.goal:.2f}: {'met' if met else 'missed'}"


def _extra(case: CaseResult, found: Memory) -> str:
    return f"{mib(found.extra)} ({found.extra / case.parameters:.1f})"


def _memory_verdict(case: CaseResult, own: Memory) -> str:
    met = own.extra <= case.memory_goal
    return f"{mib(case.memory_goal)}: {'met' if met else 'missed'}"
