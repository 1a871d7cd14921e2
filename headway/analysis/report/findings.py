"""What runs show, in sentences with their numbers, and the figure that shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headway.analysis.charts.model import Chart
from headway.analysis.report.tables import Areas
from headway.analysis.settings import Setting
from headway.analysis.stats import Estimate
from headway.analysis.tables import BASELINE, MethodRow
from headway.runs.text import count
from headway.study.protocols.names import title

MOST_SENTENCES = 3
"""Settings of which the page's first section speaks."""


@dataclass(frozen=True)
class Findings:
    """What a page opens with.

    Attributes:
        sentences: what happened, in words.
        charts: the figure that shows what the first sentence says; empty if there is none.
    """

    sentences: Sequence[str] = ()
    charts: Sequence[Chart] = field(default_factory=tuple)


def findings_of(
    settings: Sequence[Setting],
    areas: Mapping[str, Areas],
    rewards: Mapping[str, Mapping[str, Estimate]],
    charts: Mapping[str, Sequence[Chart]],
) -> Findings:
    """The most telling settings in sentences: noise first, then other controlled settings, then exploration.

    Args:
        settings: what was run.
        areas: the numbers of the controlled study, by the key of the setting.
        rewards: the returns of exploration, by the key of the setting and method.
        charts: the figures, by section or by the key of a setting.
    """
    found = [(setting, text) for setting in settings if (text := _sentence(setting, areas, rewards))]
    found.sort(key=lambda each: (each[0].key not in areas, each[0].group.condition != "noise"))
    found = found[:MOST_SENTENCES]
    if not found:
        return Findings()
    first = found[0][0].key
    shown = [chart for chart in charts.get(first, ()) if chart.id.startswith("groups")] or charts.get(first, ())
    several = len(found) > 1
    return Findings([f"{setting.title}: {text}" if several else text for setting, text in found], shown[:1])


def _sentence(setting: Setting, areas: Mapping[str, Areas], rewards: Mapping[str, Mapping[str, Estimate]]) -> str:
    if setting.key in rewards:
        return _about_returns(rewards[setting.key])
    return conclusion(areas[setting.key].rows) if setting.key in areas else ""


def _about_returns(rewards: Mapping[str, Estimate]) -> str:
    """Which method has the highest return at the end; nothing if there is none to compare with."""
    known = {method: reward for method, reward in rewards.items() if reward.value == reward.value}
    if len(known) < 2:
        return ""
    best, worst = max(known, key=lambda name: known[name].value), min(known, key=lambda name: known[name].value)
    if known[best].value == known[worst].value:
        return f"All {len(known)} methods end with a return of {known[best].value:.2f}."
    seeds = count(known[best].n, "seed")
    return (
        f"{title(best)} ends with the highest return, {known[best].value:.2f} over {seeds}; "
        f"{title(worst)} ends with the lowest, {known[worst].value:.2f}."
    )


def conclusion(rows: Sequence[MethodRow]) -> str:
    """What the runs of one setting show of GMC and Curiosity; nothing without them and runs of Uniform."""
    by_signal = {row.method: row for row in rows}
    gmc, curiosity = by_signal.get("gmc"), by_signal.get("curiosity")
    if BASELINE not in by_signal or not gmc or not curiosity or not gmc.relative or not curiosity.relative:
        return ""
    against_uniform = "better than uniform" if gmc.relative.value < 1 else "worse than uniform"
    if gmc.relative.covers(1):
        against_uniform = "not distinguishable from uniform here"
    if gmc.group.condition != "noise":
        return (
            f"GMC has {gmc.relative.value:.2f} times the loss area of uniform sampling (lower is better), Curiosity "
            f"{curiosity.relative.value:.2f} times; GMC is {against_uniform}."
        )
    clean, noisy = gmc.shares[0].value, gmc.shares[3].value
    drawn = "not drawn to noise" if noisy < 0.35 else "drawn to noise too"  # uniform would be 0.25
    return (
        f"Group D has the noisiest labels. Curiosity, the reward for surprise, spends {curiosity.shares[3].value:.0%} "
        f"of its last draws there, at {curiosity.relative.value:.2f} times the loss area of uniform sampling (lower is "
        f"better). GMC spends {noisy:.0%} there and {clean:.0%} on the clean group A, at {gmc.relative.value:.2f} "
        f"times: {drawn}, and {against_uniform}."
    )
