"""The numbers of the report, by setting; what they say in sentences; and the tables that it writes as CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headway.analysis.charts.model import Chart
from headway.analysis.comparison import (
    BASELINE,
    CONTROLLED,
    EXPLORATION,
    MethodRow,
    OverallRow,
    Setting,
    WelchRow,
    areas,
    epochs_to,
    method_rows,
    overall_rows,
    profiles,
    welch_rows,
)
from headway.analysis.results import Results
from headway.analysis.rundata import RunData, grouped
from headway.analysis.stats import Estimate, Profile, Survival, t_interval
from headway.analysis.summaries import auc, final_return
from headway.analysis.table import Cell, Table
from headway.runs.text import count
from headway.study.protocols.names import GROUP_NAMES, title

if TYPE_CHECKING:
    from headway.analysis.studies import Study


@dataclass(frozen=True)
class Areas:
    """Areas under the test-loss curves of a setting's finished runs."""

    rows: Sequence[MethodRow]  # a line for each signal
    seeds: Mapping[str, Sequence[float]]  # the area of each seed relative to Uniform's with the same seed, by signal
    # how many epochs each signal needs to the loss that Uniform has in the last half of its curve; empty without runs
    # of Uniform, or if one of them diverged
    times: Mapping[str, Survival]
    remark: str = ""  # why there are no times although there are runs of Uniform; empty otherwise

    @property
    def ratios(self) -> dict[str, Estimate]:
        """The area of every signal relative to Uniform's; empty without runs of Uniform."""
        found = {row.method: row.relative for row in self.rows if row.relative}
        if BASELINE in found:  # relative to itself, without an interval
            found[BASELINE] = Estimate(1.0, float("-inf"), float("inf"), found[BASELINE].n)
        return found


def areas_of(setting: Setting) -> Areas | None:
    """The areas of a setting; None if it has no finished runs of the controlled study."""
    if setting.kind != CONTROLLED or not setting.finished:
        return None
    runs = Results(tuple(run for members in setting.finished.values() for run in members))
    by_seed = {name: areas(members) for name, members in setting.finished.items()}
    own = by_seed.pop(BASELINE, {})
    base = own or areas(setting.uniform)
    seeds = {
        name: [area / base[seed] for seed, area in sorted(found.items()) if seed in base]
        for name, found in by_seed.items()
    }
    times = epochs_to(runs) if own else {}
    remark = "A run of Uniform diverged, so there is no loss of Uniform's to get to." if own and not times else ""
    return Areas(method_rows(runs, setting.uniform), seeds, times, remark)


@dataclass(frozen=True)
class Overall:
    """The signals over all conditions of one protocol."""

    rows: Sequence[OverallRow]  # a line for each signal
    profiles: Mapping[str, Profile]  # the share of its runs that reach each relative area, by signal


def overall_of(settings: Sequence[Setting]) -> dict[str, Overall]:
    """The signals over all conditions, by protocol; protocols without runs of Uniform are left out."""
    found = {}
    for protocol, runs in _families(settings).items():
        rng = np.random.default_rng(0)
        rows = overall_rows(runs, rng)
        if len(rows) > 1:
            found[protocol] = Overall(rows, profiles(runs, rng))
    return found


def _families(settings: Sequence[Setting]) -> dict[str, Results]:
    """The finished runs of the controlled study, by protocol."""
    controlled = [setting.finished.values() for setting in settings if setting.kind == CONTROLLED]
    runs = (run for methods in controlled for members in methods for run in members)
    return {protocol: Results(tuple(own)) for protocol, own in grouped(runs, lambda run: run.protocol).items()}


def comparisons(settings: Sequence[Setting]) -> dict[str, list[WelchRow]]:
    """Welch's tests of GMC against every other signal, by setting; Holm's correction is over those of one protocol."""
    keys = {setting.group: setting.key for setting in settings}
    rows = [row for runs in _families(settings).values() for row in welch_rows(runs)]
    return {keys[group]: own for group, own in grouped(rows, lambda row: row.group).items()}


def final_rewards(setting: Setting) -> dict[str, Estimate]:
    """Mean return over the last tenth of the rollouts by method, in the environment's unit; empty for other runs.

    It is unknown for a method of which a run ended no episode there: leaving that run out would flatter the mean.
    """
    if setting.kind != EXPLORATION:
        return {}
    return {name: t_interval([final_return(run) for run in runs]) for name, runs in setting.finished.items()}


def summary_table(settings: Sequence[Setting], found: Mapping[str, Areas]) -> Table | None:
    """One line for each setting and signal."""
    rows: list[list[Cell]] = []
    for setting in settings:
        if setting.key not in found:
            continue
        for row in found[setting.key].rows:
            relative = _ends(row.relative) if row.relative and row.method != "uniform" else [None, None, None]
            shares = [share.value for share in row.shares]
            time = found[setting.key].times.get(row.method)
            reached: list[Cell] = [time.median, time.reached] if time else [None, None]
            names = [*_names(setting), title(row.method), len(row.seeds)]
            uniform = (setting.uniform_source or setting).group.protocol if row.relative else None
            rows.append([*names, *_ends(row.auc), *relative, uniform, row.final_loss.value, *reached, *shares])
    groups = [f"share {a}/{b}" for a, b in zip(*GROUP_NAMES.values(), strict=True)]
    heads = ["setting", "protocol", "signal", "seeds", "area", "area low", "area high", "ratio", "ratio low"]
    heads += ["ratio high", "Uniform of protocol", "final loss", "median epochs to Uniform's loss", "runs there"]
    formats = dict.fromkeys(("ratio", "ratio low", "ratio high"), ".4f") | dict.fromkeys(groups, ".3f")
    what = "Areas under the test-loss curve and shares of the last draws"
    return Table([*heads, *groups], rows, what, "summary", formats) if rows else None


