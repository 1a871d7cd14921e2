"""Whose runs of Uniform a group is compared with when it has none of its own.

Uniform depends on no constant of a signal. A group of runs that differs from another one in such constants alone, as
GMC with another floor does, is therefore compared with the other's runs of Uniform.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headway.analysis.results import Results
from headway.analysis.rundata import Group
from headway.analysis.tables import BASELINE, usable
from headway.runs import RunSpec
from headway.runs.spec import LATER
from headway.study.protocols.labels import counted_epochs, without_lengths

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
