"""The interactive figures of a report, as data for the page's script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.analysis import summaries
from headway.analysis.figures.curves import FEW_RUNS
from headway.analysis.figures.style import MAIN, OTHERS, VARIANTS
from headway.analysis.report import looks, series
from headway.analysis.report.groups import CONTROLLED, EXPLORATION, Setting
from headway.analysis.report.tables import Areas, Overall
from headway.analysis.rundata import RunData
from headway.analysis.summaries import Band, Curve
from headway.study.protocols.names import LEAST_LOSS, METHODS, rank, title

NOISE_SHARES = (("noise_time_share", "time in the noise"), ("noise_reward_share", "reward from the noise"))
"""Columns of exploration runs about the noise, and what they are."""


@dataclass(frozen=True)
class Chart:
    """An interactive figure.

    Attributes:
        id: its name in the page.
        title: its heading.
        caption: what it shows, in a sentence or two.
        data: what the page's script draws; see `assets/figures.js`.
    """

    id: str
    title: str
    caption: str
    data: dict[str, Any]


def average_loss(setting: Setting) -> Chart:
    """Test loss over all arms, every signal."""
    bands = {name: summaries.band(runs, summaries.average_loss) for name, runs in setting.shown.items()}
    return _chart(
        f"loss-{setting.key}",
        f"Test loss, {setting.title}",
        "Mean over all arms, as the area under the curve counts it. Lower is better. " + _interval_words(setting),
        [_panel("all", "", bands, {"label": "test loss (nats)"}, seeds=True)],
        looks.signal_items(bands),
        legend="Signals",
        wide=True,
    )


def group_charts(setting: Setting) -> list[Chart]:
    """Test loss and share of draws of each group, three signals at a time as in the paper."""
    sets = [
        ("main", "", [name for name in MAIN if name in setting.shown]),
        ("others", ", other signals", [name for name in OTHERS if name in setting.shown]),
    ]
    variants = [name for name in VARIANTS if name in setting.shown]
    if len(variants) > 1:
        sets.append(("variants", ", variants of GMC", variants))
    known = {*MAIN, *OTHERS, *VARIANTS}
    sets.append(("more", ", more signals", [name for name in setting.shown if name not in known]))
    return [_group_chart(setting, key, words, names) for key, words, names in sets if names]


def _group_chart(setting: Setting, key: str, words: str, names: Sequence[str]) -> Chart:
    condition = setting.group.condition
    noise = condition == "noise"
    arms = sum(map(len, summaries.arms_of_groups(next(iter(setting.shown.values()))[0])))
    least = [{"value": LEAST_LOSS[place], "key": f"group-{place}"} for place in range(1, 4)] if noise else []
    panels = []
    for name in names:
        runs = setting.shown[name]
        losses = summaries.bands(runs, summaries.group_losses)
        shares = summaries.bands(runs, summaries.group_shares_per_arm)
        panels += [
            _panel(
                name, title(name), _by_group(losses), {"label": "test loss (nats)", "zero": True}, lines=least, row=0
            ),
            _panel(
                name,
                title(name),
                _by_group(shares),
                {"label": f"draws per {'group' if noise else 'class'}", "zero": True, "percent": True},
                lines=[{"value": 1 / arms}],
                row=1,
                peaks=_peaks(runs),
            ),
        ]
    caption = "Above, the test loss of each group of classes; below, how often the signal draws from it. " + (
        "A to D have labels drawn at random among 1, 2, 3 and 4 classes; dotted lines are the least loss that leaves. "
        if noise
        else "Labels are scrambled within groups of 1, 2, 3 and 4 classes. "
    )
    return _chart(
        f"groups-{key}-{setting.key}",
        f"Groups, {setting.title}{words}",
        caption + "The dotted line below is uniform sampling; a triangle marks the peak of a group's visits.",
        panels,
        looks.group_items(condition),
        legend="Groups",
        picks=[{"key": name, "name": title(name)} for name in names],
        columns=len(names),
        paired=True,
    )


def areas(settings: Sequence[Setting], numbers: Mapping[str, Areas]) -> Chart | None:
    """Areas under the test-loss curves relative to Uniform, one panel for each setting; None if nothing is known."""
    found = {setting.key: (setting, numbers[setting.key]) for setting in settings if setting.key in numbers}
    found = {key: pair for key, pair in found.items() if len(pair[1].ratios) > 1}
    if not found:
        return None
    names = sorted({name for _, area in found.values() for name in area.ratios}, key=lambda name: rank(METHODS, name))
    many = len({setting.group.protocol for setting, _ in found.values()}) > 1
    panels = []
    for number, (key, (setting, area)) in enumerate(found.items()):
        panels.append(
            {
                "key": key,
                "title": _heading(setting, many),
                "x": list(range(len(names))),
                "y": {"label": "area / Uniform's"},
                "series": series.dots(area.ratios, names, area.seeds),
                "lines": [{"value": 1.0}],
                "row": number,
            }
        )
    chart = _chart(
        "areas",
        "Area under the test-loss curve, relative to Uniform",
        "Below 1 is better than uniform sampling. Whiskers are 95% intervals of the ratio over seeds (Fieller, paired "
        "by seed). Drag up or down over a panel to zoom.",
        panels,
        looks.signal_items(names),
        legend="Signals",
        columns=2 if len(panels) > 1 else 1,
    )
    chart.data.update(kind="dots", categories=[title(name) for name in names], xname="")
    return chart


def profiles(overall: Mapping[str, Overall]) -> Chart | None:
    """The share of runs that reach each relative area, one panel for each protocol."""
    panels = []
    for protocol, found in overall.items():
        bands = {
            name: Band(each.thresholds, each.share, each.low, each.high, each.n)
            for name, each in found.profiles.items()
        }
        heading = protocol if len(overall) > 1 else ""
        panels.append(_panel(protocol, heading, bands, {"label": "share of runs", "zero": True, "percent": True}))
    if not panels:
        return None
    names = {name for found in overall.values() for name in found.profiles}
    return _chart(
        "profiles",
        "Performance profiles",
        "The share of a signal's runs, over all conditions, whose area relative to Uniform's mean is at most the value "
        "below. Curves farther to the left are better. Bands are 95% bootstrap intervals.",
        panels,
        looks.signal_items(sorted(names, key=lambda name: rank(METHODS, name))),
        legend="Signals",
        columns=min(2, len(panels)),
        wide=True,
        xname="area / Uniform's ≤",
        xlabel="area relative to Uniform's",
    )


def telemetry(setting: Setting) -> Chart | None:
    """Entropy of the policy, and share of parameters under the floor; None if neither was logged."""
    arms = sum(map(len, summaries.arms_of_groups(next(iter(setting.shown.values()))[0])))
    panels: list[dict[str, Any]] = []
    names: set[str] = set()
    most = {"value": math.log(arms), "label": "uniform"}
    for column, label, y, lines in (
        ("policy_entropy", "Policy entropy", {"label": "nats", "zero": True}, [most]),
        ("under_floor", "Parameters under the floor", {"label": "share", "zero": True, "percent": True}, []),
    ):
        bands = column_bands(setting, column)
        if bands:
            panels.append(_panel(column, label, bands, y, lines=lines, row=len(panels)))
            names |= bands.keys()
    if not panels:
        return None
    return _chart(
        f"telemetry-{setting.key}",
        f"Telemetry, {setting.title}, {setting.group.protocol}",
        "How concentrated the choice of arms is, and for signals with moments the share of parameters whose second "
        "moment lies under the floor. " + _interval_words(setting),
        panels,
        looks.signal_items(sorted(names, key=lambda name: rank(METHODS, name))),
        legend="Signals",
        columns=len(panels),
    )


def rewards(settings: Sequence[Setting]) -> Chart | None:
    """Episode returns of exploration methods, one panel for each condition."""
    panels: list[dict[str, Any]] = []
    names: set[str] = set()
    settings = [setting for setting in settings if setting.kind == EXPLORATION]
    many = len({setting.group.protocol for setting in settings}) > 1
    for setting in settings:
        bands = {name: _reward_band(runs) for name, runs in setting.shown.items()}
        y = {"label": "episode return", "zero": True}
        panels.append(_panel(setting.key, _heading(setting, many), bands, y, seeds=True, few=FEW_RUNS))
        names |= bands.keys()
    if not panels:
        return None
    return _chart(
        "rewards",
        "Episode return",
        "Scaled return of finished episodes, averaged in blocks of rollouts. Higher is better. "
        + _single_words(panels),
        panels,
        looks.method_items(sorted(names, key=lambda name: rank(METHODS, name))),
        legend="Methods",
        columns=min(2, len(panels)),
        wide=True,
        xname="step",
        xlabel="environment steps",
    )


def television(settings: Sequence[Setting]) -> Chart | None:
    """How much of their time and of their reward methods get from the noise; None if there is none."""
    panels: list[dict[str, Any]] = []
    names: set[str] = set()
    for setting in settings:
        for column, label in NOISE_SHARES:
            bands = column_bands(setting, column, summaries.reward_steps) if setting.kind == EXPLORATION else {}
            if any(np.nansum(np.abs(band.mean)) > 0 for band in bands.values()):
                y = {"label": label, "percent": True, "zero": True}
                key, heading = f"{setting.key}-{column}", _heading(setting, False)
                panels.append(_panel(key, heading, bands, y, seeds=True, few=FEW_RUNS, row=len(panels)))
                names |= bands.keys()
    if not panels:
        return None
    return _chart(
        "television",
        "The pull of the noise",
        "Share of the steps spent where the observation is noisy, and share of the intrinsic reward earned there. "
        + _single_words(panels),
        panels,
        looks.method_items(sorted(names, key=lambda name: rank(METHODS, name))),
        legend="Methods",
        columns=2,
        xname="step",
        xlabel="environment steps",
    )


def column_bands(setting: Setting, column: str, x: Curve | None = None) -> dict[str, Band]:
    """The curve of a logged column for every method that has it."""
    found = {}
    for name, runs in setting.shown.items():
        having = [run for run in runs if column in run.columns and run.columns[column].ndim == 1]
        if having and setting.kind == CONTROLLED:
            found[name] = summaries.band(having, summaries.column(column))
        elif having and x is not None:
            found[name] = summaries.band(having, _in_blocks(column), x)
    return found


def _in_blocks(column: str) -> Curve:
    """A column of an exploration run, in the same blocks of rollouts as its rewards."""
    return lambda run: summaries.rollout_curve(run, column)


def _reward_band(runs: Sequence[RunData]) -> Band:
    return summaries.band(runs, summaries.return_curve, summaries.reward_steps)


def _by_group(bands: Sequence[Band]) -> dict[str, Band]:
    return {f"group-{place}": band for place, band in enumerate(bands)}


def _peaks(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    """The peak of each group's visits, where all runs are finished and there is a curve; Uniform's mean nothing."""
    is_whole = all(run.finished for run in runs) and len({len(summaries.epochs(run)) for run in runs}) == 1
    if runs[0].method == "uniform" or runs[0].condition == "noise" or not is_whole or runs[0].rows < 3:
        return []
    peaks = enumerate(summaries.drawn_peaks(runs, summaries.FALLS_AT_FIRST.get(runs[0].method, ())))
    return [{"key": f"group-{place}", "x": series.whole([x])[0]} for place, x in peaks if math.isfinite(x)]


def _heading(setting: Setting, many: bool) -> str:
    """The heading of a panel: what differs from panel to panel, and the protocol only if there are several."""
    name = setting.title if setting.group.dataset else title(setting.group.condition) or setting.title
    return f"{name}, {setting.group.protocol}" if many else name


def _interval_words(setting: Setting) -> str:
    seeds = {len(runs) for runs in setting.shown.values()}
    if max(seeds) == 1:
        return "One seed, so there is no interval."
    count = str(max(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    words = f"Bands are 95% t-intervals over {count} seeds."
    return words + " Some runs are not finished." if setting.is_unfinished else words


def _single_words(panels: Sequence[Mapping[str, Any]]) -> str:
    """What is drawn around the means of exploration runs."""
    several = [each for panel in panels for each in panel["series"] if each["n"] > 1]
    if not several:
        return "One seed, so there is no interval."
    if not any(each.get("single") for each in several):
        return "Bands are 95% t-intervals over seeds."
    if all(each.get("single") for each in several):
        return "Thin lines are the single runs; “Seeds” changes them for 95% t-intervals."
    return f"Thin lines are the single runs of fewer than {FEW_RUNS} seeds, bands 95% t-intervals over more."


def _panel(
    key: str,
    heading: str,
    bands: Mapping[str, Band],
    y: Mapping[str, Any],
    *,
    seeds: bool = False,
    few: int = 0,
    lines: Sequence[Mapping[str, Any]] = (),
    row: int = 0,
    peaks: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    x, found = series.curves(bands, seeds=seeds, few=few)
    panel = {"key": key, "title": heading, "x": x, "y": dict(y), "series": found, "row": row}
    return panel | {name: list(value) for name, value in (("lines", lines), ("peaks", peaks)) if value}


def _chart(
    name: str,
    heading: str,
    caption: str,
    panels: Sequence[dict[str, Any]],
    items: Sequence[dict[str, Any]],
    *,
    legend: str,
    picks: Sequence[Mapping[str, Any]] = (),
    columns: int = 1,
    wide: bool = False,
    paired: bool = False,
    xname: str = "epoch",
    xlabel: str = "epoch",
) -> Chart:
    data: dict[str, Any] = {
        "id": name,
        "title": heading,
        "kind": "lines",
        "columns": columns,
        "legend": {"label": legend, "items": list(items)},
        "panels": list(panels),
        "xname": xname,
        "xlabel": xlabel,
        "wide": wide,
        "paired": paired,
    }
    data["seeds"] = any("seeds" in each for panel in panels for each in panel["series"])
    if len(picks) > 1:
        data["picks"] = {"label": "Signals", "items": list(picks)}
    return Chart(name, heading, caption.strip(), data)
