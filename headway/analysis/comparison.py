"""Runs that may be compared, as a `Setting`, and the numbers of the controlled study.

Only finished runs count. `method_rows` and `welch_rows` compare the runs of one group and pool nothing over datasets,
conditions or protocols; `overall_rows`, `profiles` and `epochs_to` are robust to single bad runs.

Uniform depends on no constant of a signal. A setting that differs from another one in such constants alone, as GMC with
another floor does, and has no runs of Uniform, is therefore compared with the other's; `uniform_sources` says whose.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headway.analysis import stats
from headway.analysis.results import Results
from headway.analysis.rundata import Array, Group, RunData, what_is_missing
from headway.analysis.stats import Estimate, Profile, Survival, Welch
from headway.analysis.summaries import arms_of_groups, auc, average_loss, epochs, group_shares, tail
from headway.runs import RunSpec, State
from headway.runs.spec import LATER
from headway.study.protocols.labels import counted_epochs, without_lengths
from headway.study.protocols.names import MARK, METHODS, rank, title

NEEDED = ("test_loss", "test_count", "train_count")  #: The metrics that a run must have to be in a table
BASELINE = "uniform"


@dataclass(frozen=True)
class MethodRow:
    """What the runs of one signal came to."""

    group: Group  #: the condition, dataset and protocol
    method: str  #: the signal
    seeds: tuple[int, ...]  #: the seeds of its finished runs
    auc: Estimate  #: area under the test-loss curve, mean over seeds
    deviation: float  #: standard deviation of the area over seeds; NaN for one seed
    relative: Estimate | None  #: the area relative to Uniform's; None if there are no runs of Uniform
    final_loss: Estimate  #: average test loss over the last tenth of the curve
    shares: tuple[Estimate, ...]  #: share of the draws in each group over the last tenth, mean over seeds


@dataclass(frozen=True)
class WelchRow:
    """Welch's test of the areas of two signals."""

    group: Group  #: the condition, dataset and protocol
    method: str  #: the first signal
    baseline: str  #: the second one; a negative t says that the first has the lower, better area
    n: tuple[int, int]  #: seeds of each
    test: Welch | None  #: the test; None when there can be none
    p_holm: float | None = None  #: the p-value corrected for all rows of the table; None if there is no test
    stars: str = ""  #: the mark of the p-value in the protocol's convention; empty if there is no test
    why: str = ""  #: why there is no test; empty if there is one


@dataclass(frozen=True)
class OverallRow:
    """A signal over all conditions in which it and Uniform have runs.

    Both are unknown if a run of the signal, or of Uniform in one of its conditions, has diverged.
    """

    method: str  #: the signal
    groups: tuple[Group, ...]  #: the conditions
    iqm: Estimate  #: interquartile mean of the area relative to Uniform's mean area in the same condition
    improvement: Estimate  #: probability that a run has a lower area than one of Uniform's in the same condition


def usable(runs: Sequence[RunData], columns: Sequence[str] = NEEDED) -> tuple[RunData, ...]:
    """The finished runs with all epochs that have these metrics, those of arms with as many arms as the condition."""

    def has(run: RunData, name: str) -> bool:
        shape = (run.rows, sum(map(len, arms_of_groups(run))))
        return name in run.columns and (name not in NEEDED or run.columns[name].shape == shape)

    whole = (run for run in runs if run.finished and run.rows and not what_is_missing(run))
    return tuple(run for run in whole if all(has(run, name) for name in columns))


def areas(runs: Sequence[RunData]) -> dict[int, float]:
    """Area under the test-loss curve of each usable run, by seed."""
    return {run.seed: auc(run) for run in usable(runs)}


def relative_area(ours: Mapping[int, float], theirs: Mapping[int, float], confidence: float = 0.95) -> Estimate:
    """The ratio of two signals' areas, by seed.

    Runs with the same seed make pairs. Where fewer than two seeds agree, all runs of both count, unpaired; but where
    there is a single run on either side, it is compared with the one of its own seed.
    """
    common = sorted(ours.keys() & theirs.keys())
    if len(common) < 2 and not (common and 1 in (len(ours), len(theirs))):
        return stats.unpaired_ratio(_values(ours), _values(theirs), confidence)
    return stats.ratio([ours[seed] for seed in common], [theirs[seed] for seed in common], confidence)


def method_rows(members: Results, uniform: Sequence[RunData] = ()) -> list[MethodRow]:
    """One line per signal of a group of controlled runs, such as a value of `Results.groups`.

    Where the group has no runs of Uniform, it is compared with those given; see `uniform_sources`.
    """
    by_method = {method: usable(runs) for method, runs in members.methods().items()}
    baseline = areas(by_method.get(BASELINE, ()) or uniform)
    rows = []
    for method, runs in by_method.items():
        if not runs:
            continue
        own = areas(runs)
        shares = np.array([tail(group_shares(run)).mean(0) for run in runs])
        rows.append(
            MethodRow(
                group=runs[0].group,
                method=method,
                seeds=tuple(run.seed for run in runs),
                auc=stats.t_interval(_values(own)),
                deviation=float(_values(own).std(ddof=1)) if len(own) > 1 else float("nan"),
                relative=relative_area(own, baseline) if baseline else None,
                final_loss=stats.t_interval([float(tail(average_loss(run)).mean()) for run in runs]),
                shares=tuple(stats.t_interval(column) for column in shares.T),
            )
        )
    return rows


