"""Runs that may be compared: one `Setting` for each set of runs that differ in method and seed alone.

Uniform depends on no constant of a signal. A setting that differs from another one in such constants alone, as GMC with
another floor does, and has no runs of Uniform, is therefore compared with the other's; `lenders` says whose.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headway.analysis.results import Results
from headway.analysis.rundata import Group, RunData
from headway.analysis.summaries import arms_of_groups
from headway.analysis.tables import BASELINE, NEEDED, usable
from headway.runs import RunSpec, State
from headway.runs.spec import LATER
from headway.study.protocols.labels import counted_epochs, without_lengths
from headway.study.protocols.names import MARK, METHODS, rank, title

if TYPE_CHECKING:
    from headway.analysis.studies import Study

STUDIES = ("arena", "mixture")
"""Experiments that have tables of their own, see `studies_of`."""
OF_SIGNALS = r"(beta|floor|gate|dot|cosine|norm|delta)(_.*)?|bias_correction|scored"
"""The fields of the protocol that Uniform does not depend on."""
DRAWN_BY = "uniform"
"""Who draws for Uniform: an actor whose score is always zero soon draws all arms alike, so that its runs serve where
there are none without an actor."""
WEIGHT = "entropy_weight"
"""Hardly matters to Uniform, as long as there is one: its policy follows the entropy alone, and Adam takes steps of the
same size whatever the size of the gradient."""


def lenders(groups: Mapping[Group, Results]) -> dict[Group, Group]:
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
        lending = owners.get(_kind(members.runs[0].spec), {})
        seeds = {run.seed for run in members}
        if lending and group not in lending:
            plain = {lender: own for lender, own in lending.items() if f"{DRAWN_BY}=actor" not in lender.protocol}
            lending = plain or lending
            found[group] = max(lending, key=lambda lender: len(seeds & lending[lender]))
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
    lender: Setting | None = None  # the setting whose runs of Uniform serve this one, if it has none of its own

    @property
    def uniform(self) -> Sequence[RunData]:
        """The finished runs of Uniform to compare with: its own, or its lender's."""
        own = usable(self.finished.get(BASELINE, ()))
        return own if own or self.lender is None else self.lender.uniform

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
    lending = lenders(groups)
    return [
        replace(found[group], lender=found[lending[group]]) if group in lending else found[group] for group in found
    ]


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


def studies_of(results: Results) -> list[Study]:
    """What the runs say about the arena and the mixture study, where there are any to compare."""
    if not any(run.experiment in STUDIES for run in results):
        return []
    from headway.analysis.studies import make_studies

    return make_studies(results)


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
