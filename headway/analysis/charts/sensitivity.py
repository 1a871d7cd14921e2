"""Sensitivity to GMC's constants: grids of runs that differ in two fields of the protocol alone; and noise gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from headway.analysis.charts import model
from headway.analysis.charts.model import Axis, Chart, Item, Line, Omission, Panel
from headway.analysis.comparison import CONTROLLED, NEEDED, Setting, areas, relative_area, shared, slug
from headway.analysis.rundata import Group, RunData, planned_epochs
from headway.analysis.stats import Estimate, t_interval
from headway.analysis.summaries import distance_to_uniform, group_shares, score_sizes, used
from headway.analysis.table import Table, number, ratio_cells
from headway.runs import RunSpec
from headway.study.protocols.labels import protocol_changes
from headway.study.protocols.names import title

Row = tuple[float, ...]

COLUMN = "floor"  # The field across every grid


@dataclass(frozen=True)
class Rows:
    """What stands down a grid: a field of the protocol, or several."""

    name: str  # as part of a file name; empty for the usual one
    label: str  # what an axis calls it
    fields: tuple[str, ...]  # the fields; one that is None has the value of the first

    def of(self, spec: RunSpec) -> Row:
        """Where a run stands."""
        first = spec.protocol[self.fields[0]]
        values = [spec.protocol.get(name) for name in self.fields]
        return tuple(float(str(first if value is None else value)) for value in values)


RATES = Rows("", "decay rate β", ("beta", "beta_v"))
ENTROPY = Rows("entropy", "weight of the entropy", ("entropy_weight",))
KINDS = (RATES, ENTROPY)


@dataclass(frozen=True)
class Cell:
    """A point of a grid."""

    ratio: Estimate  # loss area relative to Uniform's
    distance: Estimate  # how far the allocation is from uniform, from 0 to 1
    # share of the parameters under the floor, mean over the run; None where it was not logged
    under_floor: Estimate | None
    score: Estimate | None  # how large scores are, see `score_sizes`; None where they were not logged


@dataclass
class Grid:
    """Runs of one signal that differ in nothing but the rows' fields, the floor and the seed."""

    setting: Setting  # the first of its settings, which gives it its name
    signal: str  # the signal
    kind: Rows  # what the rows are
    points: dict[tuple[Row, float], tuple[RunData, ...]] = field(default_factory=dict)  # the runs at each row and floor
    # the runs of Uniform to compare each point with
    uniform: dict[tuple[Row, float], tuple[RunData, ...]] = field(default_factory=dict)
    groups: set[Group] = field(default_factory=set)  # the groups of its runs
    # the groups that the runs of Uniform are from, where they are others
    uniform_sources: set[Group] = field(default_factory=set)

    @property
    def rows(self) -> list[Row]:
        """Equal decay rates before unequal ones, each from low to high."""
        return sorted({row for row, _ in self.points}, key=lambda row: (len(set(row)) > 1, row))

    @property
    def floors(self) -> list[float]:
        """From low to high."""
        return sorted({floor for _, floor in self.points})

    @cached_property
    def cells(self) -> dict[tuple[Row, float], Cell]:
        """What came out at each point that has runs."""
        return {point: self._cell(runs, self.uniform[point]) for point, runs in self.points.items()}

    @property
    def lines(self) -> list[tuple[str, list[Cell | None]]]:
        """The name of each row, and what came out at each floor; None where there are no runs."""
        return [(row_text(row), [self.cells.get((row, floor)) for floor in self.floors]) for row in self.rows]

    @property
    def has_uniform(self) -> bool:
        """Whether there is something to compare with."""
        return any(self.uniform.values())

    def _cell(self, runs: Sequence[RunData], uniform: Sequence[RunData]) -> Cell:
        logged = [float(used(run, run.columns["under_floor"]).mean()) for run in runs if "under_floor" in run.columns]
        sizes = score_sizes(runs)
        distances = [distance_to_uniform(run) for run in runs]
        return Cell(
            relative_area(areas(runs), areas(uniform)),
            t_interval(distances),
            t_interval(logged) if logged else None,
            t_interval(sizes) if sizes else None,
        )

    @property
    def unit(self) -> str:
        """What the floors are compared with, in words."""
        spec = next(iter(self.points.values()))[0].spec
        return {
            "sample": "in the unit of a sample's own gradient",
            "relative": "relative to the mean of the second moment",
        }.get(str(spec.protocol.get("floor_unit")), "in the unit of the batch mean")

    @property
    def label(self) -> str:
        """What the rows are; said of two decay rates where they differ in some row."""
        return f"{self.kind.label} (of m / of v)" if any(len(set(row)) > 1 for row in self.rows) else self.kind.label

    @property
    def common(self) -> str:
        """How long its runs are, and in what else all of them depart from their preset: "30 epochs, beta=0.9"."""
        lengths = {planned_epochs(run) for runs in self.points.values() for run in runs}
        epochs = f"{' and '.join(map(str, sorted(filter(None, lengths))))} epochs"
        told = {*self.kind.fields, COLUMN, "epochs", "floor_unit"}
        _, changes = protocol_changes(next(iter(self.points.values()))[0].spec)
        return ", ".join((epochs, *(change for change in changes if change.partition("=")[0] not in told)))

    @property
    def uniform_text(self) -> str:
        """Whose runs of Uniform it is compared with."""
        return "; ".join(sorted({run.protocol for runs in self.uniform.values() for run in runs}))


