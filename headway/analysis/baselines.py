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

NOT_OF_UNIFORM = r"(beta|floor|gate|dot|cosine|norm|delta)(_.*)?|bias_correction|scored|entropy_weight"
"""The fields of the protocol that Uniform does not depend on: its policy stays where it starts, at even shares."""


def lenders(groups: Mapping[Group, Results]) -> dict[Group, Group]:
    """For each group without usable runs of Uniform, the group whose runs of Uniform serve it as well; if there is one.

    Args:
        groups: runs by group, as `Results.groups` gives them.
    """
    kinds = {group: shared(members.runs[0].spec) for group, members in groups.items()}
    owners: dict[object, Group] = {}
    has_own = set()
    for group in sorted(groups, key=lambda group: group.order):
        if usable([run for run in groups[group] if run.method == BASELINE]):
            has_own.add(group)
            owners.setdefault(kinds[group], group)
    return {group: owners[kind] for group, kind in kinds.items() if group not in has_own and kind in owners}


def shared(spec: RunSpec, apart_from: str = NOT_OF_UNIFORM) -> object:
    """What a run depends on, apart from its method, its seed and the fields of the protocol that match a pattern."""
    rest = {name: str(value) for name, value in spec.protocol.items() if not re.fullmatch(apart_from, name)}
    return (spec.experiment, spec.condition, *sorted(map(str, spec.params.items())), *sorted(rest.items()))
