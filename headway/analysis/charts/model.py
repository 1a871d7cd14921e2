"""A chart as data, and how its series look. `drawing` draws it with matplotlib, the report hands it to its script.

Series that appear in one chart differ in colour, in lightness, in dashes and in markers, so that they can be told
apart in greyscale and by colour-blind readers; `tests/analysis/charts/test_style.py` measures it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headway.analysis.comparison import Setting
from headway.analysis.rundata import Array, RunData
from headway.analysis.stats import Estimate
from headway.analysis.summaries import Band
from headway.runs.text import count
from headway.study.protocols.names import GROUP_NAMES, MARK, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES, BARS, MAP = "lines", "bars", "map"
"""The kinds of charts: curves; a number for each series in every panel; numbers over two settings."""
EPOCHS, STEPS = ("epoch", "epoch"), ("step", "environment steps")
"""Horizontal axes: what a position is called, and the label."""

FEW_RUNS = 5  # With fewer seeds single runs are drawn: an interval of three can fill a whole panel
FORMATS = ("pdf", "svg", "png")  # The formats that figures for print can be written in

Runs = Mapping[str, Sequence[RunData]]  # Runs by method


@dataclass(frozen=True)
class Axis:
    """A vertical axis."""

    label: str  # what it measures, with the unit; it may have two lines
    zero: bool = False  # whether it begins at zero, unless a mean is below it
    percent: bool = False  # whether its numbers are shares, to be written in percent
    full: bool = False  # whether it shows all shares, from none to all
    log: bool = False  # whether it is logarithmic


@dataclass(frozen=True)
class Line:
    """A horizontal line for reference."""

    value: float  # its height
    key: str = ""  # the series whose colour it has; empty for none
    label: str = ""  # what it is. That of a line with a key belongs in the legend.


@dataclass(frozen=True, eq=False)
class Panel:
    """Series over one pair of axes."""

    key: str  # its name in the chart
    title: str  # its heading; may be empty
    y: Axis  # the vertical axis
    series: Mapping[str, Band]  # the curves by key, or numbers at the places of the chart's categories
    lines: Sequence[Line] = ()  # lines for reference
    peaks: Mapping[str, float] = field(default_factory=dict)  # the positions of marks on curves, by key
    row: int = 0  # panels with the same number share their vertical range


@dataclass(frozen=True, eq=False)
class Picture:
    """An environment, as MiniGrid encodes it, with a heading; for print alone."""

    title: str
    grid: Array


@dataclass(frozen=True, eq=False)
class Chart:
    """Panels that share a legend. Its content is worked out when somebody asks for it."""

    id: str  # its name in a page, and that of its files in print
    title: str  # its heading
    caption: str  # what it shows, in a sentence or two
    styles: Mapping[str, Style]  # how its series look, by key, in the order of the legend
    content: Callable[[], Sequence[Panel]]  # works the panels out
    legend: str = "Signals"  # what the series are
    heading: str = ""  # above the legend, or all panels, in print
    kind: str = LINES  # "lines", "bars" or "map"
    x: tuple[str, str] = EPOCHS  # what a position is called, and the label of the horizontal axis
    categories: Sequence[str] = ()  # the names of the positions, where they are no numbers
    columns: int = 1  # panels beside each other
    rows: int = 1  # panels above each other that belong together; they follow each other
    few: int = 0  # with fewer seeds than this the single curves are shown instead of the interval
    singles: bool = False  # whether the page carries the single curves too
    wide: bool = False  # whether panels are wide on the page
    spans: bool = False  # whether curves go on over positions without a number
    height: float = 2.35  # in print, in inches
    pictures: Sequence[Picture] = ()  # stand before the panels in print
    page_caption: str = ""  # what it shows on the page, where that is drawn in another way
    part: str = ""  # the part of the results that it belongs to, see `report.markdown.PARTS`
    figure: Callable[[], Figure] | None = None  # draws it in print, where that differs from its kind

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


Item: TypeAlias = Chart | Omission


def of_part(part: str, items: Iterable[Item]) -> Iterator[Item]:
    """The figures of one part of the results."""
    return (replace(item, part=part) if isinstance(item, Chart) else item for item in items)


def can_compare(settings: Iterable[Setting]) -> bool:
    """Whether there are several methods or settings: with a single one there are no grids and no gates."""
    return sum(len(setting.finished) for setting in settings) > 1


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
    return replace(band, low=low, high=high)


def interval_text(runs: Iterable[Sequence[RunData]], what: str = "mean and 95% interval") -> str:
    """What a chart shows over how many seeds, such as "mean and 95% interval over 3 seeds"; one has no interval."""
    runs = list(runs)
    rest = "; some runs are not finished" if any(not run.finished for members in runs for run in members) else ""
    return interval_words(map(len, runs), what) + rest


def interval_words(numbers: Iterable[int], what: str) -> str:
    """The same for numbers of seeds."""
    seeds = seeds_text(numbers)
    if seeds == "1 seed":
        return "one seed, so no interval"
    return f"{what} over {seeds}" + (", where there are several" if seeds.startswith("1 ") else "")


def seeds_text(numbers: Iterable[int]) -> str:
    """How many seeds several methods have, such as "1 seed" or "18 to 20 seeds"."""
    found = sorted(set(numbers))
    if len(found) < 2:
        return count(found[0], "seed") if found else "no seeds"
    return f"{found[0]} to {found[-1]} seeds"


INK = "#222222"  # The colour of text, and of what is no series

Dash: TypeAlias = str | tuple[float, tuple[float, ...]]

SOLID: Dash = "solid"
DASHED: Dash = (0, (4.5, 1.8))
DOTTED: Dash = (0, (1.2, 1.3))
DASH_DOT: Dash = (0, (5, 1.5, 1.2, 1.5))
DASH_DOT_DOT: Dash = (0, (5, 1.4, 1.2, 1.4, 1.2, 1.4))
LONG: Dash = (0, (9, 2.2))
SHORT: Dash = (0, (2.6, 1.3))


@dataclass(frozen=True)
class Style:
    """How a series looks."""

    name: str  # what a legend calls it
    colour: str  # as #RRGGBB
    dash: Dash  # line style, in the form that matplotlib takes
    marker: str  # marker, in the form that matplotlib takes; empty for a thin line that is no series of its own
    hatch: str = ""  # a second sign of bars besides their colour, in the form that matplotlib takes


def _titled(looks: Mapping[str, tuple[Any, ...]]) -> dict[str, Style]:
    return {key: Style(title(key), *look) for key, look in looks.items()}


SIGNALS: Mapping[str, Style] = _titled(
    {
        "uniform": ("#000000", DOTTED, "x"),
        "curiosity": ("#D95F02", DASHED, "s", "////"),
        "gmc": ("#0067A5", SOLID, "o"),
        "norm_last": ("#F2BE4A", DASH_DOT, "D", "...."),
        "norm_all": ("#6E1A40", LONG, "^"),
        "delta_loss": ("#3DB590", DASH_DOT_DOT, "v", "\\\\\\\\"),
        "dot": ("#D081B0", DASHED, "P", "----"),
        "cosine": ("#6B3A00", DASH_DOT, "*", "xxxx"),
        "projection": ("#CFC75A", LONG, "h", "||||"),
        "gmc_hard": ("#00483A", SHORT, "<", "++++"),
        "gmc_soft": ("#8ECBEF", DASH_DOT, ">", "oooo"),
    }
)
"""The signals of the controlled study, in the order in which they are shown."""

MAIN = ("uniform", "curiosity", "gmc")  # The first set of signals of the per-group figures ...
OTHERS = ("norm_last", "norm_all", "delta_loss")  # ... the second ...
VARIANTS = ("gmc", "dot", "cosine", "projection")
"""... the ablation's, which are told from GMC by where they take absolute values or norms ..."""
GATES = ("gmc", "gmc_hard", "gmc_soft")  # ... and GMC with its noise gates.

