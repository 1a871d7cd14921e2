"""The figures of the controlled study: from runs to whole pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis import summaries
from headway.analysis.figures import curves
from headway.analysis.figures.bars import auc_bars
from headway.analysis.figures.catalogue import (
    Drawing,
    Item,
    Kind,
    Omission,
    Setting,
    interval_text,
    interval_words,
    slug,
)
from headway.analysis.figures.groups import MEAN, Column, group_panels
from headway.analysis.figures.style import (
    COLUMN_WIDTH,
    GATES,
    MAIN,
    OTHERS,
    PALE,
    SIGNALS,
    TEXT_WIDTH,
    VARIANTS,
    group_looks,
    legend_below,
    new_figure,
)
from headway.analysis.rundata import RunData
from headway.analysis.stats import Estimate
from headway.analysis.tables import NEEDED, areas, relative_area
from headway.study.protocols.names import LEAST_LOSS, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Runs = Mapping[str, tuple[RunData, ...]]


def _is_controlled(setting: Setting) -> bool:
    return setting.group.dataset is not None and setting.group.condition in ("curriculum", "noise")


def groups(settings: Sequence[Setting]) -> Iterator[Item]:
    """Per-group test loss over training allocation, for the first three signals and for the other three."""
    for setting in filter(_is_controlled, settings):
        for part, signals in (("main", MAIN), ("others", OTHERS)):
            yield _group_item(setting, slug("groups", setting.name, part), signals, need=signals)


def ablation(settings: Sequence[Setting]) -> Iterator[Item]:
    """The same for GMC and its variants, and for GMC and its noise gates."""
    for setting in filter(_is_controlled, settings):
        for name, signals in (("ablation", VARIANTS), ("gates", GATES)):
            yield _group_item(setting, slug(name, setting.name), signals, need=signals[1:])


def _group_item(setting: Setting, name: str, signals: Sequence[str], need: Sequence[str]) -> Item:
    runs = setting.pick(signals, *NEEDED)
    if not any(signal in runs for signal in need):
        return Omission(name, f"no finished runs of {_names(need)}")
    caption = (
        f"{setting.title}. Top: test loss of each group{_least_text(setting)} and, dashed, over all of them. Bottom: "
        f"share of the draws {_arm_text(setting)}; {_arrow_text(setting)}the line is uniform sampling. "
        f"{_capital(interval_text(runs.values()))}."
    )
    return Drawing(name, caption, partial(group_figure, setting, runs))


def group_figure(setting: Setting, runs: Runs) -> Figure:
    """Two rows of panels with a column for each signal."""
    columns = [
        Column(
            title(signal),
            summaries.bands(members, summaries.group_losses),
            summaries.bands(members, summaries.group_shares_per_arm),
            _peaks(setting, signal, members),
            summaries.band(members, summaries.average_loss),
        )
        for signal, members in runs.items()
    ]
    figure = new_figure(TEXT_WIDTH if len(columns) > 1 else COLUMN_WIDTH, 3.7)
    axes = figure.subplots(2, len(columns), squeeze=False)
    arms = sum(map(len, summaries.arms_of_groups(next(iter(runs.values()))[0])))
    group_panels(axes, columns, _arm(setting), 1 / arms, _least(setting), group_looks(setting.group.condition))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    labels = [label if label == MEAN else f"group {label}" for label in labels]
    if _least(setting):
        handles.append(_line(PALE, 0.6))
        labels.append("least possible loss")
    legend_below(figure, handles, labels, setting.title)
    return figure


def _peaks(setting: Setting, signal: str, runs: Sequence[RunData]) -> list[float] | None:
    """When the visits of each group peak; None for Uniform, noise, and runs that cannot be averaged epoch by epoch."""
    lengths = {len(summaries.epochs(run)) for run in runs}
    if signal == "uniform" or setting.group.condition == "noise" or len(lengths) > 1:
        return None
    peaks = summaries.drawn_peaks(runs, summaries.FALLS_AT_FIRST.get(signal, ()))
    return peaks.tolist() if np.isfinite(peaks).any() else None


def average_losses(settings: Sequence[Setting]) -> Iterator[Item]:
    """Average test loss of the six signals: a figure for each setting, and one with all of them."""
    found: dict[Setting, Runs] = {}
    for setting in filter(_is_controlled, settings):
        name = slug("average-loss", setting.name)
        runs = setting.pick((*MAIN, *OTHERS), *NEEDED)
        if not runs:
            yield Omission(name, f"no finished runs of {_names((*MAIN, *OTHERS))}")
            continue
        found[setting] = runs
        caption = f"{setting.title}: test loss over all arms, {interval_text(runs.values())}."
        yield Drawing(name, caption, partial(average_loss_figure, {setting: runs}))
    if len(found) > 1:
        caption = "Test loss over all arms, mean and 95% interval over seeds."
        yield Drawing("average-loss", caption, partial(average_loss_figure, found))


def average_loss_figure(found: Mapping[Setting, Runs]) -> Figure:
    """A panel for each setting, two in a row."""
    across = min(2, len(found))
    rows = math.ceil(len(found) / across)
    figure = new_figure(TEXT_WIDTH if across > 1 else COLUMN_WIDTH, 0.45 + 2.0 * rows if across > 1 else 2.6)
    panels = figure.subplots(rows, across, squeeze=False)
    for ax, (setting, runs) in zip(panels.flat, found.items(), strict=False):
        bands = {signal: summaries.band(members, summaries.average_loss) for signal, members in runs.items()}
        curves.average_loss(ax, bands, setting.title)
    _finish(figure, panels, len(found))
    return figure


def loss_areas(settings: Sequence[Setting]) -> Iterator[Item]:
    """Area under the test-loss curve relative to Uniform's, for the signals and for GMC's variants."""
    settings = list(filter(_is_controlled, settings))
    for name, signals, need in (
        ("auc", (*MAIN, *OTHERS), (*MAIN[1:], *OTHERS)),
        ("auc-ablation", VARIANTS, VARIANTS[1:]),
        ("auc-gates", GATES, GATES[1:]),
    ):
        found: dict[str, Runs] = {}
        shown: list[Setting] = []
        for setting in settings:
            runs = setting.pick(signals, *NEEDED)
            if setting.uniform and any(signal in runs for signal in need):
                shown.append(setting)
                found["\n".join(reversed(setting.title.split(", ")))] = {
                    "uniform": setting.uniform,
                    **(_lent_gmc(setting) if signals == GATES else {}),
                    **runs,
                }
        if found:
            compared = [
                area_ratio(members, runs["uniform"]).n
                for runs in found.values()
                for signal, members in runs.items()
                if signal != "uniform"
            ]
            caption = (
                f"Area under the test-loss curve relative to Uniform's{_lent_text(shown)} (1; lower is better), "
                f"{interval_words(compared, 'with Fieller 95% intervals')}. Where the axis is split, what is above the "
                "split is compressed."
            )
            yield Drawing(name, caption, partial(area_figure, found))
        elif settings:
            yield Omission(name, f"no condition with finished runs of Uniform and of one of {_names(need)}")


def _lent_gmc(setting: Setting) -> Runs:
    """GMC of the setting that lends its runs of Uniform: the same with other constants, to compare gates with."""
    runs = setting.lender.pick(["gmc"], *NEEDED) if setting.lender else {}
    return {f"GMC, {setting.lender.group.protocol}": runs["gmc"]} if setting.lender and runs else {}


def area_ratio(runs: Sequence[RunData], uniform: Sequence[RunData]) -> Estimate:
    """Loss area of some runs relative to that of Uniform's."""
    return relative_area(areas(runs), areas(uniform))


