"""Runs that may be compared: one `Setting` for each set of runs that differ in method and seed alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.analysis.baselines import lenders
from headway.analysis.results import Results
from headway.analysis.rundata import Group, RunData
from headway.analysis.summaries import arms_of_groups
from headway.analysis.tables import BASELINE, NEEDED, usable
from headway.runs import State
from headway.study.protocols.names import MARK, METHODS, rank, title

CONTROLLED, EXPLORATION = "controlled", "exploration"
"""What the metrics of a run can be: per-arm losses and counts, or episode returns."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Runs that differ in method and seed only.

    Attributes:
        group: what they share.
        kind: what their metrics are: "controlled", "exploration", or nothing that a chart is known for.
        all: every run by method, ordered by seed.
        shown: the runs for charts and tables, by method: the finished ones (on a live page also those under way).
        finished: the finished ones by method.
        lender: the setting whose runs of Uniform serve this one, if it has none of its own.
    """

    group: Group
    kind: str
    all: Mapping[str, Sequence[RunData]]
    shown: Mapping[str, Sequence[RunData]]
    finished: Mapping[str, Sequence[RunData]]
    lender: Setting | None = None

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

    @property
    def is_unfinished(self) -> bool:
        """Whether a run is shown that is not finished."""
        return any(not run.finished for runs in self.shown.values() for run in runs)

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
