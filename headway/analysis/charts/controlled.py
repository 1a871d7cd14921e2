"""The charts of the controlled study."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from headway.analysis import summaries
from headway.analysis.charts import model
from headway.analysis.charts.model import FEW_RUNS, Axis, Chart, Item, Line, Omission, Panel, Runs, Style, of_part
from headway.analysis.comparison import CONTROLLED, NEEDED, Setting, areas, headings, relative_area, slug
from headway.analysis.rundata import RunData, grouped
from headway.analysis.stats import Estimate, Profile
from headway.analysis.summaries import Band
from headway.study.protocols.names import GROUPS, METHODS, rank, title

if TYPE_CHECKING:
    from headway.analysis.report.findings import Areas, Overall

LOSS = Axis("test loss (nats)")
RATIO = Axis("loss area / Uniform's\n(lower is better)")
MEAN = Style("mean", model.INK, (0, (5, 2)), "")  # The mean over groups


def group_chart(name: str, setting: Setting, runs: Runs, words: str = "") -> Chart:
    """Test loss of each group above its share of the draws, a column for each signal."""
    noise = setting.group.condition == "noise"
    least = " (thin lines: the least possible, the entropy of its labels)" if noise else ""
    caption = (
        f"{setting.heading}. Top: test loss of each group{least} and, dashed, over all of them. Bottom: share of the "
        f"draws {'of each group' if noise else 'of a class of each group'}; "
        f"{'' if noise else 'arrows mark the peaks of its visits, '}the line is uniform sampling. "
        f"{model.interval_text(runs.values()).capitalize()}."
    )
    return Chart(
        name,
        f"Groups, {setting.title}{words}",
        caption,
        {**model.group_styles(setting.group.condition), "mean": MEAN},
        partial(_group_panels, runs, noise),
        legend="Groups",
        heading=setting.heading,
        columns=len(runs),
        rows=2,
        height=3.7,
    )


def _group_panels(runs: Runs, noise: bool) -> list[Panel]:
    least = [Line(math.log(len(group)), f"group-{place}", "least possible loss") for place, group in enumerate(GROUPS)]
    share = Axis(f"draws per {'group' if noise else 'class'}", zero=True, percent=True)
    panels = []
    for name, members in runs.items():
        losses = _by_group(summaries.bands(members, summaries.group_losses))
        mean = summaries.band(members, summaries.average_loss)
        losses["mean"] = Band.of(mean.x, mean.mean, mean.n)
        shares = _by_group(map(model.within_shares, summaries.bands(members, summaries.group_shares_per_arm)))
        lines = [line for line in least if line.value > 0] if noise else []
        uniform = [Line(1 / _arms(members[0]))]
        panels += [
            Panel(name, title(name), Axis(LOSS.label, zero=True), losses, lines),
            Panel(name, title(name), share, shares, uniform, _peaks(name, members), row=1),
        ]
    return panels


def _by_group(bands: Iterable[Band]) -> dict[str, Band]:
    return {f"group-{place}": band for place, band in enumerate(bands)}


def _peaks(signal: str, runs: Sequence[RunData]) -> dict[str, float]:
    """The peak of each group's visits, where all runs are finished and of one length; Uniform's mean nothing."""
    is_whole = all(run.finished for run in runs) and len({len(summaries.epochs(run)) for run in runs}) == 1
    if signal == "uniform" or runs[0].condition == "noise" or not is_whole or runs[0].rows < 3:
        return {}
    peaks = summaries.drawn_peaks(runs, summaries.FALLS_AT_FIRST.get(signal, ()))
    return {f"group-{place}": float(x) for place, x in enumerate(peaks) if math.isfinite(x)}


def loss_chart(name: str, found: Mapping[Setting, Runs]) -> Chart:
    """Test loss over all arms, a panel for each setting and a curve for each signal."""
    setting, runs = next(iter(found.items()))
    several = len(found) > 1
    seeds = "mean and 95% interval over seeds" if several else model.interval_text(runs.values())
    return Chart(
        name,
        "Test loss" if several else f"Test loss, {setting.title}",
        f"Test loss over all arms, {seeds}." if several else f"{setting.heading}: test loss over all arms, {seeds}.",
        model.styles_for((signal for runs in found.values() for signal in runs), model.SIGNALS),
        lambda: [
            Panel(setting.key, setting.heading, LOSS, _bands(runs, summaries.average_loss), row=row)
            for row, (setting, runs) in enumerate(found.items())
        ],
        columns=min(2, len(found)),
        singles=True,
        wide=True,
        height=0.45 + 2.0 * math.ceil(len(found) / 2) if several else 2.6,
    )


def area_chart(
    name: str,
    found: Mapping[Setting, Mapping[str, Estimate]],
    seeds: Mapping[Setting, Mapping[str, Sequence[float]]] | None = None,
) -> Chart:
    """Area under the test-loss curve relative to Uniform's, a panel for each setting and a number for each signal."""
    compared = [ratio.n for ratios in found.values() for signal, ratio in ratios.items() if signal != "uniform"]
    signals = sorted({signal for ratios in found.values() for signal in ratios}, key=lambda each: rank(METHODS, each))
    caption = (
        f"Area under the test-loss curve relative to Uniform's{_baseline_text(list(found))} (1; lower is better), "
        f"{model.interval_words(compared, 'with Fieller 95% intervals')}."
    )

    def panels() -> list[Panel]:
        names, made = headings(found), []
        for row, (setting, ratios) in enumerate(found.items()):
            series = {}
            for signal, ratio in ratios.items():
                single = np.array((seeds or {}).get(setting, {}).get(signal, ()))[:, None]
                band = model.numbers([ratio], [signals.index(signal)])
                series[signal] = replace(band, singles=single if len(single) else None)
            made.append(Panel(setting.key, names[setting], RATIO, series, [Line(1.0)], row=row))
        return made

    return Chart(
        name,
        "Area under the test-loss curve, relative to Uniform",
        f"{caption} Where the axis is split, what is above the split is compressed.",
        model.styles_for((signal for ratios in found.values() for signal in ratios), model.SIGNALS),
        panels,
        kind=model.BARS,
        x=("", "epoch"),
        categories=[title(signal) for signal in signals],
        columns=2 if len(found) > 1 else 1,
        singles=True,
        height=2.8,
        page_caption=f"{caption} Drag up or down over a panel to zoom.",
    )


