"""Telemetry of data sources: the rows that a `SourceMonitor` has left as CSV or Parquet, their chart and states."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headway.analysis.charts.model import Axis, Chart, Panel, source_styles
from headway.analysis.results import SUFFIX
from headway.analysis.rundata import grouped
from headway.analysis.summaries import Band
from headway.errors import DamagedError, StoreError
from headway.runs.files import read_bytes
from headway.runs.metrics import open_parquet, pyarrow
from headway.runs.text import count
from headway.telemetry.states import State
from headway.telemetry.writers import COLUMNS, LATER, NUMBERS

STATES = tuple(str(state) for state in State if state != State.UNSEEN)  # The states that a row can have
MOST_BYTES = 1 << 26  # A file larger than this is not read
PANELS: Sequence[tuple[str, str, Axis]] = (
    ("loss", "Loss", Axis("mean of the samples", zero=True)),
    ("share", "Share", Axis("of the scored samples", zero=True, percent=True)),
    ("target", "Target share", Axis("of the sampler", zero=True, percent=True)),
    ("gradient_norm", "Gradient norm", Axis("mean of the samples", zero=True)),
    ("gmc", "GMC", Axis("mean of the samples, log scale", log=True)),
    ("coupling", "Coupling", Axis("GMC / gradient norm, log scale", log=True)),
)
"""The columns that are drawn, with their titles and axes."""
MOST_STEPS = 1000  # Of more steps than this, the figure leaves some out; the states are those of all


@dataclass(frozen=True)
class Row:
    """What is known of one source at one step."""

    step: int  # batches so far
    source: str  # its name
    state: str  # its state
    values: Mapping[str, float]  # its numbers by column; NaN for one that is not known
    advice: str = ""  # what to do about it; empty in files of earlier versions


def read_rows(file: Path) -> tuple[list[Row], int]:
    """All rows of a file in the order of their steps, and how many others could not be read.

    The last line of a CSV file that is being written may be one of those.

    Raises:
        DamagedError: the file cannot be read at all.
    """
    arrow, _ = pyarrow("report")
    try:
        data = read_bytes(file, MOST_BYTES) or b""
        if file.suffix == SUFFIX:
            content = open_parquet(data, most_bytes=MOST_BYTES)
            present = [name for name in COLUMNS if name in content.schema_arrow.names]
            entries: Iterable[Any] = content.read(columns=present, use_threads=False).to_pylist()
        else:
            entries = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        found = [_row(entry) for entry in entries]
    except (arrow.ArrowException, OSError, StoreError, ValueError, MemoryError, csv.Error) as error:
        raise DamagedError(f"{file.name}: expected rows of a SourceMonitor, got {str(error)[:200]}") from None
    rows = [row for row in found if row is not None]
    return sorted(rows, key=lambda row: row.step), len(found) - len(rows)


def _row(entry: Mapping[str, Any]) -> Row | None:
    """A row, or None if it is not whole."""
    try:
        told = {name: entry.get(name) if name in LATER else entry[name] for name in NUMBERS}
        values = {name: math.nan if value in (None, "") else float(value) for name, value in told.items()}
        advice = entry.get("advice") or ""
        row = Row(int(entry["step"]), str(entry["source"]), str(entry["state"]), values, str(advice))
    except (ValueError, TypeError, OverflowError):
        return None
    return row if row.state in STATES else None


@dataclass(frozen=True)
class Stretch:
    """Rows of one source, one after the other, that have the same state."""

    state: str  # the state
    first: int  # the step at which it begins
    last: int  # the step at which it ends
    left: float  # where it begins on the strip, in percent
    width: float  # how long it is, in percent


@dataclass(frozen=True)
class Strip:
    """The states of one source over time."""

    source: str  # its name
    stretches: Sequence[Stretch]  # in the order of time
    advice: str = ""  # what to do about it, as the last row says

    @property
    def state(self) -> str:
        """The latest."""
        return self.stretches[-1].state

    @property
    def words(self) -> str:
        """The strip as a sentence."""
        return ", ".join(f"{each.state} from step {each.first} to {each.last}" for each in self.stretches)


@dataclass(frozen=True)
class Telemetry:
    """What one file says about data sources."""

    file: Path  # the file
    name: str  # its name, as seen from where the runs are
    remark: str = ""  # what is wrong with it, in a sentence; empty if nothing is
    last: int = 0  # the last step
    chart: Chart | None = None  # the figure; None without rows
    strips: Sequence[Strip] = ()  # the states of each source
    latest: Sequence[Row] = ()  # the last row of each source

    @property
    def states(self) -> list[str]:
        """The states that occur."""
        found = {stretch.state for strip in self.strips for stretch in strip.stretches}
        return [state for state in STATES if state in found]


def read_telemetry(source: Path, file: Path, number: int) -> Telemetry:
    """What a file at or below a place says; the number tells its chart from others on the page."""
    name = file.relative_to(source).as_posix() if file != source else file.name
    try:
        rows, unread = read_rows(file)
    except DamagedError as error:
        return Telemetry(file, name, str(error))
    remark = ""
    if unread:
        whole, verb = count(unread + len(rows), "row"), "is" if unread == 1 else "are"
        remark = f"{unread} of {whole} could not be read and {verb} left out."
    if not rows:
        return Telemetry(file, name, remark or "There are no rows yet.")
    latest = [own[-1] for own in by_source(rows).values()]
    return Telemetry(file, name, remark, rows[-1].step, chart(rows, name, f"sources-{number}"), strips(rows), latest)


def by_source(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each source, in the order in which sources come up."""
    return grouped(rows, lambda row: row.source)


