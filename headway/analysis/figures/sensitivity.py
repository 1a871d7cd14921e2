"""Heat maps of a sensitivity grid: runs that differ in nothing but decay rate and floor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from headway.analysis.columns import Array
from headway.analysis.figures.catalogue import Drawing, Item, Omission, Setting, seeds_text, slug
from headway.analysis.figures.controlled import area_ratio
from headway.analysis.figures.heatmap import colour_bar, sensitivity_map
from headway.analysis.figures.style import COLUMN_WIDTH, GATES, VARIANTS, new_figure
from headway.analysis.names import title
from headway.analysis.rundata import Group, RunData
from headway.analysis.tables import NEEDED
from headway.runs import RunSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = ("beta", "floor")
"""The fields of the protocol that span the grid: rows and columns."""
OF_SIGNALS = r"(beta|floor|gate|dot|cosine|norm|delta)(_.*)?|bias_correction|scored"
"""The fields of the protocol that concern signals alone; Uniform depends on none of them."""


@dataclass
class Family:
    """Runs of one setting whose protocols differ in nothing but `AXES`.

    Attributes:
        setting: the first of its settings, which gives it its name.
        points: the runs of each signal at each (beta, floor).
        uniform: Uniform's runs; they depend on neither, so one for each seed is enough.
        groups: the groups of its runs.
    """

    setting: Setting
    points: dict[str, dict[tuple[float, float], tuple[RunData, ...]]] = field(default_factory=dict)
    uniform: dict[int, RunData] = field(default_factory=dict)
    groups: set[Group] = field(default_factory=set)


def families(settings: Sequence[Setting]) -> list[Family]:
    """Sort runs by what they share apart from decay rate and floor."""
    found: dict[object, Family] = {}
    uniform: dict[object, dict[int, RunData]] = {}
    for setting in settings:
        spec = next(iter(setting.methods.values()))[0].spec
        if setting.group.dataset is None or any(name not in spec.protocol for name in AXES):
            continue
        for run in setting.pick(["uniform"], *NEEDED).get("uniform", ()):
            uniform.setdefault(_apart_from(OF_SIGNALS, spec), {}).setdefault(run.seed, run)
        family = found.setdefault(_apart_from("|".join(AXES), spec), Family(setting))
        family.groups.add(setting.group)
        beta, floor = (float(str(spec.protocol[name])) for name in AXES)
        for signal, runs in setting.pick((*VARIANTS, *GATES[1:]), *NEEDED).items():
            family.points.setdefault(signal, {})[beta, floor] = runs
    for family in found.values():
        spec = next(iter(family.setting.methods.values()))[0].spec
        family.uniform = uniform.get(_apart_from(OF_SIGNALS, spec), {})
    return list(found.values())


def _apart_from(pattern: str, spec: RunSpec) -> object:
    """What a run depends on, but for its method, its seed and the fields of the protocol whose names match."""
    rest = {name: str(value) for name, value in spec.protocol.items() if not re.fullmatch(pattern, name)}
    return (spec.experiment, spec.condition, *sorted(map(str, spec.params.items())), *sorted(rest.items()))


def grid_points(settings: Sequence[Setting]) -> set[Group]:
    """The groups that are points of a grid and nothing else: a single signal, in a family of several groups."""
    lonely = {setting.group for setting in settings if len(setting.methods) == 1}
    return {group for family in families(settings) if len(family.groups) > 1 for group in family.groups & lonely}


def maps(settings: Sequence[Setting]) -> Iterator[Item]:
    """A map for each setting and signal that has several points."""
    names: list[str] = []
    for family in families(settings):
        for signal, points in family.points.items():
            if len(points) < 2:
                continue
            name = slug("sensitivity", family.setting.name, signal)
            names.append(name)
            name += f"-{names.count(name)}" if names.count(name) > 1 else ""  # a grid for each of several protocols
            if not family.uniform:
                yield Omission(name, "no finished runs of Uniform to compare with")
                continue
            caption = (
                f"{family.setting.title}: loss area of "
                f"{title(signal)} relative to Uniform's over decay rate and floor, {seeds_text(points.values())}; "
                "bold where the 95% interval does not hold 1."
            )
            yield Drawing(name, caption, partial(map_figure, family, signal))
    if not names and settings:
        yield Omission("sensitivity", "no runs that differ in decay rate or floor alone")


def map_figure(family: Family, signal: str) -> Figure:
    """One map with its scale."""
    points = family.points[signal]
    rows, columns = (sorted({point[axis] for point in points}) for axis in (0, 1))
    values: Array = np.full((len(rows), len(columns)), np.nan)
    sure = np.zeros(values.shape, bool)
    uniform = list(family.uniform.values())
    for (beta, floor), runs in points.items():
        place = rows.index(beta), columns.index(floor)
        estimate = area_ratio(runs, uniform)
        values[place], sure[place] = estimate.value, not estimate.covers(1)
    figure = new_figure(COLUMN_WIDTH, min(4.0, 1.15 + 0.34 * len(rows)))
    ax = figure.subplots()
    sensitivity_map(ax, values, rows, columns, sure=sure, title=f"{title(signal)}: {family.setting.title}")
    colour_bar(figure, ax)
    return figure