def welch_rows(results: Results, method: str = "gmc") -> list[WelchRow]:
    """Compare the area of one signal with that of every other one, in every group of controlled runs."""
    rows: list[WelchRow] = []
    for group, members in results.select(experiment="controlled").groups().items():
        found = {name: areas(runs) for name, runs in members.methods().items()}
        convention = str(members.runs[0].spec.protocol.get("stars") or "released")
        for baseline, theirs in found.items():
            if baseline != method and theirs and found.get(method):
                ours = found[method]
                samples = _values(ours), _values(theirs)
                test, why = stats.welch(*samples), stats.why_untested(*samples)
                mark = stats.stars(test.p, convention) if test else ""
                rows.append(WelchRow(group, method, baseline, (len(ours), len(theirs)), test, None, mark, why))
    adjusted = iter(stats.holm([row.test.p for row in rows if row.test]).tolist())
    return [replace(row, p_holm=next(adjusted)) if row.test else row for row in rows]


def _values(by_seed: Mapping[int, float]) -> Array:
    return np.array([by_seed[seed] for seed in sorted(by_seed)])


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

    The runs are of one protocol, such as ``results.select(protocol="released")``.
    """
    found = comparable_areas(results)
    rows = []
    for method, by_group in found.items():
        uniform = [found[BASELINE][group] for group in by_group]
        ours = list(by_group.values())
        improvement = stats.probability_of_improvement(ours, uniform, rng)
        iqm = stats.relative_iqm(ours, None if method == BASELINE else uniform, rng)
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
        method: strata
        for method, by_group in every.items()
        if (strata := [values for group, values in by_group.items() if group in kept])
    }
    if not found:
        return {}
    scores = np.concatenate([values for strata in found.values() for values in strata])
    scores = scores[np.isfinite(scores)]
    thresholds = np.linspace(scores.min(), scores.max(), points)
    return {method: stats.performance_profile(strata, thresholds, rng) for method, strata in found.items()}


def epochs_to(members: Results, loss: float | None = None) -> dict[str, Survival]:
    """How many epochs each signal of a group needs to an average test loss; runs that never get there are censored.

    By default it is the loss that Uniform has on average over the last half of its curve. If that is not known because
    a run of Uniform has diverged, there are no times at all.

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
        method: [stats.time_to_threshold(epochs(run), average_loss(run), loss) for run in runs]
        for method, runs in by_method.items()
    }
    horizon = max((time for times in curves.values() for time, _ in times), default=0.0)
    return {
        method: stats.survival([time for time, _ in times], [there for _, there in times], horizon)
        for method, times in curves.items()
    }


OF_SIGNALS = r"(beta|floor|gate|dot|cosine|norm|delta)(_.*)?|bias_correction|scored"
"""The fields of the protocol that Uniform does not depend on."""
DRAWN_BY = "uniform"
"""Who draws for Uniform: an actor whose score is always zero soon draws all arms alike, so that its runs serve where
there are none without an actor."""
WEIGHT = "entropy_weight"
"""Hardly matters to Uniform, as long as there is one: its policy follows the entropy alone, and Adam takes steps of the
same size whatever the size of the gradient."""


def uniform_sources(groups: Mapping[Group, Results]) -> dict[Group, Group]:
    """For each group without usable runs of Uniform, the group whose runs of Uniform serve it as well; if there is one.

    Where several do, it is the one that has the most seeds in common; of these, the one with the plainest protocol.
    Runs of Uniform that an actor drew serve only where there are no others.
    """
    owners: dict[object, dict[Group, set[int]]] = {}
    for group in sorted(groups, key=lambda group: group.order):
        own = usable([run for run in groups[group] if run.method == BASELINE])
        if own:
            owners.setdefault(_kind(own[0].spec), {})[group] = {run.seed for run in own}
    found = {}
    for group, members in groups.items():
        sources = owners.get(_kind(members.runs[0].spec), {})
        seeds = {run.seed for run in members}
        if sources and group not in sources:
            plain = {source: own for source, own in sources.items() if f"{DRAWN_BY}=actor" not in source.protocol}
            sources = plain or sources
            found[group] = max(sources, key=lambda source: len(seeds & sources[source]))
    return found


def _kind(spec: RunSpec) -> object:
    """What a run of Uniform depends on."""
    return shared(spec, f"{OF_SIGNALS}|{WEIGHT}"), spec.protocol.get(WEIGHT) == 0