def chart(rows: Sequence[Row], name: str, key: str) -> Chart:
    """Every column of `PANELS` over steps, a curve for each source; a column without numbers has no panel."""
    sources = by_source(rows)
    return Chart(
        key,
        f"Sources, {name}",
        "Means over the batches since the row before. The coupling is GMC per gradient norm: how strongly a gradient "
        "acts where the model is learning. It may be above 1, and alone it does not tell noise from progress.",
        source_styles(sources),
        partial(_panels, sources),
        legend="Sources",
        x=("step", "batches"),
        columns=2,
        spans=True,
    )


def _panels(sources: Mapping[str, Sequence[Row]]) -> list[Panel]:
    every = sorted({row.step for own in sources.values() for row in own})
    stride = math.ceil(len(every) / MOST_STEPS)
    steps = every[::-1][::stride][::-1]  # so many at most, evenly, with the last
    kept = set(steps)
    panels: list[Panel] = []
    for column, heading, axis in PANELS:
        curves = {}
        for source, own in sources.items():
            values = {row.step: row.values[column] for row in own if row.step in kept}
            mean = np.array([values.get(step, math.nan) for step in steps])
            curves[source] = Band.of(np.array(steps, float), mean)
        if any(math.isfinite(row.values[column]) for own in sources.values() for row in own):
            panels.append(Panel(column, heading, axis, curves, row=len(panels)))
    return panels


def strips(rows: Sequence[Row]) -> list[Strip]:
    """The states of every source; a state lasts until the next row of the source.

    A row stands for the batches since the rows before it, of whatever source.
    """
    steps = [0, *sorted({row.step for row in rows})]
    before = dict(itertools.pairwise(reversed(steps)))
    end = steps[-1] or 1
    found = []
    for source, own in by_source(rows).items():
        first, shown = before[own[0].step], []
        for state, members in itertools.groupby(own, lambda row: row.state):
            last = list(members)[-1].step
            shown.append(Stretch(state, first, last, round(100 * first / end, 2), round(100 * (last - first) / end, 2)))
            first = last
        found.append(Strip(source, shown, own[-1].advice))
    return found
