"""What the runs of the arena say: a leaderboard, what GMC changes, and noise preference against coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from headway.analysis.charts.drawing import COLUMN_WIDTH, new_figure
from headway.analysis.charts.model import BARS, INK, METHODS, Axis, Chart, Line, Panel, numbers, styles_for
from headway.analysis.results import Results
from headway.analysis.rundata import RunData, grouped
from headway.analysis.stats import Estimate, iqm, probability_of_improvement
from headway.analysis.summaries import Band, final_return
from headway.analysis.table import NOTHING, Cell, Table
from headway.runs.text import count
from headway.study.protocols.arena import METHODS as ALL_METHODS
from headway.study.protocols.arena import ROOMS, TELEVISIONS
from headway.study.protocols.names import rank

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

BASELINE = "ppo"
NEEDED = (
    *("env_steps", "episodes", "episode_return", "goals", "first_goal", "covered"),
    *("bonus_noise", "bonus_quiet", "noise_time_share", "steps_per_second"),
)
"""The metrics that a run must have."""
SHORT = ("method", "covered", "noise preference", "time in noise", "solved")
"""The columns of the leaderboard that a terminal has room for."""
LAST = 0.1
"""The share of a run, at its end, over which it is told how often the goal is reached ..."""
SOLVED = 0.5
"""... and how often that has to be for a room to count as solved."""
SIGNED = ("gain", "iac")
"""Bonuses that reward progress, and are negative where predictions get worse."""
PAGE_COLOURS = {False: ("#FFFFFF", INK, "#E4E4E4"), True: ("#14161A", "#E8E8E8", "#33363D")}
"""Ground, ink and grid of a figure, light and dark."""


KINDS: Mapping[str, Sequence[str]] = {
    "television rooms": list(TELEVISIONS),
    "exploration rooms without a television": [
        room for room in ROOMS if room not in TELEVISIONS and room != "chain" and not room.endswith("-tv")
    ],
    "exploration rooms with a television": [room for room in ROOMS if room.endswith("-tv")],
}
"""Rooms whose runs are pooled."""


@dataclass(frozen=True)
class Summary:
    """One run in numbers."""

    # the mean bonus per step in the noise over that outside, over the whole run; 1 is indifference. NaN if the agent
    # met no noise, or the bonus can be negative, as progress can, so that a ratio says nothing
    preference: float
    noise: float  # the share of time in the noise
    covered: float  # the share of places that were visited
    returned: float  # the mean return of the last episodes, in the room's own unit; NaN if none had ended
    reached: float  # the share of the last episodes that reached the goal
    first: float  # steps up to the first goal; NaN if there was none
    steps: float  # of the run
    seconds: float  # that the run took


Strata = Mapping[str, Sequence[Summary]]
"""Runs of one method by room."""


def summarise(run: RunData) -> Summary:
    """A finished run in numbers."""
    columns = run.columns
    time = columns["noise_time_share"]
    inside, outside = _weighted(columns["bonus_noise"], time), _weighted(columns["bonus_quiet"], 1 - time)
    is_negative = any((columns[name] < 0).any() for name in ("bonus_noise", "bonus_quiet"))
    last = max(1, round(LAST * run.rows))
    before = -last - 1 if run.rows > last else 0
    episodes, goals = (float(columns[name][-1] - columns[name][before]) for name in ("episodes", "goals"))
    steps = np.diff(columns["env_steps"], prepend=0)
    return Summary(
        preference=inside / outside if outside > 0 and not is_negative and run.method not in SIGNED else np.nan,
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
    own = results.select(experiment="arena", condition=ROOMS if rooms is None else list(rooms)).finished()
    found = {
        method: {room: list(map(summarise, same)) for room, same in grouped(runs, lambda run: run.condition).items()}
        for method, runs in grouped(own, lambda run: run.method).items()
    }
    return {name: found[name] for name in sorted(found, key=lambda name: rank(dict.fromkeys(ALL_METHODS, ""), name))}


def _scores(strata: Strata, read: Callable[[Summary], float]) -> dict[str, list[float]]:
    """Finite scores by room; rooms without any are left out."""
    found = {room: [value for each in runs if np.isfinite(value := read(each))] for room, runs in strata.items()}
    return {room: values for room, values in found.items() if values}


def _middle(strata: Strata, read: Callable[[Summary], float]) -> Estimate | None:
    """The interquartile mean over rooms and seeds, with its interval."""
    scores = list(_scores(strata, read).values())
    return iqm(scores, np.random.default_rng(0)) if scores else None


def improvement(
    ours: Strata, theirs: Strata | None, read: Callable[[Summary], float], lower_is_better: bool = False
) -> Estimate | None:
    """How likely a run of ours is better than one of theirs, over the rooms that both have; None if there is none."""
    first, second = _scores(ours, read), _scores(theirs or {}, read)
    rooms = [room for room in first if room in second]
    if not rooms:
        return None
    one, two = ([scores[room] for room in rooms] for scores in (first, second))
    return probability_of_improvement(one, two, np.random.default_rng(0), lower_is_better)


_preference, _covered = attrgetter("preference"), attrgetter("covered")


def _returned(run: Summary) -> float:
    return run.returned if np.isfinite(run.returned) else 0.0  # no episode has ended


def _text(estimate: Estimate | None, form: str = ".2f") -> str:
    return NOTHING if estimate is None or not np.isfinite(estimate.value) else estimate.text(form)


def leaderboard(
    results: Results, rooms: Iterable[str] | None = None, by: Callable[[Summary], float] = _covered
) -> Table:
    """The methods by interquartile means over rooms and seeds, with 95% intervals; where equal, by solved runs."""
    methods = by_method(results, rooms)
    ranked = []
    for name, strata in methods.items():
        runs, rank = _runs(strata), _middle(strata, by)
        other = None if name == BASELINE else methods.get(BASELINE)
        row: list[Cell] = [
            name,
            len(runs),
            _text(_middle(strata, _covered)),
            _text(improvement(strata, other, by)),
            _text(_middle(strata, _preference)),
            float(np.mean([run.noise for run in runs])),
            _text(_middle(strata, _returned)),
            _solved_of(runs),
            float(np.median([run.seconds for run in runs])),
        ]
        share = sum(run.reached >= SOLVED for run in runs) / len(runs)
        ranked.append((-round(rank.value, 2) if rank else 0.0, -share, row))
    head = ("method", "runs", "covered", "better than PPO", "noise preference", "time in noise", "return", "solved")
    rows = [row for *_, row in sorted(ranked, key=lambda rank_and_row: rank_and_row[:2])]
    return Table((*head, "seconds"), rows, "Arena", "arena", {"time in noise": ".0%", "seconds": ".1f"})


def common_rooms(results: Results) -> list[str]:
    """The rooms that every method was run in, so that a mean over them compares methods; all if there are none."""
    methods = by_method(results).values()
    every = [room for room in ROOMS if any(room in strata for strata in methods)]
    return [room for room in every if all(room in strata for strata in methods)] or every


def conclusion(results: Results) -> str:
    """Which method covers most, and which rewards noise most and least, in words; nothing without two methods."""
    methods = by_method(results, common_rooms(results))
    covered, preference = (
        {name: mean.value for name, strata in methods.items() if (mean := _middle(strata, read))}
        for read in (_covered, _preference)
    )
    if len(covered) < 2:
        return ""
    best, worst = (pick(covered, key=lambda name: covered[name]) for pick in (max, min))
    other = BASELINE if BASELINE in covered and best != BASELINE else worst
    rooms = {room for strata in methods.values() for room in strata}
    text = f"Over {count(len(rooms), 'room')}, {best} covers most of the places, {covered[best]:.0%}"
    text += f" ({other}: {covered[other]:.0%})."
    if len(preference) > 1:
        most, least = (pick(preference, key=lambda name: preference[name]) for pick in (max, min))
        text += f" Per step, the bonus of {most} is {preference[most]:.2g} times as large in the noise as elsewhere"
        text += f" (the most), that of {least} {preference[least]:.2g} times (the least)."
    return text


def chart(results: Results, name: str = "arena") -> Chart:
    """Noise preference and coverage of each method, with 95% intervals; in print one against the other, see `draw`."""
    rooms = common_rooms(results)
    methods = by_method(results, rooms)
    return Chart(
        name,
        "Noise preference and coverage",
        "Noise preference against the share of places covered; interquartile means over rooms and seeds, with 95% "
        "intervals. An arrow leads from a predictor scored by its error to the same scored by GMC.",
        styles_for(methods, METHODS),
        partial(_panels, methods),
        legend="Methods",
        kind=BARS,
        x=("", "method"),
        categories=list(methods),
        wide=True,
        page_caption="Noise preference is the mean bonus per step in the noise over that elsewhere (1 is "
        "indifference). Interquartile means over the rooms that all methods share and over seeds, with 95% intervals.",
        figure=partial(draw, results, False, rooms),
    )


def _panels(methods: Mapping[str, Strata]) -> list[Panel]:
    def series(read: Callable[[Summary], float]) -> dict[str, Band]:
        found = {name: _middle(strata, read) for name, strata in methods.items()}
        return {name: numbers([each], [place]) for place, (name, each) in enumerate(found.items()) if each}

    preference, covered = Axis("bonus in the noise over elsewhere", log=True), Axis("share of places", percent=True)
    return [
        Panel("Noise preference", "Noise preference", preference, series(_preference), [Line(1.0)]),
        Panel("Covered", "Covered", covered, series(_covered), row=1),
    ]


def effect_of_gmc(results: Results) -> Table:
    """Each predictor scored by its error and by GMC, in the rooms with noise."""
    methods = by_method(results, [room for room in TELEVISIONS if room != "house-none"])
    rows: list[list[Cell]] = []
    for name, strata in methods.items():
        gmc = methods.get(f"{name}+gmc")
        if gmc is not None:
            both = (_text(_middle(each, _preference)) for each in (strata, gmc))
            lower = improvement(gmc, strata, _preference, lower_is_better=True)
            rows.append([name, *both, _text(lower), _text(improvement(gmc, strata, _covered))])
    return Table(
        ("predictor", "preference, error", "preference, GMC", "GMC prefers noise less", "GMC covers more"), rows
    )


def solved_with_gmc(results: Results) -> Table:
    """How many runs each predictor solves in each kind of room, scored by its error and by GMC."""
    kinds = {title: by_method(results, rooms) for title, rooms in KINDS.items()}
    rows: list[list[Cell]] = []
    for name in by_method(results):
        pairs = [[_runs(methods.get(each, {})) for each in (name, f"{name}+gmc")] for methods in kinds.values()]
        if any(all(pair) for pair in pairs):
            rows.append([name, *(" → ".join(map(_solved_of, pair)) if all(pair) else NOTHING for pair in pairs)])
    return Table(("predictor", *kinds), rows)


def _runs(strata: Strata) -> list[Summary]:
    return [run for own in strata.values() for run in own]


def _solved_of(runs: Sequence[Summary]) -> str:
    return f"{sum(run.reached >= SOLVED for run in runs)} of {len(runs)}"


def preferences(results: Results) -> Table:
    """The interquartile mean of noise preference in each room with noise that there are runs of."""
    methods = by_method(results, [room for room in TELEVISIONS if room != "house-none"])
    rooms = [room for room in TELEVISIONS if any(room in strata for strata in methods.values())]
    rows: list[list[Cell]] = [
        [name, *(_text(_middle({room: strata[room]}, _preference)) if room in strata else NOTHING for room in rooms)]
        for name, strata in methods.items()
        if name != BASELINE
    ]
    return Table(("method", *(TELEVISIONS[room].removeprefix("House, ") for room in rooms)), rows)


def first_goals(results: Results, room: str = "chain") -> Table:
    """How soon each method first reached the goal of a room; runs that did not count as longer than all others."""
    rows: list[list[Cell]] = []
    for name, strata in by_method(results, [room]).items():
        firsts = np.array([run.first for run in strata[room]])
        reached = np.isfinite(firsts)
        longest = max(run.steps for run in strata[room])
        median = float(np.median(np.where(reached, firsts, np.inf)))
        shown = f"{median:,.0f}" if np.isfinite(median) else f"over {longest:,.0f}"
        rows.append([name, f"{reached.sum()} of {len(firsts)}", shown, longest])
    columns = ("method", "runs that reach the end", "median steps", "steps of a run")
    return Table(columns, rows, formats={"steps of a run": ",.0f"})


def missing(results: Results) -> str:
    """What of the whole arena was not run yet, in words."""
    found = {(run.condition, run.method) for run in results.select(experiment="arena").finished()}
    lacks = grouped(ROOMS, lambda room: tuple(name for name in ALL_METHODS if (room, name) not in found))
    parts = [
        f"{'no method' if len(lack) == len(ALL_METHODS) else ', '.join(lack)} in {', '.join(rooms)}"
        for lack, rooms in lacks.items()
        if lack
    ]
    return f"Not run: {'; '.join(parts)}." if parts else "All methods were run in all rooms."


def tables(results: Results) -> list[Table]:
    """All tables that have rows, with their titles."""
    parts = {
        "Leaderboard, television rooms": leaderboard(results, TELEVISIONS),
        "Error or GMC: noise preference and coverage": effect_of_gmc(results),
        "Error → GMC: runs that are solved": solved_with_gmc(results),
        "Noise preference by room": preferences(results),
        "The chain: steps to its end": first_goals(results),
    }
    for title, rooms in list(KINDS.items())[1:]:
        parts[f"Leaderboard, {title}"] = leaderboard(results, rooms, _returned)
    return [replace(own, title=title, name=f"arena-{k}") for k, (title, own) in enumerate(parts.items(), 1) if own.rows]


def markdown(results: Results) -> str:
    """All tables of the page."""
    sections = [f"### {table.title}\n\n{table.markdown()}" for table in tables(results)]
    return "\n\n".join([*sections, missing(results)])


def draw(results: Results, dark: bool = False, rooms: Iterable[str] = tuple(TELEVISIONS)) -> Figure:
    """Noise preference against coverage in some rooms, a point per method; call it under `house_style()`.

    An arrow leads from a predictor scored by its error to the same scored by GMC.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    from headway.analysis.report.rendering import dark as darkened

    ground, ink, grid = PAGE_COLOURS[dark]
    methods = by_method(results, rooms)
    styles = styles_for(methods, METHODS)
    figure = new_figure(2 * COLUMN_WIDTH, 4.6)
    figure.set_facecolor(ground)
    axes = figure.subplots()
    axes.set_facecolor(ground)
    points: dict[str, tuple[float, float]] = {}
    for name, strata in methods.items():
        covered, preference = _middle(strata, _covered), _middle(strata, _preference)
        if covered is None or preference is None:
            continue
        points[name] = preference.value, covered.value
        ends = [[[max(0, e.value - e.low)], [max(0, e.high - e.value)]] for e in (preference, covered)]
        known = preference.is_bounded and covered.is_bounded
        axes.errorbar(
            [preference.value],
            [covered.value],
            xerr=ends[0] if known else None,
            yerr=ends[1] if known else None,
            color=darkened(styles[name].colour) if dark else styles[name].colour,
            marker=styles[name].marker,
            linestyle="none",
            elinewidth=0.8,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 6, 8)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    for name, point in points.items():
        if f"{name}+gmc" in points:
            arrow = {"arrowstyle": "->", "color": ink, "alpha": 0.35, "shrinkA": 6, "shrinkB": 6}
            axes.annotate("", points[f"{name}+gmc"], point, arrowprops=arrow)
    _label(axes, points, ink)
    axes.axvline(1, color=ink, linewidth=0.6, linestyle=":")
    axes.set_xlabel("noise preference: bonus per step in the noise over outside", color=ink)
    axes.set_ylabel("share of places covered", color=ink)
    axes.tick_params(colors=ink, which="both")
    axes.grid(color=grid)
    for spine in axes.spines.values():
        spine.set_color(ink)
    return figure


def _label(axes: Axes, points: Mapping[str, tuple[float, float]], ink: str) -> None:
    """Write each name beside its point, where it covers no other name if there is such a place."""
    taken: list[Bbox] = []
    for name, point in points.items():
        for x, y in ((5, 4), (-5, 4), (5, -10), (-5, -10), (5, 14), (-5, 14), (5, -20), (-5, -20)):
            side = "left" if x > 0 else "right"
            label = axes.annotate(
                name, point, (x, y), textcoords="offset points", fontsize=7, color=ink, horizontalalignment=side
            )
            box = label.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                break
            label.remove()
        else:
            axes.add_artist(label)
        taken.append(box)