def _baseline_text(settings: Sequence[Setting]) -> str:
    """Whose runs of Uniform serve, where they are another protocol's; which settings they serve, unless it is all."""
    pairs = [(setting.uniform_source.group.protocol, setting.heading) for setting in settings if setting.uniform_source]
    by_protocol = grouped(pairs, lambda pair: pair[0])
    if [len(own) for own in by_protocol.values()] == [len(settings)]:
        return f" (of protocol {pairs[0][0]})"
    parts = [f"{' and '.join(text for _, text in own)}: of protocol {name}" for name, own in by_protocol.items()]
    return f" ({'; '.join(parts)})" if parts else ""


def profile_chart(profiles: Mapping[str, Mapping[str, Profile]]) -> Chart:
    """The share of runs that reach each relative area, a panel for each protocol."""
    share, several = Axis("share of runs", zero=True, percent=True), len(profiles) > 1
    bands = {
        protocol if several else "": {
            signal: Band(each.thresholds, each.share, each.low, each.high, each.n) for signal, each in found.items()
        }
        for protocol, found in profiles.items()
    }
    return Chart(
        "profiles",
        "Performance profiles",
        "The share of a signal's runs, over all conditions, whose area relative to Uniform's mean is at most the value "
        "below. Curves farther to the left are better. Bands are 95% bootstrap intervals.",
        model.styles_for((signal for found in profiles.values() for signal in found), model.SIGNALS),
        lambda: [Panel(heading, heading, share, found) for heading, found in bands.items()],
        x=("area / Uniform's ≤", "area relative to Uniform's"),
        columns=min(2, len(profiles)),
        wide=True,
    )


