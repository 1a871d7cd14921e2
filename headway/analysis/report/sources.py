"""The section about data sources: a figure and the states over time, from the rows of a `SourceMonitor`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.analysis.report import looks, series
from headway.analysis.report.charts import Chart
from headway.analysis.report.rows import STATES, Row, read_rows, telemetry_files
from headway.errors import DamagedError
from headway.runs.text import count

PANELS: Sequence[tuple[str, str, dict[str, Any]]] = (
    ("gradient_norm", "Gradient norm", {"label": "mean of the samples", "zero": True}),
    ("gmc", "GMC", {"label": "mean of the samples, log scale", "log": True}),
    ("coupling", "Coupling", {"label": "GMC / gradient norm, log scale", "log": True}),
    ("loss", "Loss", {"label": "mean of the samples", "zero": True}),
    ("share", "Share", {"label": "of the scored samples", "zero": True, "percent": True}),
)
"""The columns that are drawn, with their titles and axes."""
MOST_STEPS = 1000
"""Of more steps than this, the figure leaves some out; the states are those of all."""


@dataclass(frozen=True)
class Stretch:
    """Rows of one source, one after the other, that have the same state.

    Attributes:
        state: the state.
        first: the step at which it begins.
        last: the step at which it ends.
        left: where it begins on the strip, in percent.
        width: how long it is, in percent.
    """

    state: str
    first: int
    last: int
    left: float
    width: float


@dataclass(frozen=True)
class Strip:
    """The states of one source over time.

    Attributes:
        source: its name.
        stretches: in the order of time.
    """

    source: str
    stretches: Sequence[Stretch]

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
    """What one file says about data sources.

    Attributes:
        file: the file.
        name: its name, as seen from where the runs are.
        remark: what is wrong with it, in a sentence; empty if nothing is.
        last: the last step.
        chart: the figure; None without rows.
        strips: the states of each source.
        latest: the last row of each source.
    """

    file: Path
    name: str
    remark: str = ""
    last: int = 0
    chart: Chart | None = None
    strips: Sequence[Strip] = ()
    latest: Sequence[Row] = ()

    @property
    def states(self) -> list[str]:
        """The states that occur."""
        found = {stretch.state for strip in self.strips for stretch in strip.stretches}
        return [state for state in STATES if state in found]


def telemetry_at(source: Path) -> list[Telemetry]:
    """What the telemetry files at a place say."""
    return [_telemetry(source, file, number) for number, file in enumerate(telemetry_files(source))]


def _telemetry(source: Path, file: Path, number: int) -> Telemetry:
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
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.source, []).append(row)
    return found


def chart(rows: Sequence[Row], name: str, key: str) -> Chart:
    """Every column of `PANELS` over steps, a curve for each source; a column without numbers has no panel."""
    steps = _thinned(sorted({row.step for row in rows}))
    place = {step: number for number, step in enumerate(steps)}
    panels: list[dict[str, Any]] = []
    for column, title, y in PANELS:
        curves = []
        for source, own in by_source(rows).items():
            values: series.Numbers = [None] * len(steps)
            for row in own:
                if row.step in place:
                    values[place[row.step]] = series.short(row.values[column])
            curves.append({"key": source, "n": 1, "mean": values})
        if any(math.isfinite(row.values[column]) for row in rows):
            panels.append({"key": column, "title": title, "x": steps, "y": y, "series": curves, "row": len(panels)})
    caption = (
        "Means over the batches since the row before. The coupling is GMC per gradient norm: how strongly a gradient "
        "acts where the model is learning. It may be above 1, and alone it does not tell noise from progress."
    )
    data = {
        "id": key,
        "title": f"Sources, {name}",
        "kind": "lines",
        "columns": 2,
        "legend": {"label": "Sources", "items": looks.source_items(by_source(rows))},
        "panels": panels,
        "xname": "step",
        "xlabel": "batches",
        "wide": False,
        "paired": False,
        "seeds": False,
        "spans": True,
    }
    return Chart(key, f"Sources, {name}", caption, data)


def _thinned(steps: Sequence[int]) -> list[int]:
    """So many steps at most, evenly, with the last."""
    stride = math.ceil(len(steps) / MOST_STEPS)
    return list(steps[::-1][::stride][::-1]) if stride else []


def strips(rows: Sequence[Row]) -> list[Strip]:
    """The states of every source; a state lasts until the next row of the source.

    A row stands for the batches since the rows before it, of whatever source.
    """
    steps = [0, *sorted({row.step for row in rows})]
    before = dict(itertools.pairwise(reversed(steps)))
    end = steps[-1] or 1
    found = []
    for source, own in by_source(rows).items():
        stretches: list[tuple[str, int, int]] = []
        for row in own:
            if stretches and stretches[-1][0] == row.state:
                stretches[-1] = (row.state, stretches[-1][1], row.step)
            else:
                stretches.append((row.state, stretches[-1][2] if stretches else before[row.step], row.step))
        found.append(Strip(source, [_stretch(*each, end) for each in stretches]))
    return found


def _stretch(state: str, first: int, last: int, end: int) -> Stretch:
    return Stretch(state, first, last, round(100 * first / end, 2), round(100 * (last - first) / end, 2))