METHODS: Mapping[str, Style] = _titled(
    {
        "ppo": ("#000000", DOTTED, "x"),
        "forward": ("#93CDF3", DASH_DOT, "D"),
        "icm": ("#F09A3E", DASHED, "s"),
        "rnd": ("#2FA37C", DASH_DOT_DOT, "v"),
        "gmc": ("#0067A5", SOLID, "o"),
        "icm+gmc": ("#8F2A00", LONG, "^"),
        "rnd+gmc": ("#003B2A", SHORT, "P"),
        "forward+gmc_hard": ("#00214A", DASHED, "<"),
        "forward+gmc_soft": ("#5FB7D9", DASH_DOT, ">"),
        "icm+gmc_hard": ("#CF7A12", SHORT, "s"),
        "icm+gmc_soft": ("#F2BC84", DASH_DOT_DOT, "D"),
    }
)
"""The exploration methods: one hue for each predictor, light when scored by error and dark when scored by GMC."""

GATED_METHODS = ("forward+gmc_hard", "forward+gmc_soft", "icm+gmc_hard", "icm+gmc_soft")
"""The methods behind a noise gate; they have figures of their own ..."""
GATED_BESIDE = ("ppo", "gmc", "icm+gmc")  # ... beside these.

GROUPS: tuple[Style, ...] = (
    Style("A", "#7CC4EE", SOLID, "o"),
    Style("B", "#E07B00", DASHED, "s"),
    Style("C", "#A8327A", DASH_DOT, "^"),
    Style("D", "#0E2346", LONG, "D"),
)
"""The groups of classes; the darker, the more classes (and noise) they have."""

