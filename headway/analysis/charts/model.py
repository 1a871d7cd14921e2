"""A chart as data. `drawing` draws it with matplotlib, `page` hands it to the page's script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headway.analysis.charts.style import Style
from headway.analysis.rundata import Array, RunData
from headway.analysis.stats import Estimate
from headway.analysis.summaries import Band
from headway.study.protocols.names import MARK

LINES, BARS, MAP = "lines", "bars", "map"
"""The kinds of charts: curves; a number for each series in every panel; numbers over two settings."""
EPOCHS, STEPS = ("epoch", "epoch"), ("step", "environment steps")
"""Horizontal axes: what a position is called, and the label."""

FORMATS = ("pdf", "svg", "png")
"""The formats that figures for print can be written in."""

Runs = Mapping[str, Sequence[RunData]]
"""Runs by method."""


@dataclass(frozen=True)
class Axis:
    """A vertical axis.

    Attributes:
        label: what it measures, with the unit; it may have two lines.
        zero: whether it begins at zero, unless a mean is below it.
        percent: whether its numbers are shares, to be written in percent.
        full: whether it shows all shares, from none to all.
        log: whether it is logarithmic.
    """

    label: str
    zero: bool = False
    percent: bool = False
    full: bool = False
    log: bool = False


@dataclass(frozen=True)
class Line:
    """A horizontal line for reference.

    Attributes:
        value: its height.
        key: the series whose colour it has; empty for none.
        label: what it is. That of a line with a key belongs in the legend.
    """

    value: float
    key: str = ""
    label: str = ""


@dataclass(frozen=True, eq=False)
class Panel:
    """Series over one pair of axes.

    Attributes:
        key: its name in the chart.
        title: its heading; may be empty.
        y: the vertical axis.
        series: the curves by key, or numbers at the places of the chart's categories.
        lines: lines for reference.
        peaks: the positions of marks on curves, by key.
        row: panels with the same number share their vertical range.
    """

    key: str
    title: str
    y: Axis
    series: Mapping[str, Band]
    lines: Sequence[Line] = ()
    peaks: Mapping[str, float] = field(default_factory=dict)
    row: int = 0


@dataclass(frozen=True, eq=False)
class Picture:
    """An environment, as MiniGrid encodes it, with a heading; for print alone."""

    title: str
    grid: Array


@dataclass(frozen=True, eq=False)
class Chart:
    """Panels that share a legend. Its content is worked out when somebody asks for it.

    Attributes:
        id: its name in a page, and that of its files in print.
        title: its heading.
        caption: what it shows, in a sentence or two.
        styles: how its series look, by key, in the order of the legend.
        content: works the panels out.
        legend: what the series are.
        heading: above the legend, or all panels, in print.
        kind: "lines", "bars" or "map".
        x: what a position is called, and the label of the horizontal axis.
        categories: the names of the positions, where they are no numbers.
        columns: panels beside each other.
        rows: panels above each other that belong together; they follow each other.
        few: with fewer seeds than this the single curves are shown instead of the interval.
        singles: whether the page carries the single curves too.
        wide: whether panels are wide on the page.
        spans: whether curves go on over positions without a number.
        height: in print, in inches.
        pictures: stand before the panels in print.
        page_caption: what it shows on the page, where that is drawn in another way.
    """

    id: str
    title: str
    caption: str
    styles: Mapping[str, Style]
    content: Callable[[], Sequence[Panel]]
    legend: str = "Signals"
    heading: str = ""
    kind: str = LINES
    x: tuple[str, str] = EPOCHS
    categories: Sequence[str] = ()
    columns: int = 1
    rows: int = 1
    few: int = 0
    singles: bool = False
    wide: bool = False
    spans: bool = False
    height: float = 2.35
    pictures: Sequence[Picture] = ()
    page_caption: str = ""

    @cached_property
    def panels(self) -> Sequence[Panel]:
        """The content."""
        return self.content()

    @property
    def remark(self) -> str:
        """What the mark in its caption means."""
        return f" {MARK} Not the official copy of the data." if MARK in self.caption else ""


@dataclass(frozen=True)
class Omission:
    """A chart that cannot be drawn, and why."""

    id: str
    reason: str


def numbers(estimates: Sequence[Estimate | None], places: Sequence[int] | None = None) -> Band:
    """Numbers with intervals as a series over categories; by default one for each category from the first on."""
    known = [each or Estimate(np.nan, -np.inf, np.inf, 0) for each in estimates]
    mean, low, high = (np.array([getattr(each, end) for each in known]) for end in ("value", "low", "high"))
    x = np.arange(len(known)) if places is None else np.array(places)
    return Band(x.astype(float), mean, low, high, max((each.n for each in known), default=0))


def within_shares(band: Band) -> Band:
    """A share from 0 to 1, with an interval that ends where shares do."""
    known = np.isfinite(band.low) & np.isfinite(band.high)
    low, high = (np.where(known, np.clip(end, 0, 1), end) for end in (band.low, band.high))
    return Band(band.x, band.mean, low, high, band.n, band.singles)


def interval_text(runs: Iterable[Sequence[RunData]], what: str = "mean and 95% interval") -> str:
    """What a chart shows over how many seeds, such as "mean and 95% interval over 3 seeds"; one has no interval."""
    runs = list(runs)
    rest = "; some runs are not finished" if any(not run.finished for members in runs for run in members) else ""
    return interval_words(map(len, runs), what) + rest


def interval_words(numbers: Iterable[int], what: str) -> str:
    """The same for numbers of seeds."""
    seeds = seeds_words(numbers)
    if seeds == "1 seed":
        return "one seed, so no interval"
    return f"{what} over {seeds}" + (", where there are several" if seeds.startswith("1 ") else "")


def seeds_text(runs: Iterable[Sequence[RunData]]) -> str:
    """How many seeds several methods have, such as "1 seed" or "18 to 20 seeds"."""
    return seeds_words(map(len, runs))


def seeds_words(numbers: Iterable[int]) -> str:
    """The same for numbers of seeds."""
    found = sorted(set(numbers))
    if len(found) < 2:
        return f"{found[0]} seed{'s' * (found[0] != 1)}" if found else "no seeds"
    return f"{found[0]} to {found[-1]} seeds"
