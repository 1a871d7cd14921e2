"""What the mixture study says: losses relative to uniform sampling at equal samples and at equal time.

The loss of a run is the mean validation loss over the learnable sources at its end. At equal time it is read off the
curve at the step that the run reaches in the time of uniform sampling: steps * cost of uniform / cost of the run, at
most all steps. A cost is the processor time of a step relative to plain steps that the same run has measured. Relative
losses are geometric means over seeds, each seed compared with uniform sampling from the same start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from headway.analysis.charts.model import MAP, SIGNALS, Axis, Chart, Line, Panel, numbers
from headway.analysis.rundata import RunData
from headway.analysis.stats import Estimate, t_interval
from headway.analysis.table import NOTHING, Cell, Table
from headway.runs.text import count
from headway.study.protocols.mixtures import FIXED, HELD_OUT, TUNING, Method

NEEDED = ("step", "loss", "seconds", "plain_seconds")
"""The metrics that a run must have."""
SHORT = ("method", "equal samples", "equal time", "worst, equal time", "cost")
"""The columns of `summary` that a terminal has room for."""

Runs = Mapping[tuple[str, str, int], tuple[RunData, RunData | None]]
"""Mixture, method and seed -> run, and uniform sampling with the same seed in its campaign, if there is such a run."""


def final_loss(run: RunData) -> float:
    """The loss after all samples."""
    return float(run.columns["loss"][-1])


def cost(run: RunData) -> float:
    """The time of a step relative to a plain one: the median over the validations of the run."""
    return float(np.median(run.columns["seconds"] / run.columns["plain_seconds"]))


def loss_at_equal_time(run: RunData, uniform: RunData) -> float:
    """The loss when the time of uniform sampling is over, between two validations by a straight line."""
    steps = run.columns["step"].astype(float)
    return float(np.interp(steps[-1] * min(1.0, cost(uniform) / cost(run)), steps, run.columns["loss"]))


@dataclass(frozen=True)
class Outcome:
    """What a method does on one mixture, over the seeds that it shares with uniform sampling."""

    samples: Sequence[float]  # the logarithm of the relative loss at equal samples, by seed
    time: Sequence[float]  # the same at equal time
    costs: Sequence[float]  # of a step, relative to one of uniform sampling


def collect(*campaigns: Iterable[RunData]) -> Runs:
    """The finished runs of the study, out of one or several campaigns; of runs that are there twice, the later ones.

    The load of a machine changes the cost of all methods, so a run is compared with uniform sampling of its campaign.
    """
    found: dict[tuple[str, str, int], tuple[RunData, RunData | None]] = {}
    for campaign in campaigns:
        own = {
            (run.spec.condition, run.method, run.seed): run
            for run in campaign
            if run.spec.experiment == "mixture" and run.finished
        }
        found |= {key: (run, own.get((key[0], "uniform", key[2]))) for key, run in own.items()}
    return found


def outcome(runs: Runs, mixture: str, method: str) -> Outcome | None:
    """Compare a method with uniform sampling; None without a common seed."""
    found = [runs[key] for key in sorted(runs) if key[:2] == (mixture, method)]
    pairs = [(run, uniform) for run, uniform in found if uniform is not None]
    if not pairs:
        return None
    return Outcome(
        [math.log(final_loss(run) / final_loss(uniform)) for run, uniform in pairs],
        [math.log(loss_at_equal_time(run, uniform) / final_loss(uniform)) for run, uniform in pairs],
        [cost(run) / cost(uniform) for run, uniform in pairs],
    )


def relative(logarithms: Sequence[float]) -> Estimate:
    """The geometric mean of relative losses, with an interval over seeds."""
    found = t_interval(logarithms)
    return Estimate(math.exp(found.value), math.exp(found.low), math.exp(found.high), found.n)


def share_of_gain(method: Outcome, oracle: Outcome) -> float:
    """How much of the oracle's fall of the logarithm of the loss a method gets, at equal samples."""
    return float(np.mean(method.samples) / np.mean(oracle.samples))