def telemetry_chart(name: str, found: Mapping[Setting, Runs], heading: str) -> Chart | None:
    """Share of parameters under the floor above entropy of the policy, a column for each setting."""
    entropy = {setting: having(runs, "policy_entropy") for setting, runs in found.items()}
    floor = {setting: having(runs, "under_floor") for setting, runs in found.items()}
    if not any(entropy.values()):
        return None
    shown = [members for runs in entropy.values() for members in runs.values()]
    rows = 2 if any(floor.values()) else 1
    rest = f"the line is that of uniform sampling. {model.interval_text(shown).capitalize()}."
    return Chart(
        name,
        f"Telemetry, {heading}",
        f"{heading}. Top: share of the parameters whose second moment is under the floor. Bottom: entropy of the "
        f"policy; {rest}",
        model.styles_for((signal for runs in (*entropy.values(), *floor.values()) for signal in runs), model.SIGNALS),
        partial(_telemetry_panels, entropy, floor if rows == 2 else {}),
        columns=len(found),
        rows=rows,
        height=(1.5 if len(found) > 1 else 1.7) * rows + 0.75,
        page_caption=f"{heading}. Share of the parameters whose second moment is under the floor, and entropy of the "
        f"policy; {rest}",
    )


def _telemetry_panels(entropy: Mapping[Setting, Runs], floor: Mapping[Setting, Runs]) -> list[Panel]:
    share = Axis("parameters under\nthe floor", zero=True, percent=True, full=True)
    panels: list[Panel] = []
    for setting, runs in entropy.items():
        if floor:
            logged = _bands(floor[setting], summaries.column("under_floor"))
            bands = {signal: model.within_shares(band) for signal, band in logged.items()}
            panels.append(Panel("under_floor", setting.heading, share, bands, row=len(panels)))
        arms = _arms(next(iter(setting.all.values()))[0])
        most = [Line(math.log(arms), label=f"uniform: ln {arms}")]
        bands = _bands(runs, summaries.column("policy_entropy"))
        panels.append(
            Panel("policy_entropy", setting.heading, Axis("policy entropy (nats)"), bands, most, row=len(panels))
        )
    return panels


def having(runs: Runs, *columns: str) -> Runs:
    """The runs that have logged a number under each of these names, by method."""

    def has_all(run: RunData) -> bool:
        return all(name in run.columns and run.columns[name].ndim == 1 for name in columns)

    found = {method: list(filter(has_all, members)) for method, members in runs.items()}
    return {method: members for method, members in found.items() if members}


def _bands(runs: Runs, curve: summaries.Curve) -> dict[str, Band]:
    return {signal: summaries.band(members, curve) for signal, members in runs.items()}


def _arms(run: RunData) -> int:
    return sum(map(len, summaries.arms_of_groups(run)))


SETS: Sequence[tuple[str, str, str, Sequence[str]]] = (
    ("groups", "main", "", model.MAIN),
    ("groups", "others", ", other signals", model.OTHERS),
    ("ablation", "", ", variants of GMC", model.VARIANTS),
    ("gates", "", ", noise gates", model.GATES),
)
"""Sets of signals that share a chart of groups: how the names of its files begin and end, and words for its title."""


def figures(settings: Sequence[Setting]) -> Iterator[Item]:
    """All figures that the runs of one protocol allow, each of a part of the results."""
    for setting in settings:
        yield from of_part(setting.group.condition, (_group_figure(setting, *each) for each in SETS[:2]))
    yield from of_part("comparison", _loss_figures(settings))
    yield from _area_figures(settings)
    yield from of_part("variants", (_group_figure(setting, *each) for setting in settings for each in SETS[2:]))
    yield from of_part("comparison", _telemetry_figures(settings))


def _group_figure(setting: Setting, begin: str, end: str, words: str, signals: Sequence[str]) -> Item:
    name = slug(begin, setting.name, end)
    runs = setting.pick(signals, *NEEDED)
    need = signals if begin == "groups" else signals[1:]
    if not any(signal in runs for signal in need):
        return Omission(name, f"no finished runs of {_names(need)}")
    return group_chart(name, setting, runs, words)