def area_figure(found: Mapping[str, Runs]) -> Figure:
    """The bars of all settings in one panel."""
    ratios = {
        label: {signal: area_ratio(members, runs["uniform"]) for signal, members in runs.items()}
        for label, runs in found.items()
    }
    figure = new_figure(TEXT_WIDTH if len(ratios) > 1 else COLUMN_WIDTH, 2.8)
    ax = figure.subplots()
    auc_bars(ax, ratios)
    handles, labels = ax.get_legend_handles_labels()
    legend_below(figure, handles, labels)
    return figure


def telemetry(settings: Sequence[Setting]) -> Iterator[Item]:
    """Share of the parameters under the floor, and the entropy of the policy: a figure for each dataset."""
    by_dataset: dict[str, list[Setting]] = {}
    for setting in filter(_is_controlled, settings):
        by_dataset.setdefault(setting.group.dataset or "", []).append(setting)
    for dataset, members in by_dataset.items():
        name = slug("telemetry", dataset)
        if not any(setting.pick(SIGNALS, "policy_entropy") for setting in members):
            yield Omission(name, "no finished runs with the column policy_entropy")
            continue
        shown = [runs for setting in members for runs in setting.pick(SIGNALS, "policy_entropy").values()]
        caption = (
            f"{title(dataset)}. Top: share of the parameters whose second moment is under the floor. Bottom: entropy "
            f"of the policy; the line is that of uniform sampling. {_capital(interval_text(shown))}."
        )
        yield Drawing(name, caption, partial(telemetry_figure, members))


