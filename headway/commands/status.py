"""The command `headway status`: where the runs of a store stand."""

from __future__ import annotations

import argparse
import json
import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.commands.options import Place, Url, add_format_option, parse_place
from headway.errors import StoreError, UsageError
from headway.runs import RunRecord, RunStore, State
from headway.runs.files import store_error
from headway.runs.text import aligned, complain, count, dataset_of, duration, emit, last_line, plain, steps, values_text

EXPORTED = ".parquet"
HEADS = ("run", "state", "experiment", "dataset", "condition", "method", "seed", "done", "time", "remark")
_BAD = (State.FAILED, State.CORRUPT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "Shows where the runs of a store stand, or of all sections of a campaign."
    what = "the run store, or a folder of several"
    parser.add_argument("store", type=parse_place, nargs="?", default=Path("runs"), metavar="DIR", help=what)
    add_format_option(parser)
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    parser.add_argument("--failed", action="store_true", help="only failed and corrupt runs, with their tracebacks")


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    found = {place: RunStore(place).status() for place in _stores(options.store)}
    records = [record for members in found.values() for record in members]
    shown = [record for record in records if record.state in _BAD or not options.failed]
    if options.format == "text":
        text = "\n".join(_in_words(place, members, options.failed) for place, members in found.items())
    elif options.format == "json":
        text = json.dumps({"counts": counts(records), "runs": [as_dict(record) for record in shown]}, indent=1)
    else:
        from headway.analysis.table import Table  # needs NumPy, which the other formats do without

        rows = [[plain(cell, "") for cell in _row(record)] for record in shown]
        text = Table(HEADS, rows).formatted(options.format)
    return 0 if emit(text) else 1


def _stores(place: Place) -> list[Place]:
    """The store at a place, or those in the folders inside it, as a campaign leaves them."""
    if isinstance(place, Path) and place.suffix == EXPORTED and place.is_file():
        raise UsageError(f"expected a run store, got the file {place}; headway report {place} reads exported files")
    if isinstance(place, Url) or RunStore(place).exists() or not place.is_dir():
        return [place]
    try:
        children = sorted(place.iterdir())
    except OSError as error:
        raise store_error("read", place, error) from error
    stores: list[Place] = []
    for child in filter(Path.is_dir, children):
        try:
            if RunStore(child).exists():
                stores.append(child)
        except StoreError as error:  # the others are shown
            complain(f"headway status: left out {child}: {error}")
    if not stores and any(child.suffix == EXPORTED for child in children):
        raise UsageError(f"expected a run store, got exported files in {place}; headway report {place} reads them")
    return stores or [place]


def _in_words(place: Place, records: Sequence[RunRecord], only_bad: bool) -> str:
    """A table of all runs, or the bad ones in full; and how many are in each state."""
    parts = [_in_full(record) for record in records if only_bad and record.state in _BAD]
    if records and not only_bad:
        parts = [aligned([(*HEADS[:-1], ""), *map(_row, records)])]
    numbers = ", ".join(f"{number} {state}" for state, number in counts(records).items())
    summary = f"{count(len(records), 'run')} in {place}" + (f": {numbers}" if numbers else "")
    return "\n".join([*parts, summary])


def counts(records: Sequence[RunRecord]) -> dict[str, int]:
    """How many runs are in each state; states without any are left out."""
    found = Counter(record.state for record in records)
    return {state.value: found[state] for state in State if found[state]}


def as_dict(record: RunRecord) -> dict[str, Any]:
    """A run as plain JSON values."""
    spec, status = record.spec, record.status
    shown: dict[str, Any] = {"run_id": record.run_id, "state": record.state.value}
    if spec:
        shown |= {"experiment": spec.experiment, "dataset": dataset_of(spec), "condition": spec.condition}
        shown |= {"method": spec.method, "seed": spec.seed}
    if status:
        losses = {name: loss if math.isfinite(loss) else None for name, loss in status.losses.items()}  # as JSON can
        shown |= {"step": status.step, "total": status.total, "seconds": status.seconds, "attempt": status.attempt}
        shown |= {"speed": status.speed, "losses": losses}
        shown |= {"host": status.host, "pid": status.pid, "error": status.error, "note": status.note}
    return shown | ({"reason": record.reason} if record.reason else {})


def _row(record: RunRecord) -> tuple[str, ...]:
    spec, status, remark = record.spec, record.status, record.reason
    if status and not remark:
        is_told = record.state in (State.RUNNING, State.DONE)
        remark = values_text(status.losses) if is_told else status.note
        remark = last_line(status.error) if record.state is State.FAILED else remark
    names = (spec.experiment, dataset_of(spec), spec.condition, spec.method, str(spec.seed)) if spec else ("",) * 5
    progress = (steps(status.step, status.total), duration(status.seconds)) if status else ("", "")
    return (record.run_id, record.state.value, *names, *progress, remark)


def _in_full(record: RunRecord) -> str:
    name = str(record.spec) if record.spec else "unreadable"
    text = record.reason or (record.status.error if record.status else "")
    return f"{record.run_id} {name}: {record.state.value}\n{textwrap.indent(text.rstrip(), '    ')}\n"
