"""Signals over several conditions at once, and how long they take to a loss: robust to single bad runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headway.analysis.columns import Array
from headway.analysis.results import Group, Results
from headway.analysis.stats import (
    Estimate,
    Profile,
    Survival,
    performance_profile,
    probability_of_improvement,
    relative_iqm,
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

    Both are unknown if a run of the signal, or of Uniform in one of its conditions, has diverged.
    """

    method: str
    groups: tuple[Group, ...]
    iqm: Estimate
    improvement: Estimate


def comparable_areas(results: Results) -> dict[str, dict[Group, Array]]:
    """Areas of all usable controlled runs, by signal and condition: [seeds] each, NaN for a run that diverged.

    Conditions without a run of Uniform are left out.
    """
    found: dict[str, dict[Group, Array]] = {}
    for group, members in results.select(experiment="controlled").groups().items():
        by_method = {method: np.array(list(areas(runs).values())) for method, runs in members.methods().items()}
        if len(by_method.get(BASELINE, ())):
            for method, values in by_method.items():
                if len(values):
                    found.setdefault(method, {})[group] = values
    return found


def relative_areas(results: Results) -> dict[str, dict[Group, Array]]:
    """The areas relative to Uniform's mean area in the same condition, by signal and condition: [seeds] each.

    NaN stands for a run that diverged, and for all runs of a condition in which one of Uniform's did.
    """
    found = comparable_areas(results)
    return {
        method: {group: values / found[BASELINE][group].mean() for group, values in by_group.items()}
        for method, by_group in found.items()
    }


def overall_rows(results: Results, rng: np.random.Generator) -> list[OverallRow]:
    """A line for each signal, with bootstrap intervals over seeds, stratified by condition.

    Args:
        results: runs of one protocol, such as ``results.select(protocol="released")``.
        rng: what the bootstrap draws with.
    """
    found = comparable_areas(results)
    rows = []
    for method, by_group in found.items():
        uniform = [found[BASELINE][group] for group in by_group]
        ours = list(by_group.values())
        improvement = probability_of_improvement(ours, uniform, rng)
        iqm = relative_iqm(ours, None if method == BASELINE else uniform, rng)
        rows.append(OverallRow(method, tuple(by_group), iqm, improvement))
    return rows


def profiles(results: Results, rng: np.random.Generator, points: int = 101) -> dict[str, Profile]:
    """The share of each signal's runs whose relative area is at most a threshold, for thresholds over their range.

    A run that diverged reaches none. Conditions in which one of Uniform's did are left out, for all signals: there is
    nothing to be relative to.
    """
    every = relative_areas(results)
    kept = {group for group, values in every.get(BASELINE, {}).items() if np.isfinite(values).all()}
    found = {
        method: {group: values for group, values in by_group.items() if group in kept}
        for method, by_group in every.items()
    }
    found = {method: by_group for method, by_group in found.items() if by_group}
    if not found:
        return {}
    scores = np.concatenate([values for by_group in found.values() for values in by_group.values()])
    scores = scores[np.isfinite(scores)]
    thresholds = np.linspace(scores.min(), scores.max(), points)
    return {method: performance_profile(list(by_group.values()), thresholds, rng) for method, by_group in found.items()}


def epochs_to(members: Results, loss: float | None = None) -> dict[str, Survival]:
    """How many epochs each signal needs to an average test loss; runs that never get there are censored.

    Args:
        members: runs of one group.
        loss: the loss; if None, the one that Uniform has on average over the last half of its curve.

    Returns:
        the times by signal; none at all if the loss is not known because a run of Uniform has diverged.

    Raises:
        ValueError: no loss is named, and there are no runs of Uniform to take it from.
    """
    by_method = {method: usable(runs) for method, runs in members.methods().items()}
    by_method = {method: runs for method, runs in by_method.items() if runs}
    if loss is None:
        if BASELINE not in by_method:
            raise ValueError(f"expected runs of {BASELINE}, or a loss, got neither")
        loss = float(np.mean([tail(average_loss(run), 0.5).mean() for run in by_method[BASELINE]]))
    if math.isnan(loss):
        return {}
    curves = {
        method: [time_to_threshold(epochs(run), average_loss(run), loss) for run in runs]
        for method, runs in by_method.items()
    }
    horizon = max((time for times in curves.values() for time, _ in times), default=0.0)
    return {
        method: survival([time for time, _ in times], [there for _, there in times], horizon)
        for method, times in curves.items()
    }