def shared(spec: RunSpec, apart_from: str) -> object:
    """What a run depends on, apart from its method, its seed and the fields of the protocol that match a pattern.

    Later fields of the protocol, each of which concerns some methods alone, are left out too.
    """
    later = LATER.get(spec.experiment, {})
    rest = {
        name: str(value)
        for name, value in without_lengths(spec).items()
        if name not in later and not re.fullmatch(apart_from, name)
    }
    params = dict(spec.params) | ({"epochs": counted_epochs(spec)} if "epochs" in spec.params else {})
    return (spec.experiment, spec.condition, *sorted(map(str, params.items())), *sorted(rest.items()))


CONTROLLED, EXPLORATION = "controlled", "exploration"
"""What the metrics of a run can be: per-arm losses and counts, or episode returns."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Runs that differ in method and seed only."""

    group: Group  # what they share
    kind: str  # what their metrics are: "controlled", "exploration", or nothing that a chart is known for
    all: Mapping[str, Sequence[RunData]]  # every run by method, ordered by seed
    # the runs for charts and tables, by method: the finished ones (on a live page also those under way)
    shown: Mapping[str, Sequence[RunData]]
    finished: Mapping[str, Sequence[RunData]]  # the finished ones by method
    uniform_source: Setting | None = None  # the setting whose runs of Uniform serve this one, if it has none of its own

    @property
    def uniform(self) -> Sequence[RunData]:
        """The finished runs of Uniform to compare with: its own, or those of `uniform_source`."""
        own = usable(self.finished.get(BASELINE, ()))
        return own if own or self.uniform_source is None else self.uniform_source.uniform

    @property
    def key(self) -> str:
        """A short name that stays the same, for ids in the page."""
        text = "\n".join((self.group.experiment, self.group.dataset or "", self.group.condition, self.group.protocol))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        """As part of a file name, such as "mnist-noise"."""
        extra = "" if self.group.experiment in ("controlled", "doorkey") else self.group.experiment
        return slug(extra, self.group.dataset or "", self.group.condition)

    @property
    def title(self) -> str:
        """What tables call it, such as "Noise+MNIST"."""
        return self.group.title

    @property
    def heading(self) -> str:
        """What charts call it, such as "MNIST, Noise"; a dagger marks data that are not the official copy."""
        noted = any(run.environment.get("note") for runs in self.all.values() for run in runs)
        dataset = f"{title(self.group.dataset)}{MARK if noted else ''}" if self.group.dataset else ""
        return ", ".join(filter(None, (dataset, title(self.group.condition))))

    def pick(self, methods: Iterable[str], *columns: str) -> dict[str, tuple[RunData, ...]]:
        """The finished runs of those methods that have any with these columns."""
        found = {method: usable(self.finished[method], columns) for method in methods if method in self.finished}
        return {method: runs for method, runs in found.items() if runs}


def settings_of(results: Results, with_unfinished: bool = False) -> list[Setting]:
    """Sort runs into settings, in the order in which a report lists them."""
    found: dict[Group, Setting] = {}
    groups = results.groups()
    for group, members in sorted(groups.items(), key=lambda pair: pair[0].order):
        methods = dict(sorted(members.methods().items(), key=lambda pair: rank(METHODS, pair[0])))
        kinds = [kind for run in members if (kind := kind_of(run))]
        kind = max(kinds, key=kinds.count) if kinds else ""
        states = (State.DONE, State.RUNNING, State.INTERRUPTED) if with_unfinished else (State.DONE,)
        shown, finished = (_keep(methods, kind, each) for each in (states, (State.DONE,)))
        found[group] = Setting(group, kind, methods, shown, finished)
    sources = uniform_sources(groups)
    return [replace(each, uniform_source=found[sources[g]]) if g in sources else each for g, each in found.items()]


def headings(settings: Collection[Setting]) -> dict[Setting, str]:
    """What a chart calls each of several settings; with the protocol, where two would be called the same."""
    many = len({setting.heading for setting in settings}) < len(settings)
    return {each: f"{each.heading}, {each.group.protocol}" if many else each.heading for each in settings}


def kind_of(run: RunData) -> str:
    """What the metrics of a run are; nothing if they are of another kind, or there are none."""
    columns = run.columns
    if not run.rows:
        return ""
    arms = sum(map(len, arms_of_groups(run)))
    if all(name in columns and columns[name].shape[1:] == (arms,) for name in NEEDED):
        return CONTROLLED
    if all(name in columns and columns[name].ndim == 1 for name in ("episode_return", "env_steps")):
        return EXPLORATION
    return ""


def slug(*parts: str) -> str:
    """Join words to a file name of lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-") or "figure"


def _keep(
    methods: Mapping[str, Sequence[RunData]], kind: str, states: Sequence[State]
) -> dict[str, tuple[RunData, ...]]:
    """The runs in these states that have metrics of this kind; methods without any are left out."""
    kept = {
        name: tuple(run for run in runs if run.state in states and kind and kind_of(run) == kind)
        for name, runs in methods.items()
    }
    return {name: runs for name, runs in kept.items() if runs}
