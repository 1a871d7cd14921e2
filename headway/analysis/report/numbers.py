"""The numbers of the report's tables, by setting. They come from `headway.analysis.tables`, as everywhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.analysis import summaries, tables
from headway.analysis.overall import OverallRow, epochs_to, overall_rows, profiles
from headway.analysis.results import Results
from headway.analysis.rundata import RunData
from headway.analysis.settings import CONTROLLED, EXPLORATION, Setting
from headway.analysis.stats import Estimate, Profile, Survival, t_interval
from headway.analysis.tables import BASELINE, MethodRow, WelchRow


@dataclass(frozen=True)
class Areas:
    """Areas under the test-loss curves of a setting's finished runs.

    Attributes:
        rows: a line for each signal.
        seeds: the area of each seed relative to Uniform's with the same seed, by signal.
        times: how many epochs each signal needs to the loss that Uniform has in the last half of its curve; empty
            without runs of Uniform, or if one of them diverged.
        remark: why there are no times although there are runs of Uniform; empty otherwise.
    """

    rows: Sequence[MethodRow]
    seeds: Mapping[str, Sequence[float]]
    times: Mapping[str, Survival]
    remark: str = ""

    @property
    def ratios(self) -> dict[str, Estimate]:
        """The area of every signal relative to Uniform's; empty without runs of Uniform."""
        return {row.method: _one(row) if row.method == BASELINE else row.relative for row in self.rows if row.relative}


def areas_of(setting: Setting) -> Areas | None:
    """The areas of a setting; None if it has no finished runs of the controlled study."""
    if setting.kind != CONTROLLED or not setting.finished:
        return None
    runs = Results(tuple(run for members in setting.finished.values() for run in members))
    by_seed = {name: tables.areas(members) for name, members in setting.finished.items()}
    own = by_seed.pop(BASELINE, {})
    base = own or tables.areas(setting.uniform)
    seeds = {
        name: [area / base[seed] for seed, area in sorted(found.items()) if seed in base]
        for name, found in by_seed.items()
    }
    times = epochs_to(runs) if own else {}
    remark = "A run of Uniform diverged, so there is no loss of Uniform's to get to." if own and not times else ""
    return Areas(tables.method_rows(runs, setting.uniform), seeds, times, remark)


@dataclass(frozen=True)
class Overall:
    """The signals over all conditions of one protocol.

    Attributes:
        rows: a line for each signal.
        profiles: the share of its runs that reach each relative area, by signal.
    """

    rows: Sequence[OverallRow]
    profiles: Mapping[str, Profile]


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
    found: dict[str, list[RunData]] = {}
    for setting in settings:
        if setting.kind == CONTROLLED:
            own = found.setdefault(setting.group.protocol, [])
            own += [run for members in setting.finished.values() for run in members]
    return {protocol: Results(tuple(runs)) for protocol, runs in found.items() if runs}


def comparisons(settings: Sequence[Setting]) -> dict[str, list[WelchRow]]:
    """Welch's tests of GMC against every other signal, by setting; Holm's correction is over those of one protocol."""
    found: dict[str, list[WelchRow]] = {}
    for runs in _families(settings).values():
        rows = tables.welch_rows(runs)
        for setting in settings:
            own = [row for row in rows if row.group == setting.group]
            if own:
                found[setting.key] = own
    return found


def final_rewards(setting: Setting) -> dict[str, Estimate]:
    """Mean return over the last tenth of the rollouts by method, in the environment's unit; empty for other runs.

    It is unknown for a method of which a run ended no episode there: leaving that run out would flatter the mean.
    """
    if setting.kind != EXPLORATION:
        return {}
    return {name: t_interval([summaries.final_return(run) for run in runs]) for name, runs in setting.finished.items()}


def _one(row: MethodRow) -> Estimate:
    """Uniform relative to itself, without an interval."""
    return Estimate(1.0, float("-inf"), float("inf"), len(row.seeds))
