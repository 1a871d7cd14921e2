"""Which figures a set of runs allows: `plan_figures(results)` names each, and gives the reason for those left out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headway.analysis.baselines import lenders
from headway.analysis.figures.style import plain
from headway.analysis.results import Results
from headway.analysis.rundata import Group, RunData
from headway.analysis.tables import BASELINE, NEEDED, usable
from headway.study.protocols.names import MARK, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn.

    Attributes:
        name: the name of its files, without the ending.
        caption: what it shows, in a sentence or two.
        draw: makes it. Call it, and save the figure, under `style.house_style()`.
    """

    name: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Omission:
    """A figure that cannot be drawn, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """All figures of a set of runs of one protocol.

    Attributes:
        protocol: the label of the protocol.
        drawings: the figures that can be drawn.
        omissions: those that cannot.
    """

    protocol: str
    drawings: tuple[Drawing, ...]
    omissions: tuple[Omission, ...]


@dataclass(frozen=True, eq=False)
class Setting:
    """The finished runs of one group, by method.

    Attributes:
        group: what they share.
        methods: the runs of each method.
        lender: the setting whose runs of Uniform serve this one, if it has none of its own.
    """

    group: Group
    methods: dict[str, tuple[RunData, ...]]
    lender: Setting | None = None

    @property
    def name(self) -> str:
        """As part of a file name."""
        extra = "" if self.group.experiment in ("controlled", "doorkey") else self.group.experiment
        return slug(extra, self.group.dataset or "", self.group.condition)

    @property
    def title(self) -> str:
        """As a title, such as "MNIST, Curriculum"; a dagger marks data that are not the official copy."""
        mark = MARK if any(run.environment.get("note") for runs in self.methods.values() for run in runs) else ""
        dataset = f"{title(self.group.dataset)}{mark}" if self.group.dataset else ""
        return plain(", ".join(filter(None, (dataset, title(self.group.condition)))))

    @property
    def seeds(self) -> str:
        """How many seeds there are, such as "20 seeds" or "18 to 20 seeds"."""
        return seeds_text(self.methods.values())

    @property
    def uniform(self) -> tuple[RunData, ...]:
        """The runs of Uniform to compare with: its own, or its lender's."""
        own = self.pick([BASELINE], *NEEDED).get(BASELINE, ())
        return own if own or self.lender is None else self.lender.uniform

    def pick(self, methods: Iterable[str], *columns: str) -> dict[str, tuple[RunData, ...]]:
        """The runs of those methods that have any with these columns."""
        found = {method: usable(self.methods[method], columns) for method in methods if method in self.methods}
        return {method: runs for method, runs in found.items() if runs}


Item = Drawing | Omission
Kind = Callable[[Sequence[Setting]], Iterator[Item]]


def settings_of(results: Results) -> list[Setting]:
    """The finished runs, group by group, in the order in which they are listed."""
    groups = results.finished().groups()
    lending = lenders(groups)
    found = {group: Setting(group, groups[group].methods()) for group in sorted(groups, key=lambda group: group.order)}
    return [
        replace(found[group], lender=found[lending[group]]) if group in lending else found[group] for group in found
    ]


def plan_figures(results: Results, protocol: str | None = None) -> list[Plan]:
    """Plan all figures that runs allow, for each protocol on its own: runs of two protocols share no figure.

    Args:
        results: the runs; only finished ones count.
        protocol: the label of a protocol, to plan for it alone.
    """
    from headway.analysis.figures import controlled, exploration, grids, sensitivity

    kinds: tuple[Kind, ...] = (*controlled.KINDS, *exploration.KINDS)
    settings = settings_of(results)
    grid = grids.grid_points(settings)
    plans = []
    for label in dict.fromkeys(setting.group.protocol for setting in settings if setting.group not in grid):
        if protocol in (None, label):
            chosen = [setting for setting in settings if setting.group.protocol == label]
            plans.append(_plan(label, (item for kind in kinds for item in kind(chosen))))
    if protocol is None:
        plans.append(_plan("", sensitivity.maps(settings)))
    return plans


def _plan(label: str, items: Iterable[Item]) -> Plan:
    items = list(items)
    drawings = tuple(_explained(item) for item in items if isinstance(item, Drawing))
    return Plan(label, drawings, tuple(item for item in items if isinstance(item, Omission)))


def _explained(drawing: Drawing) -> Drawing:
    """The drawing with what the mark in its caption means."""
    means = f" {MARK} Not the official copy of the data." if MARK in drawing.caption else ""
    return replace(drawing, caption=drawing.caption + means)


def slug(*parts: str) -> str:
    """Join words to a file name of lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-") or "figure"


def protocol_folders(labels: Iterable[str]) -> dict[str, str]:
    """A folder for the figures of each protocol, by its label; none if there is a single one."""
    labels = list(dict.fromkeys(labels))
    found: dict[str, str] = {}
    for label in labels if len(labels) > 1 else ():
        name = slug(label)
        others = (f"{name}-{number}" for number in itertools.count(2))  # labels may differ in signs alone
        found[label] = next(each for each in itertools.chain([name], others) if each not in found.values())
    return found


def interval_text(runs: Iterable[Sequence[RunData]], what: str = "mean and 95% interval") -> str:
    """What a figure shows over how many seeds, such as "mean and 95% interval over 3 seeds"; one has no interval."""
    return interval_words(map(len, runs), what)


def interval_words(numbers: Iterable[int], what: str) -> str:
    """The same for numbers of seeds."""
    seeds = _range_words(numbers)
    if seeds == "1 seed":
        return "one seed, so no interval"
    return f"{what} over {seeds}" + (", where there are several" if seeds.startswith("1 ") else "")


def seeds_text(runs: Iterable[Sequence[RunData]]) -> str:
    """How many seeds several methods have, such as "1 seed" or "18 to 20 seeds"."""
    return _range_words(map(len, runs))


def _range_words(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    if len(found) < 2:
        return f"{found[0]} seed{'s' * (found[0] != 1)}" if found else "no seeds"
    return f"{found[0]} to {found[-1]} seeds"
