"""Which charts a set of runs allows: `plan_figures` for print, `page_charts` for the page of a report."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headway.analysis.charts import controlled, exploration, model
from headway.analysis.charts.model import Chart, Omission, Runs
from headway.analysis.charts.sensitivity import grid_chart, grid_points, grids
from headway.analysis.results import Results
from headway.analysis.settings import CONTROLLED, EXPLORATION, Setting, settings_of, slug, studies_of
from headway.analysis.tables import NEEDED, areas, relative_area
from headway.study.protocols.names import title

if TYPE_CHECKING:
    from headway.analysis.report.tables import Areas, Overall

SETS: Sequence[tuple[str, str, str, Sequence[str]]] = (
    ("groups", "main", "", model.MAIN),
    ("groups", "others", ", other signals", model.OTHERS),
    ("ablation", "", ", variants of GMC", model.VARIANTS),
    ("gates", "", ", noise gates", model.GATES),
)
"""Sets of signals that share a chart of groups: how the names of its files begin and end, and words for its title."""


@dataclass(frozen=True)
class Plan:
    """All figures of a set of runs of one protocol."""

    protocol: str  # the label of the protocol
    charts: tuple[Chart, ...]  # the figures that can be drawn
    omissions: tuple[Omission, ...]  # those that cannot


Item = Chart | Omission


def plan_figures(results: Results, protocol: str | None = None) -> list[Plan]:
    """Plan all figures that runs allow, for each protocol on its own: runs of two protocols share no figure."""
    settings = [setting for setting in settings_of(results) if setting.finished]
    grid = grid_points(settings)
    plans = []
    for label in dict.fromkeys(setting.group.protocol for setting in settings if setting.group not in grid):
        if protocol in (None, label):
            plans.append(_plan(label, _figures([setting for setting in settings if setting.group.protocol == label])))
    if protocol is None:
        plans.append(_plan("", _of("sensitivity", _maps(settings))))
        found = [chart for study in studies_of(results) for chart in study.charts]
        plans += [_plan("", found)] if found else []
    return plans


def _plan(label: str, items: Iterable[Item]) -> Plan:
    items = list(items)
    charts = tuple(replace(item, caption=item.caption + item.remark) for item in items if isinstance(item, Chart))
    return Plan(label, charts, tuple(item for item in items if isinstance(item, Omission)))


def _figures(settings: Sequence[Setting]) -> Iterator[Item]:
    """The figures of one protocol."""
    runs = [
        setting for setting in settings if setting.group.dataset and setting.group.condition in ("curriculum", "noise")
    ]
    for setting in runs:
        yield from _of(setting.group.condition, (_group_figure(setting, *each) for each in SETS[:2]))
    yield from _of("comparison", _loss_figures(runs))
    yield from _area_figures(runs)
    yield from _of("variants", (_group_figure(setting, *each) for setting in runs for each in SETS[2:]))
    yield from _of("comparison", _telemetry_figures(runs))
    if exploring := [setting for setting in settings if setting.group.experiment == "doorkey"]:
        yield from _of("exploration", _exploration_figures(exploring))


def _of(part: str, items: Iterable[Item]) -> Iterator[Item]:
    """The figures of one part of the results."""
    return (replace(item, part=part) if isinstance(item, Chart) else item for item in items)


def _group_figure(setting: Setting, begin: str, end: str, words: str, signals: Sequence[str]) -> Item:
    name = slug(begin, setting.name, end)
    runs = setting.pick(signals, *NEEDED)
    need = signals if begin == "groups" else signals[1:]
    if not any(signal in runs for signal in need):
        return Omission(name, f"no finished runs of {_names(need)}")
    return controlled.group_chart(name, setting, runs, words)


def _loss_figures(settings: Sequence[Setting]) -> Iterator[Item]:
    found: dict[Setting, Runs] = {}
    for setting in settings:
        name = slug("average-loss", setting.name)
        runs = setting.pick((*model.MAIN, *model.OTHERS), *NEEDED)
        if not runs:
            yield Omission(name, f"no finished runs of {_names((*model.MAIN, *model.OTHERS))}")
            continue
        found[setting] = runs
        yield controlled.loss_chart(name, {setting: runs})
    if len(found) > 1:
        yield controlled.loss_chart("average-loss", found)


def _area_figures(settings: Sequence[Setting]) -> Iterator[Item]:
    for name, signals, need in (
        ("auc", (*model.MAIN, *model.OTHERS), (*model.MAIN[1:], *model.OTHERS)),
        ("auc-ablation", model.VARIANTS, model.VARIANTS[1:]),
        ("auc-gates", model.GATES, model.GATES[1:]),
    ):
        found = {}
        for setting in settings:
            runs = setting.pick(signals, *NEEDED)
            if setting.uniform and any(signal in runs for signal in need):
                uniform = areas(setting.uniform)
                shown = {"uniform": setting.uniform, **(_lent_gmc(setting) if signals == model.GATES else {}), **runs}
                found[setting] = {key: relative_area(areas(members), uniform) for key, members in shown.items()}
        if found:
            yield replace(controlled.area_chart(name, found), part="comparison" if name == "auc" else "variants")
        elif settings:
            yield Omission(name, f"no condition with finished runs of Uniform and of one of {_names(need)}")


def _lent_gmc(setting: Setting) -> Runs:
    """GMC of the setting that lends its runs of Uniform: the same with other constants, to compare gates with."""
    runs = setting.lender.pick(["gmc"], *NEEDED) if setting.lender else {}
    return {f"GMC, {setting.lender.group.protocol}": runs["gmc"]} if setting.lender and runs else {}


def _telemetry_figures(settings: Sequence[Setting]) -> Iterator[Item]:
    """A figure for each dataset."""
    by_dataset: dict[str, dict[Setting, Runs]] = {}
    for setting in settings:
        by_dataset.setdefault(setting.group.dataset or "", {})[setting] = setting.pick(setting.finished)
    for dataset, found in by_dataset.items():
        name = slug("telemetry", dataset)
        yield controlled.telemetry_chart(name, found, title(dataset)) or Omission(
            name, "no finished runs with the column policy_entropy"
        )


def _exploration_figures(settings: Sequence[Setting]) -> Iterator[Item]:
    def ungated(setting: Setting) -> list[str]:
        return [method for method in setting.finished if method not in model.GATED_METHODS]

    found = {setting: setting.pick(ungated(setting), *exploration.REWARD_COLUMNS) for setting in settings}
    found = {setting: runs for setting, runs in found.items() if runs}
    if found:
        yield exploration.reward_chart("minigrid", found)
    env_id = exploration.env_id_of({setting: setting.finished for setting in settings})
    size = exploration.doorkey_size(env_id)
    if size:
        yield exploration.environment_chart("environment", env_id, size)
    else:
        yield Omission("environment", f"only DoorKey can be drawn, got {env_id}")
    noisy = [setting for setting in settings if setting.group.condition != "none"]
    if not noisy:
        yield Omission("television", "no finished runs with noise")
    for setting in noisy:
        name = slug("television", setting.group.condition) if setting.group.condition != "door" else "television"
        sets = {name: ungated(setting), f"{name}-gates": [*model.GATED_BESIDE, *model.GATED_METHODS]}
        for name, methods in sets.items():
            columns = (*exploration.REWARD_COLUMNS, *exploration.NOISE_COLUMNS)
            runs = setting.pick(methods, *columns)
            if runs:
                yield exploration.noise_chart(name, setting, runs)
            else:
                yield Omission(name, f"no finished runs with the columns {' and '.join(columns[2:])}")
            if not any(method in setting.finished for method in model.GATED_METHODS):
                break


def _maps(settings: Sequence[Setting]) -> Iterator[Item]:
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
    if not names and settings:
        yield Omission("sensitivity", "no runs that differ in decay rate, floor or weight of the entropy alone")


def protocol_folders(labels: Iterable[str]) -> dict[str, str]:
    """A folder for the figures of each protocol, by its label; none if there is a single one."""
    labels = list(dict.fromkeys(labels))
    found: dict[str, str] = {}
    for label in labels if len(labels) > 1 else ():
        name = slug(label)
        others = (f"{name}-{number}" for number in itertools.count(2))  # labels may differ in signs alone
        found[label] = next(each for each in itertools.chain([name], others) if each not in found.values())
    return found


FEW_RUNS = 5  # With fewer seeds than this the page draws single runs: an interval of three seeds can fill a whole panel


def page_charts(
    settings: Sequence[Setting], found: Mapping[str, Areas], overall: Mapping[str, Overall]
) -> dict[str, list[Chart]]:
    """The charts of a page, by section or by the key of a setting."""
    runs = [setting for setting in settings if setting.kind == CONTROLLED and setting.shown]
    exploring = {setting: setting.shown for setting in settings if setting.kind == EXPLORATION and setting.shown}
    compared = {
        setting: found[setting.key] for setting in runs if setting.key in found and len(found[setting.key].ratios) > 1
    }
    by_section: dict[str, list[Chart]] = {"summary": [], "overall": [], "telemetry": [], "exploration": []}
    if compared:
        ratios = {setting: area.ratios for setting, area in compared.items()}
        seeds = {setting: area.seeds for setting, area in compared.items()}
        by_section["summary"] = [controlled.area_chart("areas", ratios, seeds)]
    if overall:
        profiles = {protocol: each.profiles for protocol, each in overall.items()}
        by_section["overall"] = [replace(controlled.profile_chart(profiles), few=FEW_RUNS)]
    for setting in runs:
        heading = f"{setting.heading}, {setting.group.protocol}"
        chart = controlled.telemetry_chart(f"telemetry-{setting.key}", {setting: setting.shown}, heading)
        by_section["telemetry"] += [replace(chart, rows=1, columns=2, singles=True, few=FEW_RUNS)] if chart else []
        charts = [controlled.loss_chart(f"loss-{setting.key}", {setting: setting.shown}), *_group_charts(setting)]
        by_section[setting.key] = [replace(chart, singles=True, few=FEW_RUNS) for chart in charts]
    if exploring:
        by_section["exploration"] = _exploration_charts(exploring)
    return by_section


def _group_charts(setting: Setting) -> Iterator[Chart]:
    known = {signal for *_, signals in SETS for signal in signals}
    more = [signal for signal in setting.shown if signal not in known]
    for begin, end, words, signals in (*SETS, ("groups", "more", ", more signals", more)):
        shown = {signal: setting.shown[signal] for signal in signals if signal in setting.shown}
        if shown and (begin == "groups" or list(shown) != ["gmc"]):
            yield controlled.group_chart(f"groups-{end or begin}-{setting.key}", setting, shown, words)


def _exploration_charts(found: Mapping[Setting, Runs]) -> list[Chart]:
    charts = [exploration.reward_chart("rewards", found)]
    for setting, runs in found.items():
        having = controlled.having(runs, *exploration.NOISE_COLUMNS)
        if having and setting.group.condition != "none":
            charts.append(exploration.noise_chart(f"noise-{setting.key}", setting, having))
    return charts


def _names(signals: Iterable[str]) -> str:
    return " / ".join(map(title, signals))