def known_methods(runs: Runs) -> list[str]:
    """The methods that were run, fixed shares first, the others by name."""
    found = dict.fromkeys(method for _, method, _ in runs)
    fixed = [name for name in FIXED if name in found]
    return fixed + sorted(set(found) - set(fixed))


def summary(runs: Runs, mixtures: Sequence[str]) -> Table:
    """One row for each method over some mixtures: those that all of them have been run on."""
    found = [(name, _summarised(runs, mixtures, name)) for name in known_methods(runs) if name != "uniform"]
    ordered = sorted(((name, own) for name, own in found if own), key=lambda pair: pair[1][1])
    rows: list[list[Cell]] = [[name, Method.read(name).title(), *own] for name, own in ordered]
    figures = ("equal samples", "equal time", "worst, equal time", "share of the oracle's gain", "cost")
    heads = ["method", "in words", *figures]
    what = "Loss relative to uniform sampling (lower is better)"
    return Table(heads, rows, what, "mixtures", dict.fromkeys(figures, ".3f"))


def _summarised(runs: Runs, mixtures: Sequence[str], name: str) -> list[float] | None:
    """The numbers of a row of `summary`; None if the method was not run on every mixture.

    The share of the oracle's gain is NaN where the oracle was not run on every mixture.
    """
    found = [own for mixture in mixtures if (own := outcome(runs, mixture, name))]
    oracles = [oracle for mixture in mixtures if (oracle := outcome(runs, mixture, "oracle"))]
    if len(found) < len(mixtures):
        return None
    samples, time = ([float(np.mean(getattr(own, what))) for own in found] for what in ("samples", "time"))
    is_known = len(oracles) == len(mixtures)
    gain = float(np.mean(list(map(share_of_gain, found, oracles)))) if is_known else math.nan
    spent = float(np.median([value for own in found for value in own.costs]))
    return [math.exp(np.mean(samples)), math.exp(np.mean(time)), math.exp(max(time)), gain, spent]


def conclusion(runs: Runs) -> str:
    """How the method does that is best at equal time, in words; nothing without one beside the fixed shares."""
    there = complete(runs)
    rows = [row for row in summary(runs, there).rows if row[0] not in FIXED] if there else []
    if not rows:
        return ""
    name, _, samples, time, worst, gain, spent = rows[0]
    seeds = min(len(each.time) for mixture in there if (each := outcome(runs, mixture, str(name))))
    text = (
        f"Over {count(len(there), 'mixture')} with {count(seeds, 'seed')}, {name} ends with {time:.2f} times the loss "
        f"of uniform sampling at equal time ({worst:.2f} times on its worst mixture) and {samples:.2f} times at equal "
        f"samples; lower is better. Its step takes {spent:.2f} times as long."
    )
    known = isinstance(gain, float) and math.isfinite(gain)
    return f"{text} It gets {gain:.0%} of the gain of an oracle that knows the noise." if known else text


def chart(runs: Runs, name: str = "mixtures") -> Chart:
    """Relative losses of the methods that are best at equal time, over mixtures, at equal samples and at equal time."""
    there = complete(runs)
    methods = [str(row[0]) for row in summary(runs, there).rows[:SHOWN]]
    looks = list(SIGNALS.values())
    return Chart(
        name,
        "Loss relative to uniform sampling",
        "Validation loss relative to uniform sampling with the same seed (1; lower is better), bold where the 95% "
        f"interval over seeds does not hold 1. At most {SHOWN} methods, those that are best at equal time.",
        {method: replace(looks[place % len(looks)], name=method) for place, method in enumerate(methods)},
        partial(_panels, runs, there, methods),
        legend="Methods",
        kind=MAP,
        x=("mixture", "mixture"),
        categories=there,
        columns=2,
        wide=True,
        height=min(4.0, 1.05 + 0.27 * len(methods)),
        page_caption="Validation loss relative to uniform sampling with the same seed (1; lower is better), with 95% "
        f"intervals over seeds. At most {SHOWN} methods, those that are best at equal time.",
    )