def overall_table(overall: Mapping[str, Overall]) -> Table | None:
    """One line for each protocol and signal, over all conditions."""
    rows: list[list[Cell]] = [
        [protocol, title(row.method), len(row.groups), *_ends(row.iqm), *_ends(row.improvement)]
        for protocol, found in overall.items()
        for row in found.rows
    ]
    heads = ["protocol", "signal", "conditions", "IQM of ratio", "IQM low", "IQM high"]
    heads += ["P(better than Uniform)", "P low", "P high"]
    return Table(heads, rows, "Signals over all conditions", "overall") if rows else None


def welch_table(settings: Sequence[Setting], tests: Mapping[str, Sequence[WelchRow]]) -> Table | None:
    """One line for each test."""
    rows: list[list[Cell]] = []
    for setting in settings:
        for row in tests.get(setting.key, ()):
            test = row.test
            numbers = [test.t, test.df, test.p, row.p_holm, *_ends(test.difference)] if test else [None] * 7
            rows.append([*_names(setting), title(row.method), title(row.baseline), *row.n, *numbers, row.stars])
    heads = ["setting", "protocol", "signal", "against", "seeds", "seeds against", "t", "df", "p", "p (Holm)"]
    heads += ["difference", "difference low", "difference high", "mark"]
    what = "Welch's t-tests on areas under the test-loss curve"
    return Table(heads, rows, what, "welch", {"t": ".3f", "df": ".1f"}) if rows else None


def rewards_table(settings: Sequence[Setting], rewards: Mapping[str, Mapping[str, Estimate]]) -> Table | None:
    """One line for each exploration setting and method."""
    rows: list[list[Cell]] = [
        [*_names(setting), title(name), reward.n, *_ends(reward)]
        for setting in settings
        if setting.kind == EXPLORATION
        for name, reward in rewards.get(setting.key, {}).items()
    ]
    heads = ["setting", "protocol", "method", "seeds", "final return", "low", "high"]
    return Table(heads, rows, "Episode return over the last tenth of the rollouts", "rewards") if rows else None


def runs_table(runs: Sequence[RunData]) -> Table:
    """One line for each run, whatever became of it."""
    heads = ["run", "state", "experiment", "dataset", "condition", "method", "seed", "protocol"]
    heads += ["done", "total", "seconds", "host", "message"]
    rows: list[list[Cell]] = []
    for run in runs:
        progress = run.progress
        names: list[Cell] = [run.id, run.state.value, run.experiment, run.dataset, run.condition, run.method, run.seed]
        message = run.error.message if run.error else run.note
        rows.append([*names, run.protocol, progress.done, progress.total, progress.seconds, run.host, message])
    return Table(heads, rows, "All runs", "runs", {"seconds": ".1f"})


def areas_table(settings: Sequence[Setting]) -> Table | None:
    """One line for each finished run of the controlled study, for whoever wants to calculate on."""
    rows: list[list[Cell]] = [
        [*_names(setting), run.method, run.seed, auc(run), run.id]
        for setting in settings
        if setting.kind == CONTROLLED
        for runs in setting.finished.values()
        for run in runs
    ]
    heads = ["setting", "protocol", "signal", "seed", "area", "run"]
    return Table(heads, rows, "Area of every run", "areas") if rows else None


def _names(setting: Setting) -> list[Cell]:
    return [setting.title, setting.group.protocol]


def _ends(estimate: Estimate) -> list[Cell]:
    return [estimate.value, estimate.low, estimate.high]


MOST_SENTENCES = 3  # Settings of which the page's first section speaks


@dataclass(frozen=True)
class Findings:
    """What a page opens with."""

    sentences: Sequence[str] = ()  # what happened, in words
    # the figure that shows what the first sentence says; empty if there is none
    charts: Sequence[Chart] = field(default_factory=tuple)


def findings_of(
    settings: Sequence[Setting],
    areas: Mapping[str, Areas],
    rewards: Mapping[str, Mapping[str, Estimate]],
    charts: Mapping[str, Sequence[Chart]],
    studies: Sequence[Study],
) -> Findings:
    """What comes first in sentences: studies, then settings with noise, others of the controlled study, exploration."""
    arena = {setting.key for setting in settings if setting.group.experiment == "arena"}  # has a section of its own
    said = {key: _about_returns(returns) for key, returns in rewards.items() if key not in arena}
    said |= {key: conclusion(area.rows) for key, area in areas.items() if key not in rewards}
    found = [(setting, text) for setting in settings if (text := said.get(setting.key))]
    found.sort(key=lambda each: (each[0].key not in areas, each[0].group.condition != "noise"))
    found = found[:MOST_SENTENCES]
    sentences = [f"{setting.title}: {text}" if len(found) > 1 else text for setting, text in found]
    if concluded := [study for study in studies if study.conclusion]:
        sentences = [*(f"{study.title}: {study.conclusion}" for study in concluded), *sentences]
        return Findings(sentences[:MOST_SENTENCES], concluded[0].charts)
    own = charts.get(found[0][0].key, ()) if found else ()
    return Findings(sentences, ([chart for chart in own if chart.id.startswith("groups")] or own)[:1])


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