def telemetry_figure(settings: Sequence[Setting]) -> Figure:
    """A column for each condition; the upper row is left out if no run has a floor."""
    has_floor = any(setting.pick(setting.methods, "under_floor") for setting in settings)
    rows = 2 if has_floor else 1
    width = TEXT_WIDTH if len(settings) > 1 else COLUMN_WIDTH
    figure = new_figure(width, (1.5 if len(settings) > 1 else 1.7) * rows + 0.75)
    panels = figure.subplots(rows, len(settings), squeeze=False)
    for place, setting in enumerate(settings):
        column = panels[:, place]
        if has_floor:
            curves.under_floor(column[0], _logged(setting, "under_floor"))
            column[0].set_xlabel("")
        runs = next(iter(setting.methods.values()))
        arms = sum(map(len, summaries.arms_of_groups(runs[0])))
        curves.policy_entropy(column[-1], _logged(setting, "policy_entropy"), arms)
        column[0].set_title(setting.title)
    for ax in panels[:, 1:].flat:
        ax.set_ylabel("")
    legend_below(figure, *_all_handles(panels))
    return figure


KINDS: tuple[Kind, ...] = (groups, average_losses, loss_areas, ablation, telemetry)


def _logged(setting: Setting, column: str) -> dict[str, summaries.Band]:
    """A column of every signal that has it."""
    runs = setting.pick(setting.methods, column)
    return {signal: summaries.band(members, summaries.column(column)) for signal, members in runs.items()}


def _finish(figure: Figure, panels: Any, count: int) -> None:
    """Remove the panels that are left over, name the axes of the outer ones only, and add a legend."""
    for ax in panels.flat[count:]:
        ax.remove()
    for ax in panels[:, 1:].flat:
        ax.set_ylabel("")
    for place, ax in enumerate(panels.flat[:count]):
        if place + panels.shape[1] < count:
            ax.set_xlabel("")
    legend_below(figure, *_all_handles(panels))


def _all_handles(panels: Any) -> tuple[list[Any], list[str]]:
    """The entries of a legend for all panels, each name once, in the order of the signals."""
    found: dict[str, Any] = {}
    for ax in panels.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    order = [look.name for look in SIGNALS.values()]
    labels = sorted(found, key=lambda label: order.index(label) if label in order else len(order))
    return [found[label] for label in labels], labels


def _line(colour: str, width: float) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linewidth=width)


def _arm(setting: Setting) -> str:
    return "group" if setting.group.condition == "noise" else "class"


def _arm_text(setting: Setting) -> str:
    return "of each group" if _arm(setting) == "group" else "of a class of each group"


def _arrow_text(setting: Setting) -> str:
    return "" if setting.group.condition == "noise" else "arrows mark the peaks of its visits, "


def _least(setting: Setting) -> list[float]:
    """The entropy of each group's labels where they are drawn anew each time."""
    return list(LEAST_LOSS) if setting.group.condition == "noise" else []


def _least_text(setting: Setting) -> str:
    return " (thin lines: the least possible, the entropy of its labels)" if _least(setting) else ""


def _lent_text(settings: Sequence[Setting]) -> str:
    """Whose runs of Uniform serve, where they are another protocol's; which settings they serve, unless it is all."""
    lent: dict[str, list[str]] = {}
    for setting in settings:
        if setting.lender:
            lent.setdefault(setting.lender.group.protocol, []).append(setting.title)
    if [len(titles) for titles in lent.values()] == [len(settings)]:
        return f" (of protocol {next(iter(lent))})"
    parts = [f"{' and '.join(titles)}: of protocol {protocol}" for protocol, titles in lent.items()]
    return f" ({'; '.join(parts)})" if parts else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _names(signals: Iterable[str]) -> str:
    return " / ".join(map(title, signals))
