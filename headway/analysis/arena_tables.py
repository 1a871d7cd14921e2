"""What the runs of the arena say: each in numbers, and a leaderboard of the methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from headway.analysis.stats import Estimate, iqm, probability_of_improvement
from headway.analysis.summaries import final_return
from headway.analysis.table import NOTHING, Cell, Table
from headway.study.protocols.arena import METHODS, ROOMS

BASELINE = "ppo"
LAST = 0.1
"""The share of a run, at its end, over which it is told how often the goal is reached ..."""
SOLVED = 0.5
"""... and how often that has to be for a room to count as solved."""
SIGNED = ("gain", "iac")
"""Bonuses that reward progress, and are negative where predictions get worse."""


@dataclass(frozen=True)
class Summary:
    """One run in numbers.

    Attributes:
        preference: the mean bonus per step in the noise over that outside, over the whole run; 1 is indifference. NaN
            if the agent met no noise, or the bonus can be negative, as progress can, so that a ratio says nothing.
        noise: the share of time in the noise.
        covered: the share of places that were visited.
        returned: the mean return of the last episodes, in the room's own unit; NaN if none had ended.
        reached: the share of the last episodes that reached the goal.
        first: steps up to the first goal; NaN if there was none.
        steps: of the run.
        seconds: that the run took.
    """

    preference: float
    noise: float
    covered: float
    returned: float
    reached: float
    first: float
    steps: float
    seconds: float


Strata = Mapping[str, Sequence[Summary]]
"""Runs of one method by room."""


def summarise(run: RunData) -> Summary:
    """A finished run in numbers."""
    columns = run.columns
    time = columns["noise_time_share"]
    inside, outside = _weighted(columns["bonus_noise"], time), _weighted(columns["bonus_quiet"], 1 - time)
    has_negative = any((columns[name] < 0).any() for name in ("bonus_noise", "bonus_quiet"))
    last = max(1, round(LAST * run.rows))
    before = -last - 1 if run.rows > last else 0
    episodes, goals = (float(columns[name][-1] - columns[name][before]) for name in ("episodes", "goals"))
    steps = np.diff(columns["env_steps"], prepend=0)
    return Summary(
        preference=inside / outside if outside > 0 and not has_negative and run.method not in SIGNED else np.nan,
        noise=float(time.mean()),
        covered=float(columns["covered"][-1]),
        returned=final_return(run),
        reached=goals / episodes if episodes else 0.0,
        first=float(columns["first_goal"][-1]) or np.nan,
        steps=float(columns["env_steps"][-1]),
        seconds=float((steps / columns["steps_per_second"]).sum()),
    )


def _weighted(values: np.ndarray, weights: np.ndarray) -> float:
    """The mean of values with weights; rollouts with weight zero have no value."""
    there = weights > 0
    return float(np.average(values[there], weights=weights[there])) if there.any() else np.nan


def by_method(results: Results, rooms: Iterable[str] | None = None) -> dict[str, Strata]:
    """The finished runs of the arena, in some rooms, by method and room, methods in the arena's order."""
    wanted = set(ROOMS if rooms is None else rooms)
    found: dict[str, dict[str, list[Summary]]] = {}
    for run in results.select(experiment="arena").finished():
        if run.condition in wanted:
            found.setdefault(run.method, {}).setdefault(run.condition, []).append(summarise(run))
    known = list(METHODS)
    order = sorted(found, key=lambda name: (known.index(name) if name in known else len(known), name))
    return {name: found[name] for name in order}


def _scores(strata: Strata, number: str) -> dict[str, list[float]]:
    """Finite scores by room; rooms without any are left out."""
    found = {
        room: [value for each in runs if np.isfinite(value := getattr(each, number))] for room, runs in strata.items()
    }
    return {room: values for room, values in found.items() if values}


def middle(strata: Strata, number: str) -> Estimate | None:
    """The interquartile mean of a number of `Summary` over rooms and seeds, with its interval."""
    scores = list(_scores(strata, number).values())
    return iqm(scores, np.random.default_rng(0)) if scores else None


def improvement(ours: Strata, theirs: Strata | None, number: str, lower_is_better: bool = False) -> Estimate | None:
    """How likely a run of ours is better than one of theirs, over the rooms that both have; None if there is none."""
    first, second = _scores(ours, number), _scores(theirs or {}, number)
    rooms = [room for room in first if room in second]
    if not rooms:
        return None
    one, two = ([scores[room] for room in rooms] for scores in (first, second))
    return probability_of_improvement(one, two, np.random.default_rng(0), lower_is_better)


def text(estimate: Estimate | None) -> str:
    """An estimate as a cell of a table; a dash where there is none."""
    return NOTHING if estimate is None or not np.isfinite(estimate.value) else estimate.text(".2f")


def leaderboard(results: Results, rooms: Iterable[str] | None = None) -> Table:
    """The methods, by coverage: interquartile means over rooms and seeds, with 95% intervals."""
    methods = by_method(results, rooms)
    ranked = []
    for name, strata in methods.items():
        runs = [run for own in strata.values() for run in own]
        covered = middle(strata, "covered")
        other = None if name == BASELINE else methods.get(BASELINE)
        row: list[Cell] = [
            name,
            len(runs),
            text(covered),
            text(improvement(strata, other, "covered")),
            text(middle(strata, "preference")),
            float(np.mean([run.noise for run in runs])),
            float(np.nanmean([run.returned for run in runs])),
            f"{sum(run.reached >= SOLVED for run in runs)} of {len(runs)}",
            float(np.median([run.seconds for run in runs])),
        ]
        ranked.append((-covered.value if covered else 0.0, row))
    columns = (
        *("method", "runs", "covered", "better than PPO", "noise preference", "time in noise", "return"),
        *("solved", "seconds"),
    )
    rows = [row for _, row in sorted(ranked, key=lambda pair: pair[0])]
    return Table(columns, rows, "Arena", "arena", {"time in noise": ".0%", "return": ".2f", "seconds": ".1f"})