def _loss_figures(settings: Sequence[Setting]) -> Iterator[Item]:
    found: dict[Setting, Runs] = {}
    for setting in settings:
        name = slug("average-loss", setting.name)
        runs = setting.pick((*model.MAIN, *model.OTHERS), *NEEDED)
        if not runs:
            yield Omission(name, f"no finished runs of {_names((*model.MAIN, *model.OTHERS))}")
            continue
        found[setting] = runs
        yield loss_chart(name, {setting: runs})
    if len(found) > 1:
        yield loss_chart("average-loss", found)


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
                shown = {"uniform": setting.uniform, **(_plain_gmc(setting) if signals == model.GATES else {}), **runs}
                found[setting] = {key: relative_area(areas(members), uniform) for key, members in shown.items()}
        if found:
            yield replace(area_chart(name, found), part="comparison" if name == "auc" else "variants")
        elif settings:
            yield Omission(name, f"no condition with finished runs of Uniform and of one of {_names(need)}")


def _plain_gmc(setting: Setting) -> Runs:
    """GMC of the setting that lends its runs of Uniform: the same with other constants, to compare gates with."""
    runs = setting.uniform_source.pick(["gmc"], *NEEDED) if setting.uniform_source else {}
    return {f"GMC, {setting.uniform_source.group.protocol}": runs["gmc"]} if setting.uniform_source and runs else {}


def _telemetry_figures(settings: Sequence[Setting]) -> Iterator[Item]:
    """A figure for each dataset."""
    for dataset, own in grouped(settings, lambda setting: setting.group.dataset or "").items():
        found = {setting: setting.pick(setting.finished) for setting in own}
        name = slug("telemetry", dataset)
        yield telemetry_chart(name, found, title(dataset)) or Omission(
            name, "no finished runs with the column policy_entropy"
        )


def page_charts(
    settings: Sequence[Setting], found: Mapping[str, Areas], overall: Mapping[str, Overall]
) -> dict[str, list[Chart]]:
    """The charts of a page, by section or by the key of a setting; `exploration.page_charts` has those of its own."""
    runs = [setting for setting in settings if setting.kind == CONTROLLED and setting.shown]
    compared = {
        setting: found[setting.key] for setting in runs if setting.key in found and len(found[setting.key].ratios) > 1
    }
    by_section: dict[str, list[Chart]] = {"summary": [], "overall": [], "telemetry": [], "exploration": []}
    if compared:
        ratios = {setting: area.ratios for setting, area in compared.items()}
        seeds = {setting: area.seeds for setting, area in compared.items()}
        by_section["summary"] = [area_chart("areas", ratios, seeds)]
    if overall:
        profiles = {protocol: each.profiles for protocol, each in overall.items()}
        by_section["overall"] = [replace(profile_chart(profiles), few=FEW_RUNS)]
    for setting in runs:
        heading = f"{setting.heading}, {setting.group.protocol}"
        chart = telemetry_chart(f"telemetry-{setting.key}", {setting: setting.shown}, heading)
        by_section["telemetry"] += [replace(chart, rows=1, columns=2, singles=True, few=FEW_RUNS)] if chart else []
        charts = [loss_chart(f"loss-{setting.key}", {setting: setting.shown}), *_group_charts(setting)]
        by_section[setting.key] = [replace(chart, singles=True, few=FEW_RUNS) for chart in charts]
    return by_section


def _group_charts(setting: Setting) -> Iterator[Chart]:
    known = {signal for *_, signals in SETS for signal in signals}
    more = [signal for signal in setting.shown if signal not in known]
    for begin, end, words, signals in (*SETS, ("groups", "more", ", more signals", more)):
        shown = {signal: setting.shown[signal] for signal in signals if signal in setting.shown}
        if shown and (begin == "groups" or list(shown) != ["gmc"]):
            yield group_chart(f"groups-{end or begin}-{setting.key}", setting, shown, words)


def _names(signals: Iterable[str]) -> str:
    return " / ".join(map(title, signals))
