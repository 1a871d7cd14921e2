"""Write docs/mixtures.md anew from the exported runs of the mixture study.

headway run --campaign campaigns/mixture.toml --out lots
headway export lots/mixture --finished --out results/mixture/mixture.parquet
python benchmarks/mixtures.py

Each file is a campaign, with uniform sampling of its own; of runs that are in two, those of the later name count.

The loss of a run is the mean validation loss over the learnable sources at its end. At equal time it is read off the
curve at the step that the run reaches in the time of uniform sampling: steps * cost of uniform / cost of the run, at
most all steps. A cost is the processor time of a step relative to plain steps that the same run has measured. Relative
losses are geometric means over seeds, each seed compared with uniform sampling from the same start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headway.analysis import load_results
from headway.analysis.rundata import RunData
from headway.analysis.stats import Estimate, t_interval
from headway.analysis.table import NOTHING, Cell, Table
from headway.study.protocols.mixtures import FIXED, HELD_OUT, TUNING, Method

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results" / "mixture", ROOT / "docs" / "mixtures.md"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
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
    """What a method does on one mixture, over the seeds that it shares with uniform sampling.

    Attributes:
        samples: the logarithm of the relative loss at equal samples, by seed.
        time: the same at equal time.
        costs: of a step, relative to one of uniform sampling.
    """

    samples: Sequence[float]
    time: Sequence[float]
    costs: Sequence[float]


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
    numbers = ("equal samples", "equal time", "worst, equal time", "share of the oracle's gain", "cost")
    heads = ["method", "in words", *numbers]
    return Table(heads, rows, formats=dict.fromkeys(numbers, ".3f"))


def _summarised(runs: Runs, mixtures: Sequence[str], name: str) -> list[float] | None:
    """The numbers of a row of `summary`; None if the method was not run on every mixture."""
    pairs = [(outcome(runs, mixture, name), outcome(runs, mixture, "oracle")) for mixture in mixtures]
    both = [(own, oracle) for own, oracle in pairs if own is not None and oracle is not None]
    if len(both) < len(mixtures):
        return None
    samples = [float(np.mean(own.samples)) for own, _ in both]
    time = [float(np.mean(own.time)) for own, _ in both]
    gain = float(np.mean([share_of_gain(own, oracle) for own, oracle in both]))
    spent = float(np.median([value for own, _ in both for value in own.costs]))
    return [math.exp(np.mean(samples)), math.exp(np.mean(time)), math.exp(max(time)), gain, spent]


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
        numbers = [half for half in halves if half is not None]
        if name not in FIXED and len(numbers) == 2:
            times, worsts, gains = ([half[place] for half in numbers] for place in (1, 2, 3))
            met = [max(times) < 1, max(worsts) <= WORST, min(gains) >= GAIN]
            cells = [f"{pair[0]:.3f}, {pair[1]:.3f}" for pair in (times, worsts, gains)]
            holds = ", ".join(str(number) for number, holds in enumerate(met, 1) if holds) or "none"
            rows.append((max(worsts), [name, *cells, holds]))
    heads = ["method", "1: equal time", "2: worst, equal time", "3: share of the oracle's gain", "conditions that hold"]
    return Table(heads, [cells for _, cells in sorted(rows, key=lambda row: row[0])[:SHOWN]])


def by_mixture(runs: Runs, mixtures: Sequence[str], what: str) -> Table:
    """Relative losses with intervals: a row for each method, a column for each mixture.

    Args:
        runs: the runs.
        mixtures: the columns.
        what: "samples" or "time".
    """
    rows = []
    for name in known_methods(runs):
        found = [outcome(runs, mixture, name) for mixture in mixtures]
        if name != "uniform" and any(found):
            cells = [NOTHING if each is None else _cell(relative(getattr(each, what))) for each in found]
            rows.append([name, *cells])
    return Table(["method", *mixtures], rows)


def _cell(estimate: Estimate) -> str:
    return estimate.text(".3f") if estimate.n > 1 else f"{estimate.value:.3f}"


def complete(runs: Runs) -> list[str]:
    """The mixtures on which every method of the study has been run."""
    methods = known_methods(runs)
    return [name for name in (*TUNING, *HELD_OUT) if all(outcome(runs, name, method) for method in methods)]


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


def made(text: str) -> str:
    """The page with its generated part made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{render(collect(*map(load_results, sorted(RESULTS.glob('*.parquet')))))}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text("utf-8")), "utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
