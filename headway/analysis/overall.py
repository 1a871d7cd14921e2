"""Signals over several conditions at once, and how long they take to a loss: robust to single bad runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.analysis.columns import Array
from headway.analysis.results import Group, Results
from headway.analysis.stats import (
    Estimate,
    Profile,
    Survival,
    iqm,
    performance_profile,
    probability_of_improvement,
    survival,
    time_to_threshold,
)
from headway.analysis.summaries import average_loss, epochs, tail
from headway.analysis.tables import BASELINE, areas, usable


@dataclass(frozen=True)
class OverallRow:
    """A signal over all conditions in which it and Uniform have runs.

    Attributes:
        method: the signal.
        groups: the conditions.
        iqm: interquartile mean of the area relative to Uniform's mean area in the same condition.
        improvement: probability that a run has a lower area than one of Uniform's in the same condition.
    """

    method: str
    groups: tuple[Group, ...]
    iqm: Estimate
    improvement: Estimate


def relative_areas(results: Results) -> dict[str, dict[Group, Array]]:
    """Areas of all usable controlled runs relative to Uniform's mean area, by signal and condition: [seeds] each.

    Conditions without a run of Uniform, and runs whose area is not finite, are left out.
    """
    found: dict[str, dict[Group, Array]] = {}
    for group, members in results.select(experiment="controlled").groups().items():
        by_method = {method: np.array(list(areas(runs).values())) for method, runs in members.methods().items()}
        baseline = by_method.get(BASELINE, np.empty(0))
        if not len(baseline) or not np.isfinite(baseline).all():
            continue
        for method, values in by_method.items():
            if len(values) and np.isfinite(values).all():
                found.setdefault(method, {})[group] = values / baseline.mean()
    return found


def overall_rows(results: Results, rng: np.random.Generator) -> list[OverallRow]:
    """A line for each signal, with bootstrap intervals over seeds, stratified by condition.

    Args:
        results: runs of one protocol, such as ``results.select(protocol="released")``.
        rng: what the bootstrap draws with.
    """
    found = relative_areas(results)
    rows = []
    for method, by_group in found.items():
        uniform = [found[BASELINE][group] for group in by_group]
        ours = list(by_group.values())
        improvement = probability_of_improvement(ours, uniform, rng)
        rows.append(OverallRow(method, tuple(by_group), iqm(ours, rng), improvement))
    return rows


def profiles(results: Results, rng: np.random.Generator, points: int = 101) -> dict[str, Profile]:
    """The share of each signal's runs whose relative area is at most a threshold, for thresholds over their range."""
    found = relative_areas(results)
    if not found:
        return {}
    scores = np.concatenate([values for by_group in found.values() for values in by_group.values()])
    thresholds = np.linspace(scores.min(), scores.max(), points)
    return {method: performance_profile(list(by_group.values()), thresholds, rng) for method, by_group in found.items()}


def epochs_to(members: Results, loss: float | None = None) -> dict[str, Survival]:
    """How many epochs each signal needs to an average test loss; runs that never get there are censored.

    Args:
        members: runs of one group.
        loss: the loss; if None, the one that Uniform has on average over the last half of its curve.

    Raises:
        ValueError: no loss is named, and there are no runs of Uniform to take it from.
    """
    by_method = {method: usable(runs) for method, runs in members.methods().items()}
    by_method = {method: runs for method, runs in by_method.items() if runs}
    if loss is None:
        if BASELINE not in by_method:
            raise ValueError(f"expected runs of {BASELINE}, or a loss, got neither")
        loss = float(np.mean([tail(average_loss(run), 0.5).mean() for run in by_method[BASELINE]]))
    curves = {
        method: [time_to_threshold(epochs(run), average_loss(run), loss) for run in runs]
        for method, runs in by_method.items()
    }
    horizon = max((time for times in curves.values() for time, _ in times), default=0.0)
    return {
        method: survival([time for time, _ in times], [there for _, there in times], horizon)
        for method, times in curves.items()
    }