def row_text(row: Row) -> str:
    """A row's name: 0.999, or 0.9 / 0.99 for the rates of m and of v."""
    return " / ".join(map(model.number_text, row if len(set(row)) > 1 else row[:1]))


def grids(settings: Sequence[Setting]) -> list[Grid]:
    """All grids of two points or more; one whose points are all in another grid is left out.

    Those of another kind than the usual one have several rows.
    """
    every = [grid for kind in KINDS for grid in _of_kind(settings, kind) if len(grid.points) > 1]
    found = [grid for grid in every if grid.kind is RATES or len(grid.rows) > 1]

    def name(grid: Grid) -> tuple[str, str]:
        return grid.signal, grid.setting.heading

    return [g for g in found if not any(name(g) == name(other) and g.groups < other.groups for other in found)]


def _of_kind(settings: Sequence[Setting], kind: Rows) -> list[Grid]:
    """The runs sorted by what they share apart from floor and rows; what departs least from its preset comes first."""
    found: dict[object, Grid] = {}
    for setting in settings:
        spec = next(iter(setting.finished.values()))[0].spec
        if setting.group.dataset is None or any(name not in spec.protocol for name in (kind.fields[0], COLUMN)):
            continue
        for signal, runs in setting.pick((*model.VARIANTS, *model.GATES[1:]), *NEEDED).items():
            key = signal, shared(spec, "|".join((*kind.fields, COLUMN)))
            grid = found.setdefault(key, Grid(setting, signal, kind))
            grid.groups.add(setting.group)
            grid.uniform_sources |= {setting.uniform_source.group} if setting.uniform_source else set()
            point = kind.of(spec), float(str(spec.protocol[COLUMN]))
            grid.points[point] = _pooled(grid.points.get(point, ()), runs)
            grid.uniform[point] = _pooled(grid.uniform.get(point, ()), setting.uniform)
    return sorted(found.values(), key=lambda grid: grid.common.count(","))


def _pooled(first: Sequence[RunData], second: Sequence[RunData]) -> tuple[RunData, ...]:
    """Runs of two groups that come to the same, such as two ways to say that both rates are equal; each seed once."""
    known = {run.seed for run in first}
    return (*first, *(run for run in second if run.seed not in known))