_SPARE = (("#888888", SHORT, "<"), ("#BBBBBB", DASH_DOT, ">"), ("#555555", LONG, "p"), ("#A0A0A0", DASHED, "d"))


def group_styles(condition: str | None) -> dict[str, Style]:
    """The styles of the four groups, under the names that they have in this condition: "group-0" to "group-3"."""
    names = GROUP_NAMES.get(condition or "", GROUP_NAMES["noise"])
    return {f"group-{place}": replace(GROUPS[place], name=name) for place, name in enumerate(names)}


def styles_for(keys: Iterable[str], known: Mapping[str, Style]) -> dict[str, Style]:
    """The style of every series, known ones first and in their order; those that are not known get a grey one each."""
    keys = list(dict.fromkeys(keys))
    found = {key: style for key, style in known.items() if key in keys}
    for look, key in zip(itertools.cycle(_SPARE), [key for key in keys if key not in known], strict=False):
        found[key] = Style(key, *look)
    return found


def source_styles(names: Iterable[str]) -> dict[str, Style]:
    """The styles of data sources: the colours of the signals in turn, each time round with other dashes."""
    known = list(SIGNALS.values())
    dashes = list(dict.fromkeys(style.dash for style in known))
    found = {}
    for place, name in enumerate(names):
        style = known[(place + 2) % len(known)]  # the strongest colour first
        dash = dashes[(dashes.index(style.dash) + place // len(known)) % len(dashes)]
        found[name] = replace(style, name=name, dash=dash)
    return found


def number_text(value: float) -> str:
    """A setting as a tick label, as short as it can be: 0.999, 1e-8, 6.6e-4."""
    small = 0 < abs(value) < 0.01
    mantissa, e, power = (f"{value:.4e}" if small else f"{value:.4g}").partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if small else mantissa
    return f"{mantissa}e{int(power)}" if e else mantissa


def percent_text(share: float) -> str:
    """A share in percent, with more digits near both ends: 0.2%, 37%, 99.8%."""
    percent = 100 * share
    near_an_end = 0 < percent < 9.95 or 99 < percent < 100
    return f"{percent:.1f}%" if near_an_end else f"{percent:.0f}%"
