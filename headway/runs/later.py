"""Fields of protocols that came after runs existed, and what they mean for the ids of runs.

A run's id is a hash of its spec, and the spec holds the protocol. A field that is new, or that has a new value in a
preset, enters the spec only where the numbers of the run depend on it and are not what they were before. All other
runs keep their ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Later:
    """A later field of a protocol.

    Attributes:
        former: the value that reproduces what runs did before.
        methods: a regular expression that matches the methods whose numbers depend on the field.
        now: only for a field that is older than this rule: the value that a preset has instead of `former` since then.
    """

    former: Any
    methods: str
    now: Any = None

    def concerns(self, method: str) -> bool:
        """Whether the numbers of a method depend on the field."""
        return re.fullmatch(self.methods, method) is not None

    @property
    def is_new(self) -> bool:
        """Whether older specs do not have the field at all."""
        return self.now is None


LATER: Mapping[str, Mapping[str, Later]] = {
    "controlled": {
        "uniform": Later("actor", "uniform"),
        "delta_empty": Later("skip", "delta_loss"),
        "actor_scores": Later("raw", ".*"),
        "norm_all_scale": Later(1.0, "norm_all", now=0.0011),
        "norm_last_scale": Later(1.0, "norm_last", now=0.011),
        "delta_scale": Later(1.0, "delta_loss", now=52000.0),
    },
    "doorkey": {
        "icm_hidden_layer": Later(True, r"icm(\+.+)?"),
    },
}
"""The later fields of each experiment, by name."""


def written(experiment: str, method: str, protocol: Mapping[str, Any]) -> Mapping[str, Any]:
    """The protocol as a spec holds it: without later fields that make no difference to what the run was before."""
    changed = dict(protocol)
    for name, field in LATER.get(experiment, {}).items():
        if name not in protocol:
            continue
        if field.is_new and (protocol[name] == field.former or not field.concerns(method)):
            del changed[name]
        elif not field.is_new and protocol[name] == field.now and not field.concerns(method):
            changed[name] = field.former
    return changed if changed != protocol else protocol


def compared(experiment: str, method: str, protocol: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec's protocol by which runs are told apart.

    A later field that the spec does not have is there with its former value, if it concerns the method; one that does
    not concern the method is left out.
    """
    fields = dict(protocol)
    for name, field in LATER.get(experiment, {}).items():
        if field.concerns(method):
            fields.setdefault(name, field.former)
        elif field.is_new or fields.get(name) == field.former:
            fields.pop(name, None)
    return fields