def grid_points(settings: Sequence[Setting]) -> set[Group]:
    """The groups that are points of a grid, or Uniform for it, and nothing else: those of a single signal."""
    lonely = {setting.group for setting in settings if len(setting.finished) == 1}
    several = [grid for grid in grids(settings) if len(grid.groups) > 1]
    return {group for grid in several for group in (grid.groups | grid.uniform_sources) & lonely}


class GridView(NamedTuple):
    """A grid as a page shows it."""

    grid: Grid  # the runs and their numbers
    chart: Chart  # its figure
    # groups that are points of this grid, or its Uniform, and nothing else: they need no charts of their own
    only: frozenset[Group]


def grid_views(settings: Sequence[Setting]) -> list[GridView]:
    """All grids among the finished runs; empty if no runs differ in a constant of the signal alone."""
    points = grid_points(settings)
    found = [grid for grid in grids(settings) if grid.has_uniform]
    return [
        GridView(
            grid, grid_chart(f"sensitivity-{place}", grid), frozenset(points & (grid.groups | grid.uniform_sources))
        )
        for place, grid in enumerate(found)
    ]


def grid_chart(name: str, grid: Grid) -> Chart:
    """Loss area, distance of the draws from uniform and parameters under the floor, over rows and floors."""
    spare = list(model.SIGNALS.values())[1:]
    rows = [row_text(row) for row in grid.rows]
    seeds = model.seeds_text(map(len, grid.points.values()))
    return Chart(
        name,
        f"{title(grid.signal)}, {grid.setting.title}, over {grid.kind.label} and floor, {grid.common}",
        f"{title(grid.signal)}, {grid.setting.heading}, over {grid.label} and the floor under v ({grid.unit}), "
        f"{grid.common}, {seeds}. Left: loss area relative to that of Uniform (protocol {grid.uniform_text}), bold "
        "where the 95% interval does not hold 1 (of twenty cells, one by chance). Middle: distance of the draws from "
        "uniform, half the sum over groups. Right: parameters whose second moment is under the floor, mean over the "
        "run.",
        {f"row-{place}": replace(spare[place % len(spare)], name=text) for place, text in enumerate(rows)},
        partial(_panels, grid),
        legend=grid.label,
        heading=f"{title(grid.signal)}: {grid.setting.heading}, {grid.common}, {seeds}",
        kind=model.MAP,
        x=("floor", "floor under v"),
        categories=[model.number_text(floor) for floor in grid.floors],
        columns=3,
        wide=True,
        height=min(4.0, 1.05 + 0.27 * len(rows)),
        page_caption="Over the floor under v: the area under the test-loss curve relative to Uniform's, how far the "
        "draws are from uniform, and how many parameters are under the floor. Whiskers are 95% intervals over seeds.",
    )


def _panels(grid: Grid) -> list[Panel]:
    panels: list[Panel] = []
    for key, heading, is_share in (
        ("ratio", "loss area / Uniform's", False),
        ("distance", "distance from uniform draws", True),
        ("under_floor", "parameters under the floor", True),
    ):
        series = {}
        for place, (_, cells) in enumerate(grid.lines):
            series[f"row-{place}"] = model.numbers([getattr(cell, key) if cell else None for cell in cells])
        axis = Axis("", zero=is_share, percent=is_share, full=key == "under_floor")
        panels.append(Panel(key, heading, axis, series, [] if is_share else [Line(1.0)], row=len(panels)))
    return panels


def figures(settings: Sequence[Setting]) -> Iterator[Item]:
    """The sensitivity of signals to their constants, a figure for each grid of runs."""
    names: list[str] = []
    for grid in grids(settings):
        name = slug("sensitivity", grid.setting.name, grid.signal, grid.kind.name)
        names.append(name)
        name += f"-{names.count(name)}" if names.count(name) > 1 else ""  # a grid for each of several protocols
        if grid.has_uniform:
            yield grid_chart(name, grid)
        else:
            yield Omission(name, "no finished runs of Uniform to compare with")