def _panels(runs: Runs, mixtures: Sequence[str], methods: Sequence[str]) -> list[Panel]:
    found = {name: [outcome(runs, mixture, name) for mixture in mixtures] for name in methods}
    panels = []
    for row, what in enumerate(("samples", "time")):
        series = {
            name: numbers([relative(getattr(each, what)) if each else None for each in own])
            for name, own in found.items()
        }
        panels.append(Panel(what, f"at equal {what}", Axis("loss / uniform's"), series, [Line(1.0)], row=row))
    return panels


WORST, GAIN, SHOWN = 1.02, 1 / 3, 10
"""The most a default may lose on a mixture, the least share of the oracle's gain, and the rows of `conditions`."""


def conditions(runs: Runs) -> Table:
    """The methods of the best worst case at equal time over both halves, and which conditions each meets in both.

    Conditions: (1) better than uniform at equal time in the mean, (2) at most `WORST` on any mixture at equal time,
    (3) at least `GAIN` of the oracle's gain at equal samples. Each cell has the tuning and the held-out half.
    """
    rows: list[tuple[float, list[Cell]]] = []
    for name in known_methods(runs):
        halves = [_summarised(runs, names, name) for names in (TUNING, HELD_OUT)]
        known = [half for half in halves if half is not None]
        if name not in FIXED and len(known) == 2:
            times, worsts, gains = ([half[place] for half in known] for place in (1, 2, 3))
            met = [max(times) < 1, max(worsts) <= WORST, min(gains) >= GAIN]
            cells = [f"{pair[0]:.3f}, {pair[1]:.3f}" for pair in (times, worsts, gains)]
            holds = ", ".join(str(number) for number, holds in enumerate(met, 1) if holds) or "none"
            rows.append((max(worsts), [name, *cells, holds]))
    heads = ["method", "1: equal time", "2: worst, equal time", "3: share of the oracle's gain", "conditions that hold"]
    return Table(heads, [cells for _, cells in sorted(rows, key=lambda row: row[0])[:SHOWN]])


def by_mixture(runs: Runs, mixtures: Sequence[str], what: str) -> Table:
    """Relative losses at equal "samples" or "time": a row for each method, a column for each mixture."""
    rows = []
    for name in known_methods(runs):
        found = [outcome(runs, mixture, name) for mixture in mixtures]
        if name != "uniform" and any(found):
            known = [relative(getattr(each, what)) if each else None for each in found]
            rows.append([name, *(each.text(".3f") if each else NOTHING for each in known)])
    return Table(["method", *mixtures], rows, f"Each mixture, at equal {what}", f"mixtures-{what}")


def complete(runs: Runs) -> list[str]:
    """The mixtures on which every method of the study has been run."""
    methods = known_methods(runs)
    every = (*TUNING, *HELD_OUT) if methods else ()
    return [name for name in every if all(outcome(runs, name, method) for method in methods)]


def render(runs: Runs) -> str:
    """The generated part of docs/mixtures.md."""
    there = complete(runs)
    seeds = [len({seed for own, name, seed in runs if (own, name) == (mixture, "uniform")}) for mixture in there]
    of = f"{len(there)} of {len(TUNING) + len(HELD_OUT)} mixtures are complete"
    lines = [f"{len(runs)} runs; {of}, with {min(seeds, default=0)} to {max(seeds, default=0)} seeds each."]
    for title, names in (("Tuning mixtures", TUNING), ("Held-out mixtures", HELD_OUT)):
        chosen = [name for name in names if name in there]
        if chosen:
            lines += [f"### {title}", f"Mean over {', '.join(chosen)}:", summary(runs, chosen).markdown()]
    if len(there) == len(TUNING) + len(HELD_OUT):
        text = f"Tuning half, held-out half; the {SHOWN} methods whose worst mixture at equal time is best."
        lines += ["### The three conditions", text, conditions(runs).markdown()]
    if there:
        lines += ["### Each mixture, at equal samples", by_mixture(runs, there, "samples").markdown()]
        lines += ["### Each mixture, at equal time", by_mixture(runs, there, "time").markdown()]
    return "\n\n".join(lines) + "\n"