EXPLANATION = (
    "GMC whose parameters count only as far as their momentum stands out of the level of pure noise, beside GMC that "
    'counts them all. "Same floor" is the GMC that differs in the gate alone; "first line" is the GMC of the protocol '
    "that lends its runs of Uniform. Draws are over all epochs; the size of the scores is their mean over arms, and "
    "the median over epochs."
)


class Gates(NamedTuple):
    """GMC behind a noise gate beside GMC without one, as a page shows it."""

    explanation: str
    table: Table


@dataclass(frozen=True)
class GateRow:
    """One signal under one protocol."""

    condition: str  # the title of the setting whose gates are compared
    method: str  # the signal
    protocol: str  # the label of its protocol
    seeds: tuple[int, ...]  # the seeds of its runs
    relative: Estimate | None  # area under the test-loss curve relative to Uniform's; None without runs of Uniform
    beside: Estimate | None  # the same relative to GMC's, which differs in the gate alone; None for GMC
    # the same relative to GMC's under the protocol that this one departs from; None if there is no other
    against: Estimate | None
    shares: tuple[float, ...]  # share of the draws in each group, over all epochs, mean over seeds
    score: float | None  # how large scores are, mean over seeds; None where they were not logged


def gates_of(settings: Sequence[Setting]) -> Gates | None:
    """A line for each setting, signal and protocol; GMC of the first line, which several settings share, once."""
    head = ["setting", "signal", "protocol", "seeds", "area relative to Uniform", "95% interval"]
    head += ["relative to GMC, same floor", "95% interval", "relative to GMC, first line", "95% interval"]
    head += ["draws A/B/C/D or G0/G1/G2/G3", "size of the scores"]
    rows = []
    for each in gate_rows(settings):
        ratios = (ratio_cells(ratio, len(each.seeds)) for ratio in (each.relative, each.beside, each.against))
        shares = "/".join(f"{100 * share:.0f}" for share in each.shares)
        names = each.condition, title(each.method), each.protocol, str(len(each.seeds))
        rows.append((*names, *chain.from_iterable(ratios), f"{shares} %", number(each.score, ".2g")))
    return Gates(EXPLANATION, Table(head, list(dict.fromkeys(rows)))) if rows else None


def gate_rows(settings: Sequence[Setting]) -> list[GateRow]:
    """The rows of every setting that has runs of a gate, and runs of Uniform or GMC to compare them with."""
    plain = {_ungated(setting): runs for setting in settings if (runs := setting.finished.get("gmc"))}
    found: list[GateRow] = []
    for setting in settings:
        same_floor = plain.get(_ungated(setting), ())
        has_gates = setting.kind == CONTROLLED and any(gate in setting.finished for gate in model.GATES[1:])
        if not has_gates or not (setting.uniform or same_floor):
            continue
        own_gmc = setting.uniform_source.finished.get("gmc", ()) if setting.uniform_source else ()
        found += [_gate_row(setting, own_gmc)] if own_gmc else []
        for method in model.GATES:
            if runs := setting.finished.get(method):
                found.append(_gate_row(setting, runs, same_floor if method != "gmc" else (), own_gmc))
    return found


def _ungated(setting: Setting) -> object:
    """What a run of GMC without a gate depends on."""
    return shared(next(iter(setting.all.values()))[0].spec, "gate_level")


def _gate_row(
    setting: Setting, runs: Sequence[RunData], same_floor: Sequence[RunData] = (), first_line: Sequence[RunData] = ()
) -> GateRow:
    own, sizes = areas(runs), score_sizes(runs)
    relative, beside, against = (
        relative_area(own, areas(each)) if each else None for each in (setting.uniform, same_floor, first_line)
    )
    shares = tuple(np.mean([group_shares(run).mean(0) for run in runs], axis=0).tolist())
    score = float(np.mean(sizes)) if sizes else None
    names = setting.title, runs[0].method, runs[0].protocol, tuple(sorted(own))
    return GateRow(*names, relative, beside, against, shares, score)
